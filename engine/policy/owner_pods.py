"""Pods of the same owner as the pod that is decided, as PodTopologySpread counts them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from engine.cel import Reference
from engine.model.controller_selector import controller_selector
from engine.model.pod import Pod
from engine.model.well_known import ZONE_LABEL
from engine.view import MISSING, ClusterView, IntColumn, PodQuery, label_column, pods_matching

ON_NODE: Final = "podsOfOwner"
IN_ZONE: Final = "podsOfOwnerInZone"
OWNER_FIELDS: Final = frozenset({ON_NODE, IN_ZONE})
"""The fields of a node that differ by the pod, and rest on other nodes."""


def reads_owner_pods(paths: Iterable[Reference]) -> bool:
    """Return whether any path reads such a field; `node` as a whole holds them."""
    return any(path[0] == "node" and (len(path) == 1 or path[1] in OWNER_FIELDS) for path in paths)


def owner_pods(field: str, pod: Pod | None, view: ClusterView) -> IntColumn:
    """Return a field of `OWNER_FIELDS` for each node, (n,).

    Those that are being deleted do not count; see `controller_selector` for what an owner is.

    Args:
        field: its name.
        pod: that is decided; for none, and for one without an owner, all have 0.
        view: the nodes; the zone has the pods of the whole cluster.
    """
    if view.parent is not None:
        whole, rows = view.parent
        return owner_pods(field, pod, whole).take(rows)
    selector = None if pod is None else controller_selector(pod)
    if pod is None or selector is None:
        return np.zeros(len(view), np.int64)
    query = PodQuery(frozenset((pod.namespace,)), selector)
    pods = pods_matching(view, (query,), terminating=False)
    if field == ON_NODE:
        return pods
    zones = label_column(view, ZONE_LABEL)
    sums = np.bincount(zones.codes, pods, minlength=len(zones.book)).astype(np.int64)
    sums[MISSING] = 0
    return zones.spread(sums)
