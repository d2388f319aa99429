"""What columns are made from, told apart by the events that make them out of date."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Domain(IntEnum):
    """What a column is made from, and so which events make its rows out of date."""

    NODES = 0
    PODS = 1
    METRICS = 2
    TOPOLOGY = 3


LOAD_DOMAINS: Final = (Domain.NODES, Domain.PODS, Domain.METRICS)
"""What the load of a node is made from: what it offers, what its pods ask for, what they use."""
