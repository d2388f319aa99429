from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.elastic_quota import ElasticQuota
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodUsage
from engine.plugins.load_aware.estimation import LoadProfile
from engine.view import ClusterState, ClusterView
from tests.engine.measured_cluster import NOW, node, report
from tests.engine.view.objects import GPU, PROFILES, QUOTA_GROUP, SCHEDULED, TEMPLATES, a_pod, quota
from tests.engine.view_facts import facts

NAMESPACES = st.sampled_from(["default", "batch"])
MODES = ("", "Audit", "Off")
NODES = st.sampled_from(["a", "b", "c", "d"])
PODS = st.sampled_from(["p", "q", "r", "s", "t"])
ADVICE = st.builds(
    Advice, nodes=st.lists(NODES, max_size=3).map(tuple), id=st.sampled_from(["", "1", "2", "3"])
)
ASSUMED_SECONDS, IN_FLIGHT_SECONDS = 9, 4


def place_of(one_pod: Pod) -> tuple[str, bool]:
    """Return the node a pod is bound to, and whether it may be assumed on one."""
    may_be_assumed = not one_pod.node_name and not one_pod.gated
    advice = msgspec.json.decode(one_pod.annotations.get(ADVICE_ANNOTATION, "{}"), type=Advice)
    return one_pod.node_name, may_be_assumed and bool(advice.nodes)


def used(cpu: int, pods: Mapping[str, int] | None = None, *, on: str = "a") -> NodeUsage:
    by_name = {
        name: PodUsage({"cpu": amount}, is_prod=True) for name, amount in (pods or {}).items()
    }
    return report(on, {"cpu": cpu}, pods=by_name)


class AnyOrderOfEvents(RuleBasedStateMachine):
    """Events in any order; beside the state a plain record of the objects that are left."""

    def __init__(self) -> None:
        super().__init__()
        self.state = self._empty()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, tuple[Pod, Micros]] = {}  # and since when each is where it is
        self.in_flight: dict[str, tuple[Pod, Advice, Micros]] = {}  # and since when each is so
        self.released_at = Micros(0)
        self.usages: dict[str, NodeUsage] = {}
        self.quotas: dict[tuple[str, str], ElasticQuota] = {}
        self.labels: dict[str, dict[str, str]] = {}
        self.modes: dict[str, str] = {}
        self.profiles: tuple[LoadProfile, ...] = ()
        self.views: list[tuple[ClusterView, dict[str, object]]] = []
        self.most_names = 0
        self.now = NOW
        self.preparing: Iterator[None] = iter(())

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
        advice=ADVICE | st.none(),
        gated=st.sampled_from((False, False, True)),
    )
    def set_pod(self, *, phase: str, **parts: Any) -> None:  # noqa: ANN401 (parts of a pod)
        new = msgspec.structs.replace(a_pod(**parts), phase=phase)
        self.now = Micros(self.now + SECOND)
        old, since = self.pods.pop(new.key, (None, self.now))
        if old is None or place_of(old) != place_of(new):
            since = self.now
        if old is None and parts["advice"] is not None:
            self.in_flight.pop(parts["advice"].id, None)
        if not new.is_terminal:
            if new.node_name and new.scheduled_at is not None:
                since = new.scheduled_at
            self.pods[new.key] = new, since
        self.state.set_pod(new, seen_at=self.now)

    @rule(name=PODS, namespace=NAMESPACES)
    def delete_pod(self, name: str, namespace: str) -> None:
        self.pods.pop(f"{namespace}/{name}", None)
        self.state.delete_pod(f"{namespace}/{name}")

    @rule(advice=ADVICE, template=st.sampled_from(TEMPLATES), gated=st.booleans())
    def assume(self, advice: Advice, template: dict[str, Any], *, gated: bool) -> None:
        self.now = Micros(self.now + SECOND)
        new = a_pod("", template=template, gated=gated)
        if advice.id and advice.nodes and not gated:
            self.in_flight[advice.id] = new, advice, self.now
        self.state.assume(new, advice, at=self.now)

    @rule()
    def release_assumed(self) -> None:
        self.released_at = self.now
        self.state.release_assumed(self.now)
        for advice_id, (_, _, since) in tuple(self.in_flight.items()):
            if since + IN_FLIGHT_SECONDS * SECOND <= self.now:
                del self.in_flight[advice_id]

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

    @rule(name=NAMESPACES, tier=st.sampled_from(("gold", "silver")), mode=st.sampled_from(MODES))
    def set_namespace(self, name: str, tier: str, mode: str) -> None:
        self.labels[name], self.modes[name] = {"tier": tier}, mode
        self.state.set_namespace(name, self.labels[name], quota_mode=mode)

    @rule(name=NAMESPACES)
    def delete_namespace(self, name: str) -> None:
        self.labels.pop(name, None)
        self.state.delete_namespace(name)

    @rule(profiles=st.lists(st.sampled_from(PROFILES), unique=True))
    def track(self, profiles: list[LoadProfile]) -> None:
        self.profiles = tuple(profiles)
        self.state.track_sums(profiles)

    @rule(profiles=st.lists(st.sampled_from(PROFILES), unique=True))
    def prepare(self, profiles: list[LoadProfile]) -> None:
        self.preparing = self.state.prepare_sums(profiles)

    @rule()
    def prepare_more(self) -> None:
        next(self.preparing, None)

    @rule()
    def keep_a_view(self) -> None:
        view = self.state.view()
        self.views.append((view, facts(view)))

    @invariant()
    def count_names(self) -> None:
        on = {one_pod.node_name for one_pod, _ in self.pods.values()}
        spoken_of = (on | self.nodes.keys() | self.usages.keys()) - {""}
        self.most_names = max(self.most_names, len(spoken_of))

    def teardown(self) -> None:
        view = self.state.view()
        assert facts(view) == facts(self._rebuilt())
        assert len([*self.state.pods_containing("")]) == len(self.pods)
        for key, (one_pod, _) in self.pods.items():
            expected = (one_pod.node_name, one_pod.shape) if one_pod.node_name else None
            assert self.state.placement(key) == expected
        assert len(view) <= self.most_names + 1  # a pod that moves holds two rows for a moment
        for view, remembered in self.views:
            assert facts(view) == remembered

    def _rebuilt(self) -> ClusterView:
        """Return the view of the objects that are left, told in another order."""
        state = self._empty()
        for labelled, labels in self.labels.items():
            state.set_namespace(labelled, labels, quota_mode=self.modes[labelled])
        for one_quota in self.quotas.values():
            state.set_quota(one_quota)
        for usage in self.usages.values():
            state.set_usage(usage)
        for one_pod, since in reversed(self.pods.values()):
            state.set_pod(one_pod, seen_at=since)
        for a_pod_in_flight, advice, since in reversed(self.in_flight.values()):
            state.assume(a_pod_in_flight, advice, at=since)  # after the pods: they would end it
        for one_node in reversed(self.nodes.values()):
            state.set_node(one_node)
        state.track_sums(self.profiles)
        state.release_assumed(self.released_at)
        return state.view()

    @staticmethod
    def _empty() -> ClusterState:
        return ClusterState(assumed_seconds=ASSUMED_SECONDS, in_flight_seconds=IN_FLIGHT_SECONDS)


AnyOrderOfEvents.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestAnyOrderOfEventsGivesTheViewOfWhatIsLeft = AnyOrderOfEvents.TestCase
