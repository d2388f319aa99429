"""The columns of nodes as expressions are planned on them, known before there are any nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from engine.cel.values import BOOL, DOUBLE, INT, MAP, STRING, TIMESTAMP, CelType
from engine.cel.vector import Layout, Leaf, Path
from engine.model.well_known import HOSTNAME_LABEL
from engine.policy.condition_table import ConditionLayout
from engine.policy.owner_pods import OWNER_FIELDS
from engine.view import LOAD_DOMAINS, Domain, Sum

CONDITIONS: Final = ("node", "conditions")
"""The path of the one list that has columns."""

CREATED: Final = "creationTimestamp"
NAME: Final = "name"

SUM_FIELDS: Final = {"requested": Sum.REQUESTS, "limits": Sum.LIMITS}
"""Fields that are sums over the pods of a node."""

AMOUNT_FIELDS: Final = frozenset({"allocatable", "usage", *SUM_FIELDS})
"""Fields with an amount by resource."""

TEXT_FIELDS: Final = frozenset({"labels", "annotations"})
"""Fields with a text by key."""

SCALAR_FIELDS: Final[Mapping[str, CelType]] = {
    "podCount": INT,
    "podsNotEvictable": INT,
    **dict.fromkeys(OWNER_FIELDS, INT),
    "ready": BOOL,
    "unschedulable": BOOL,
    CREATED: TIMESTAMP,
}
"""Fields that are one value, with its type."""

_NODES_AND_PODS = (Domain.NODES, Domain.PODS)
_DOMAINS: Final = {
    "limits": _NODES_AND_PODS,
    "podCount": (Domain.PODS,),
    "podsNotEvictable": _NODES_AND_PODS,
    **dict.fromkeys(OWNER_FIELDS, _NODES_AND_PODS),
    "requested": _NODES_AND_PODS,
    "usage": (Domain.METRICS,),
}
"""The domains of a field, where they are not the node alone."""

_FEW, _MANY = 32, 1 << 20  # different values in a large cluster
_UNIQUE: Final = frozenset({HOSTNAME_LABEL})
"""Labels that differ on every node."""


def domains_of_field(field: str) -> tuple[Domain, ...]:
    """Return the domains of a field of a node, in order; of the whole node where it is empty."""
    return _DOMAINS.get(field, (Domain.NODES,)) if field else LOAD_DOMAINS


@lru_cache
def domains_of(paths: tuple[Path, ...]) -> tuple[Domain, ...]:
    """Return the domains of paths that begin with `node`, in order."""
    fields = {path[1] if len(path) > 1 else "" for path in paths}
    return tuple(sorted({domain for field in fields for domain in domains_of_field(field)}))


class NodeLayout:
    """The columns of a `NodeTable`."""

    @property
    def variables(self) -> frozenset[str]:
        """The one variable that differs by row."""
        return frozenset({"node"})

    def leaf(self, path: Path) -> Leaf:
        """Return the column for a path that begins with `node`."""
        _, field, key = (*path, "", "")[:3]
        if field in SCALAR_FIELDS:
            return Leaf(path[:2], SCALAR_FIELDS[field], _MANY if field == CREATED else _FEW)
        if field in AMOUNT_FIELDS and key:
            return Leaf(path[:3], DOUBLE, _FEW if field == "allocatable" else _MANY)
        if field in TEXT_FIELDS and key:
            return Leaf(path[:3], STRING, _MANY if key in _UNIQUE else _FEW)
        if field == NAME:
            return Leaf(path[:2], STRING, _MANY)
        if field in AMOUNT_FIELDS or field in TEXT_FIELDS or not field:
            return Leaf(path[:2], MAP, _MANY)
        return Leaf(path[:2], None, _FEW if field == "taints" else _MANY)

    def elements(self, path: Path, variable: str) -> Layout | None:
        """Return the columns of the tables of conditions; no other list has such."""
        return ConditionLayout(self, variable) if path == CONDITIONS else None
