"""Domains of cluster data, told apart by the events that change them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol


class Domain(IntEnum):
    """A part of the cluster: its events make the columns read from it out of date."""

    NODES = 0
    PODS = 1
    METRICS = 2
    TOPOLOGY = 3


LOAD_DOMAINS: Final = (Domain.NODES, Domain.PODS, Domain.METRICS)
"""Domains of a node's load: what it offers, what its pods request, what they use."""


class AuxObject(Protocol):
    """An object that a cluster may or may not have.

    A rule finds it by its type and key; of those of one type and key there is one.
    """

    @property
    def key(self) -> str:
        """Its key for rules: the name of its node, or its own `namespace/name`."""

    @property
    def node_name(self) -> str:
        """The node it describes, "" if it describes no single node."""
