"""Lists of pods: those that a reader looks for, and those on a node."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from typing import Final

import msgspec

from engine.report.decision import PodName
from engine.report.nodes import NodesReport
from engine.view import ClusterState

_MOST_LISTED: Final = 1_000


class FoundPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod in a list; `node` is where it counts, "" for nowhere."""

    pod: PodName
    node: str


class PodsReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods that a reader looks for.

    Attributes:
        total: how many there are.
        pods: the first of them by namespace and name.
        namespaces: of the whole cluster, to choose from.
    """

    total: int
    pods: tuple[FoundPod, ...]
    namespaces: tuple[str, ...]


class PodOnNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that counts on a node; amounts in base units.

    Attributes:
        is_expected: whether it is only advised or nominated, not bound.
        usage: as its node reported it; None where it does not say.
    """

    pod: PodName
    is_expected: bool
    requests: Mapping[str, int]
    limits: Mapping[str, int]
    usage: Mapping[str, int] | None


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node with its pods, by namespace and name.

    Attributes:
        name: of the node.
        nodes: it among all nodes.
    """

    name: str
    nodes: NodesReport
    pods: tuple[PodOnNode, ...]


def pods_report(state: ClusterState, namespace: str, text: str) -> PodsReport:
    """Return the pods of a namespace, "" for all, whose name contains a text; the first 1,000."""
    found = [
        (*key.split("/", 1), node)
        for key, node in state.pods_containing(text)
        if (key.startswith(f"{namespace}/") if namespace else True)
        and text in key.partition("/")[2]
    ]
    return PodsReport(
        total=len(found),
        pods=tuple(
            FoundPod(pod=PodName(of, name), node=node)
            for of, name, node in nsmallest(_MOST_LISTED, found)
        ),
        namespaces=tuple(sorted(state.view().namespaces.labels)),
    )


def node_report(state: ClusterState, nodes: NodesReport, name: str) -> NodeReport | None:
    """Return a node with its pods; None where there is no such node.

    Args:
        state: the cluster.
        nodes: all nodes.
        name: of the node.
    """
    if name not in nodes.names:
        return None
    usage = state.usage(name)
    measured = {} if usage is None else usage.pods
    return NodeReport(
        name=name,
        nodes=nodes,
        pods=tuple(
            PodOnNode(
                pod=PodName(*key.split("/", 1)),
                is_expected=entry.assumed,
                requests=entry.shape.requests,
                limits=entry.shape.limits,
                usage=None if (of_pod := measured.get(key)) is None else of_pod.amounts,
            )
            for key, entry in sorted(state.pods_on(name), key=lambda each: each[0])
        ),
    )
