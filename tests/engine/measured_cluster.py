"""Small clusters with limits and reports, written in as few words as a test needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodUsage, PodUsages
from engine.view import ClusterState
from tests.builders import node_from, pod_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine.view import ClusterView, IntColumn, PodSumProfile

NOW = Micros(1_700_000_000 * SECOND)
GI = 2**30

Amounts = dict[str, str]


def seconds_ago(seconds: int) -> Micros:
    """Return a moment before NOW."""
    return Micros(NOW - seconds * SECOND)


def node(name: str, annotations: Mapping[str, str] | None = None, /, **allocatable: str) -> Node:
    """Return a node that offers these amounts."""
    metadata = {"name": name, "annotations": dict(annotations or {})}
    wire = {"metadata": metadata, "status": {"allocatable": allocatable}}
    return node_from(wire)


def pod(
    name: str = "incoming",
    on: str = "",
    *,
    limits: Amounts | None = None,
    requests: Amounts | None = None,
    metadata: Mapping[str, Any] | None = None,
    conditions: Sequence[Mapping[str, str]] = (),
    **spec: Any,  # noqa: ANN401 (any part of a pod's spec)
) -> Pod:
    """Return a pod of one container, unless `spec` says otherwise."""
    resources = {"limits": limits or {}, "requests": requests or {}}
    wire = {
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"nodeName": on, "containers": [{"resources": resources}], **spec},
        "status": {"conditions": list(conditions)},
    }
    return pod_from(wire)


def report(
    on: str,
    usage: Mapping[str, int] | None,
    *,
    age: int | None = 0,
    pods: Mapping[str, PodUsage] | None = None,
    **more: Any,  # noqa: ANN401 (any further field of a report)
) -> NodeUsage:
    """Return a report of so many seconds ago, None for one that does not say; pods by name."""
    by_key = {f"default/{name}": one for name, one in (pods or {}).items()}
    return NodeUsage(
        node_name=on,
        update_time=None if age is None else seconds_ago(age),
        usage=usage,
        pods=PodUsages(by_key),
        **more,
    )


def cluster(
    nodes: Iterable[Node],
    pods: Iterable[Pod] = (),
    reports: Iterable[NodeUsage] = (),
    profiles: Sequence[PodSumProfile] = (),
) -> ClusterView:
    """Return the view of these objects; pods are first seen an hour ago."""
    state = ClusterState()
    state.track_sums(profiles)
    for one in nodes:
        state.set_node(one)
    for one_pod in pods:
        state.set_pod(one_pod, seen_at=seconds_ago(3600))
    for one_report in reports:
        state.set_usage(one_report)
    return state.view()


def by_node(view: ClusterView, values: IntColumn) -> dict[str, int]:
    """Return a column by node name."""
    return dict(zip(view.names, values.tolist(), strict=True))
