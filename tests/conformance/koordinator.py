"""The cluster, the pod and the outcome of a Koordinator case, by way of the events of a cluster."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from engine.model import api
from engine.model.pod import Pod
from engine.model.time import Micros, micros
from engine.model.usage import usage_of_node_metric
from engine.plugins.base import FAULT, PASS, Cycle
from engine.view import ClusterState
from tests.builders import node_from, pod_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.plugins.base import Filter
    from engine.view import ClusterView, IntColumn, PodSumProfile
    from tests.conformance.outcome import Json


def cluster_of(case: Json, profiles: Sequence[PodSumProfile] = ()) -> ClusterView:
    """Return the view of a case's nodes, pods and reports that keeps the sums of `profiles`."""
    state = ClusterState()
    state.track_sums(profiles)
    for node in case.get("nodes", ()):
        state.set_node(node_from(node))
    assumed_at = {key: moment(text) for key, text in case.get("assumed_at", {}).items()}
    for pod in pods_of(case):
        state.set_pod(pod, seen_at=assumed_at.get(pod.key, now_of(case)))
    for metric in case.get("node_metrics", ()):
        state.set_usage(usage_of_node_metric(msgspec.convert(metric, api.NodeMetric)))
    return state.view()


def pods_of(case: Json) -> Iterator[Pod]:
    """Yield the pods that exist, copies under names of their own."""
    for pod in case.get("pods", ()):
        yield _pod(pod)
    for repeat in case.get("pods_repeat", ()):
        metadata = repeat["pod"]["metadata"]
        for i in range(repeat["count"]):
            yield _pod(repeat["pod"] | {"metadata": metadata | {"name": f"{metadata['name']}-{i}"}})


def incoming(case: Json) -> Pod:
    """Return the pod that a case asks about."""
    return _pod(case["pod"])


def now_of(case: Json) -> Micros:
    """Return the moment of a case."""
    return moment(case["now"]) if case.get("now") else Micros(0)


def moment(text: str) -> Micros:
    """Return a time as written in JSON."""
    return micros(msgspec.convert(text, datetime))


def outcome_of_filter(rule: Filter, case: Json, view: ClusterView) -> dict[str, str]:
    """Return what a filter says of each node, in the words of the cases."""
    cycle = Cycle(incoming(case), view, now_of(case))
    codes = rule.filter(cycle).codes.tolist()
    words = {PASS: "pass", FAULT: "error"}
    return {
        name: words.get(code) or ", ".join(rule.reasons(code, cycle))
        for name, code in zip(view.names, codes, strict=True)
        if view.valid[view.rows[name]]
    }


def by_node(view: ClusterView, values: IntColumn) -> dict[str, int]:
    """Return a column by node name."""
    return dict(zip(view.names, values.tolist(), strict=True))


def _pod(written: Json) -> Pod:
    return pod_from(written)
