from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from engine.model.elastic_quota import ElasticQuota
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodUsage
from engine.view import ClusterState, ClusterView, Domain, IntColumn, LoadProfile, Sum
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago

GPU = "example.com/gpu"
PROFILES = (
    LoadProfile(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70))),
    LoadProfile(known=("cpu",), factors=(("cpu", 100),), seconds_after_scheduled=30),
)

# What differs between pods in the ways that the sums tell apart.
TEMPLATES: tuple[dict[str, Any], ...] = (
    {},
    {"requests": {"cpu": "500m"}},
    {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    {"limits": {GPU: "1"}},
    {"limits": {"cpu": "1", "unscoped": "3"}, "priority": 5500},
    {"overhead": {"cpu": "10m"}, "initContainers": [{"resources": {"limits": {"memory": "2Gi"}}}]},
)

NAMESPACES = st.sampled_from(["shop", "batch"])
NODES = st.sampled_from(["a", "b", "c", "d"])
PODS = st.sampled_from(["p", "q", "r", "s", "t"])
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T00:00:00Z"}


def shop_pod(name: str = "p", on: str = "", namespace: str = "shop", **more: Any) -> Pod:  # noqa: ANN401 (any part of a pod)
    return pod(name, on, metadata={"namespace": namespace}, **more)


def quota(namespace: str, name: str, cpu: int = 4_000) -> ElasticQuota:
    return ElasticQuota(
        namespace=namespace,
        name=name,
        group="scheduling.x-k8s.io",
        min=None,
        max={"cpu": cpu},
        used={},
    )


def used(cpu: int, pods: Mapping[str, int] | None = None, *, on: str = "a") -> NodeUsage:
    by_name = {name: PodUsage({"cpu": amount}, is_prod=True) for name, amount in (pods or {}).items()}
    return report(on, {"cpu": cpu}, pods=by_name)


def facts(view: ClusterView) -> dict[str, object]:
    """Return all that a view says, without the order of its rows and without zeros."""
    return {
        "nodes": {name: _node_facts(view, row) for name, row in view.rows.items()},
        "requests": {
            namespace: _positive(amounts) for namespace, amounts in view.namespace_requests.items()
        },
        "quotas": dict(view.quotas),
        "labels": dict(view.namespace_labels),
    }


def _node_facts(view: ClusterView, row: int) -> dict[str, object]:
    return {
        "node": view.nodes[row],
        "usage": view.usages[row],
        "valid": bool(view.valid[row]),
        "unschedulable": bool(view.unschedulable[row]),
        "allocatable": _amounts(view, view.allocatable, row),
        "sums": {one: _amounts(view, view.sums[one], row) for one in Sum},
        "metric_time": int(view.metric_time[row]),
        "load": {
            profile: {one.name: getattr(sums, one.name)[:, row].tolist() for one in fields(sums)}
            for profile, sums in view.load.items()
        },
    }


def _amounts(view: ClusterView, matrix: IntColumn, row: int) -> Amounts:
    return _positive(dict(zip(view.axis.names, matrix[:, row].tolist(), strict=True)))


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


class AnyOrderOfEvents(RuleBasedStateMachine):
    """Events in any order; beside the state a plain record of the objects that are left."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ClusterState()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[Pod, Micros]] = {}  # and since when each is where it is
        self.usages: dict[str, NodeUsage] = {}
        self.quotas: dict[tuple[str, str], ElasticQuota] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.profiles: tuple[LoadProfile, ...] = ()
        self.kept: list[tuple[ClusterView, dict[str, object]]] = []
        self.most_names = 0
        self.now = NOW

    @rule(name=NODES, cpu=st.integers(1, 3), has_gpu=st.booleans(), cordoned=st.booleans())
    def set_node(self, *, name: str, cpu: int, has_gpu: bool, cordoned: bool) -> None:
        devices = {GPU: "1"} if has_gpu else {}
        made = replace(node(name, cpu=str(cpu), memory="8Gi", **devices), unschedulable=cordoned)
        self.nodes[name] = made
        self.state.set_node(made)

    @rule(name=NODES)
    def delete_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.state.delete_node(name)

    @rule(
        name=PODS,
        namespace=NAMESPACES,
        on=NODES | st.just(""),
        template=st.sampled_from(TEMPLATES),
        conditions=st.sampled_from(([], [SCHEDULED])),
        phase=st.sampled_from(("Running", "Running", "Failed")),
    )
    def set_pod(self, *, phase: str, **parts: Any) -> None:  # noqa: ANN401 (parts of a pod)
        self._set_pod(msgspec.structs.replace(_pod(**parts), phase=phase))

    def _set_pod(self, new: Pod) -> None:
        self.now = Micros(self.now + SECOND)
        old, since = self.pods.pop(new.key, (None, self.now))
        if old is None or old.node_name != new.node_name:
            since = self.now
        if not new.is_terminal:
            self.pods[new.key] = new, since if new.scheduled_at is None else new.scheduled_at
        self.state.set_pod(new, seen_at=self.now)
        self.most_names = max(self.most_names, len(self.names()))

    @rule(name=PODS, namespace=NAMESPACES)
    def delete_pod(self, name: str, namespace: str) -> None:
        self.pods.pop(f"{namespace}/{name}", None)
        self.state.delete_pod(f"{namespace}/{name}")

    @rule(name=NODES, cpu=st.integers(0, 3), pods=st.dictionaries(PODS, st.integers(1, 2000)))
    def set_usage(self, name: str, cpu: int, pods: dict[str, int]) -> None:
        self.usages[name] = used(cpu, pods, on=name)
        self.state.set_usage(self.usages[name])

    @rule(name=NODES)
    def delete_usage(self, name: str) -> None:
        self.usages.pop(name, None)
        self.state.delete_usage(name)

    @rule(namespace=NAMESPACES, name=st.sampled_from("xy"), cpu=st.integers(1, 3))
    def set_quota(self, namespace: str, name: str, cpu: int) -> None:
        self.quotas[namespace, name] = quota(namespace, name, cpu)
        self.state.set_quota(self.quotas[namespace, name])

    @rule(namespace=NAMESPACES, name=st.sampled_from("xy"))
    def delete_quota(self, namespace: str, name: str) -> None:
        self.quotas.pop((namespace, name), None)
        self.state.delete_quota(namespace, name, QUOTA_GROUP)

    @rule(name=NAMESPACES, tier=st.sampled_from(("gold", "silver")))
    def set_namespace(self, name: str, tier: str) -> None:
        self.labels[name] = {"tier": tier}
        self.state.set_namespace(name, self.labels[name])

    @rule(name=NAMESPACES)
    def delete_namespace(self, name: str) -> None:
        self.labels.pop(name, None)
        self.state.delete_namespace(name)

    @rule(profiles=st.lists(st.sampled_from(PROFILES), unique=True))
    def track(self, profiles: list[LoadProfile]) -> None:
        self.profiles = tuple(profiles)
        self.state.track(profiles)

    @rule()
    def keep_a_view(self) -> None:
        view = self.state.view()
        self.kept.append((view, facts(view)))

    @rule(on=NODES, template=st.sampled_from(TEMPLATES))
    def keep_a_what_if(self, on: str, template: dict[str, Any]) -> None:
        view = self.state.view()
        if on in view.rows:
            what_if = view.after(_pod("new", "shop", "", template), on)
            self.kept.append((what_if, facts(what_if)))

    def names(self) -> set[str]:
        """Return the names that some object speaks of."""
        on = {pod.node_name for pod, _ in self.pods.values()}
        return (on | self.nodes.keys() | self.usages.keys()) - {""}

    @invariant()
    def rows_are_used_again(self) -> None:
        self.most_names = max(self.most_names, len(self.names()))
        # A pod that moves holds two rows for a moment.
        assert len(self.state.view()) <= self.most_names + 1

    def teardown(self) -> None:
        assert facts(self.state.view()) == facts(self._rebuilt())
        for view, remembered in self.kept:
            assert facts(view) == remembered

    def _rebuilt(self) -> ClusterView:
        """Return the view of the objects that are left, told in another order."""
        state = ClusterState()
        for labelled, labels in self.labels.items():
            state.set_namespace(labelled, labels)
        for one_quota in self.quotas.values():
            state.set_quota(one_quota)
        for usage in self.usages.values():
            state.set_usage(usage)
        for one_pod, since in reversed(self.pods.values()):
            state.set_pod(one_pod, seen_at=since)
        for one_node in reversed(self.nodes.values()):
            state.set_node(one_node)
        state.track(self.profiles)
        return state.view()


def _pod(
    name: str, namespace: str, on: str, template: dict[str, Any], conditions: Any = ()  # noqa: ANN401
) -> Pod:
    metadata = {"name": name, "namespace": namespace}
    return pod(name, on, metadata=metadata, conditions=conditions, **template)


AnyOrderOfEvents.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_any_order_of_events_gives_the_view_of_what_is_left = AnyOrderOfEvents.TestCase
