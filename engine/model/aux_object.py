"""Objects that only some rules read, such as NUMA zones or network costs."""

from __future__ import annotations

from typing import Protocol


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
