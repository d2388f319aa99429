"""Domains of cluster data, told apart by the events that change them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Domain(IntEnum):
    """A part of the cluster: its events make the columns read from it out of date."""

    NODES = 0
    PODS = 1
    METRICS = 2
    TOPOLOGY = 3


LOAD_DOMAINS: Final = (Domain.NODES, Domain.PODS, Domain.METRICS)
"""Domains of a node's load: what it offers, what its pods request, what they use."""
