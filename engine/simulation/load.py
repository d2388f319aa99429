"""What each pod has in use, from what a recording knows of nodes.

A report that measures pods gives the load of those. What is left of the usage of its node, without
what the system has in use, is divided among the others in proportion to their requests, to their
estimates where they request nothing. On a node without a report a pod has its estimate in use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resource_names import CPU, MEMORY
from engine.model.usage import NodeUsage
from engine.plugins.load_aware.estimation import Estimation, estimate_vector
from engine.view import IntColumn

RESOURCES: Final = (CPU, MEMORY)
"""Resources that load is known of."""

Load: TypeAlias = IntColumn
"""Base units by RESOURCES, shape (2,)."""

_ESTIMATION: Final = Estimation(known=RESOURCES, factors=((CPU, 85), (MEMORY, 70)))


def estimated_load(shape: PodShape) -> Load:
    """Return what a pod of this shape is expected to have in use: LoadAware's default estimate."""
    return np.array(estimate_vector(shape, _ESTIMATION), np.int64)


def loads_on_node(pods: Iterable[Pod], report: NodeUsage | None) -> Mapping[str, Load]:
    """Return the load of the pods of one node, by `namespace/name`.

    Args:
        pods: all pods of the node.
        report: the usage of the node, None where there is none.
    """
    listed = list(pods)
    if report is None or report.usage is None:
        return {pod.key: estimated_load(pod.shape) for pod in listed}
    measured = {
        pod.key: _vector(usage.amounts)
        for pod in listed
        if (usage := report.pods.get(pod.key)) is not None
    }
    others = [pod for pod in listed if pod.key not in measured]
    if not others:
        return measured
    left = _vector(report.usage) - _vector(report.system_usage) - sum(measured.values())
    weights = np.array([_weight(pod.shape) for pod in others], np.int64)
    totals = np.maximum(weights.sum(axis=0), 1)
    shares = weights * (np.maximum(left, 0) / totals)
    return {
        **measured,
        **{pod.key: load for pod, load in zip(others, shares.astype(np.int64), strict=True)},
    }


def base_load(report: NodeUsage | None, moved: Iterable[Load]) -> Load:
    """Return what a node has in use without some of its pods; never negative."""
    whole = np.zeros(len(RESOURCES), np.int64)
    if report is not None and report.usage is not None:
        whole = _vector(report.usage)
    for load in moved:
        whole = whole - load
    return np.maximum(whole, 0)


def _weight(shape: PodShape) -> tuple[int, ...]:
    estimated = estimate_vector(shape, _ESTIMATION)
    requested = [shape.requests.get(name, 0) for name in RESOURCES]
    return tuple([own or guess for own, guess in zip(requested, estimated, strict=True)])


def _vector(amounts: Mapping[str, int]) -> Load:
    return np.array([amounts.get(name, 0) for name in RESOURCES], np.int64)
