"""What a view says, in a form that two views can be compared by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.model.resources import Amounts
from engine.view import ClusterView, IntColumn, Sum


def facts(view: ClusterView) -> dict[str, object]:
    """Return all that a view says, without the order of its rows and without zeros."""
    return {
        "nodes": {name: _node_facts(view, row) for name, row in view.rows.items()},
        "requests": _by_namespace(view.namespaces.requested),
        "scheduled": _by_namespace(view.namespaces.scheduled),
        "running": _by_namespace(view.namespaces.running),
        "queued": _by_namespace(view.namespaces.queued),
        "quota_modes": dict(view.namespaces.quota_modes),
        "quotas": dict(view.namespaces.quotas),
        "labels": dict(view.namespaces.labels),
        "extras": dict(view.extras),
        "workloads": dict(view.workloads),
        "transitions": dict(view.transitions),
    }


def traits_on(view: ClusterView, row: int) -> list[bytes]:
    """Return the traits of the pods on a row."""
    numbers = np.frombuffer(view.traits[row], np.int32).tolist()
    return [view.trait_book.texts[number] for number in numbers]


def _by_namespace(amounts: Mapping[str, Amounts]) -> dict[str, Amounts]:
    return {namespace: _positive(some) for namespace, some in amounts.items()}


def _node_facts(view: ClusterView, row: int) -> dict[str, object]:
    return {
        "node": view.nodes[row],
        "usage": view.usages[row],
        "valid": bool(view.valid[row]),
        "unschedulable": bool(view.unschedulable[row]),
        "allocatable": _amounts(view, view.allocatable, row),
        "assumed": int(view.assumed[row]),
        "sums": {one: _amounts(view, view.sums[one], row) for one in Sum},
        "traits": sorted(traits_on(view, row)),
        "metric_time": int(view.metric_time[row]),
        "pod_sums": {profile: sums[:, row].tolist() for profile, sums in view.pod_sums.items()},
    }


def _amounts(view: ClusterView, matrix: IntColumn, row: int) -> Amounts:
    return _positive(dict(zip(view.axis.names, matrix[:, row].tolist(), strict=True)))


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}
