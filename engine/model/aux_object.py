"""What objects have in common that only some rules read, as NUMA zones or network costs."""

from __future__ import annotations

from typing import Protocol


class AuxObject(Protocol):
    """An object that a cluster may or may not have.

    A rule finds it by its type and key; of those of one type and key there is one.
    """

    @property
    def key(self) -> str:
        """What a rule finds it by: the name of its node, or its own as `namespace/name`."""

    @property
    def node_name(self) -> str:
        """The node it tells of, "" for one that tells of none in particular."""
