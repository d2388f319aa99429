from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.model.elastic_quota import ElasticQuota
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodUsage
from engine.plugins.load_aware.sums import LoadProfile, LoadSums
from engine.view import ClusterState, ClusterView, Domain, Sum
from engine.view.shape_contributions import MOST_RESOURCES
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago
from tests.engine.view_facts import facts

GPU = "example.com/gpu"
QUOTA_GROUP = "scheduling.x-k8s.io"
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

NAMESPACES = st.sampled_from(["default", "batch"])
MODES = ("", "Audit", "Off")
NODES = st.sampled_from(["a", "b", "c", "d"])
PODS = st.sampled_from(["p", "q", "r", "s", "t"])
ADVICE = st.builds(
    Advice, nodes=st.lists(NODES, max_size=3).map(tuple), id=st.sampled_from(["", "1", "2", "3"])
)
ASSUMED_SECONDS, IN_FLIGHT_SECONDS = 9, 4
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T00:00:00Z"}


def a_pod(
    name: str = "p",
    on: str = "",
    *,
    namespace: str = "default",
    template: Mapping[str, Any] = TEMPLATES[1],
    conditions: Sequence[Mapping[str, str]] = (),
    advice: Advice | None = None,
    gated: bool = False,
) -> Pod:
    annotations = {ADVICE_ANNOTATION: msgspec.json.encode(advice).decode()} if advice else {}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    gates = [{"name": "hold"}] if gated else []
    return pod(
        name, on, metadata=metadata, conditions=conditions, schedulingGates=gates, **template
    )


def place_of(one_pod: Pod) -> tuple[str, bool]:
    """Return the node a pod is bound to, and whether it may be assumed on one."""
    may_be_assumed = not one_pod.node_name and not one_pod.gated
    advice = msgspec.json.decode(one_pod.annotations.get(ADVICE_ANNOTATION, "{}"), type=Advice)
    return one_pod.node_name, may_be_assumed and bool(advice.nodes)


def quota(namespace: str, name: str, cpu: int = 4_000, group: str = QUOTA_GROUP) -> ElasticQuota:
    return ElasticQuota(
        namespace=namespace, name=name, group=group, min=None, max={"cpu": cpu}, used={}
    )


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
        assert self.state.pod_count == len(self.pods)
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


def test_a_view_is_made_once_per_version() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    assert state.view() is state.view()


def test_a_heartbeat_of_a_node_is_no_event() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    before = state.view().version
    state.set_node(node("a", cpu="4"))
    assert state.view().version == before


def test_an_update_of_a_pod_that_changes_nothing_counted_is_no_event() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a"), seen_at=NOW)
    before = state.view().version
    state.set_pod(a_pod("p", "a"), seen_at=Micros(NOW + SECOND))
    assert state.view().version == before


def test_only_rows_that_an_event_speaks_of_are_out_of_date() -> None:
    state = ClusterState()
    for name in "abc":
        state.set_node(node(name, cpu="4"))
    before = state.view().version
    state.set_pod(a_pod("p", "b"), seen_at=NOW)
    view = state.view()
    assert view.changed_since(before, (Domain.PODS,)).tolist() == [view.rows["b"]]
    assert view.changed_since(before, (Domain.NODES, Domain.METRICS)).size == 0


def test_pods_may_be_known_before_their_node_and_outlive_it() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a"), seen_at=NOW)
    assert not state.view().valid[state.view().rows["a"]]
    state.set_node(node("a", cpu="4"))
    state.delete_node("a")
    view = state.view()
    # 500m, requested by the one pod that is left.
    assert not view.valid[view.rows["a"]]
    assert view.amount(view.sums[Sum.REQUESTS], "cpu")[view.rows["a"]] == 500
    state.delete_pod("default/p")
    assert "a" not in state.view().rows


def test_a_pod_that_finishes_gives_back_what_it_took() -> None:
    state = ClusterState()
    for name in ("p", "q"):
        state.set_pod(a_pod(name, "a"), seen_at=NOW)
    # 500m twice, and two pods.
    assert state.view().namespaces.requested == {"default": {"cpu": 1000, "pods": 2}}
    state.set_pod(msgspec.structs.replace(a_pod("p", "a"), phase="Succeeded"), seen_at=NOW)
    assert state.view().namespaces.requested == {"default": {"cpu": 500, "pods": 1}}
    assert state.pod_count == 1


def test_a_pending_pod_counts_for_its_namespace_and_no_node() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p"), seen_at=NOW)
    assert state.view().namespaces.requested == {"default": {"cpu": 500, "pods": 1}}
    assert not state.view().rows
    assert state.placement("default/p") is None


def test_a_bound_pod_is_found_by_its_name() -> None:
    state = ClusterState()
    bound = a_pod("p", "a")
    state.set_pod(bound, seen_at=NOW)
    assert state.placement("default/p") == ("a", bound.shape)
    assert state.placement("default/q") is None


def test_one_string_stands_for_a_pod_wherever_its_key_is_kept() -> None:
    state = ClusterState()
    first = "default/p"
    state.set_pod(a_pod(on="a"), seen_at=NOW)
    stored = state.pod_key(first)
    assert stored == first
    assert stored is not first
    state.set_pod(a_pod(on="b"), seen_at=NOW)
    assert state.pod_key(first) is stored
    assert state.pod_key("default/unknown") == "default/unknown"


def test_nodes_are_counted_without_a_view() -> None:
    state = ClusterState()
    state.set_node(node("a"))
    state.set_node(node("b"))
    state.set_pod(a_pod(on="c"), seen_at=NOW)
    state.delete_node("a")
    assert (state.node_count, state.version) == (1, state.view().version)
    assert state.node_count == int(state.view().valid.sum())


def test_a_pod_that_does_not_say_when_it_was_bound_was_so_when_first_seen_there() -> None:
    state = ClusterState()
    state.track_sums(PROFILES[:1])
    # Measured 30 s ago for the 60 s before: what was bound 90 s ago or earlier is measured in full.
    for name in "ab":
        measured = {"p": PodUsage({"cpu": 100}, is_prod=True)}
        state.set_usage(report(name, {"cpu": 100}, age=30, pods=measured))

    def delta(name: str) -> int:
        view = state.view()
        return int(LoadSums.of(view, PROFILES[0]).node_delta[0, view.rows[name]])

    state.set_pod(a_pod("p", "a"), seen_at=seconds_ago(600))
    assert delta("a") == 0
    state.set_pod(a_pod("p", "a"), seen_at=seconds_ago(10))
    assert delta("a") == 0
    # Moved 10 s ago: 85 % of 500m, less the 100m measured.
    state.set_pod(a_pod("p", "b"), seen_at=seconds_ago(10))
    assert delta("b") == 325
    # Now it says when it was bound: long before.
    state.set_pod(a_pod("p", "b", conditions=[SCHEDULED]), seen_at=seconds_ago(10))
    assert delta("b") == 0


def test_quotas_of_a_namespace_stand_in_name_order() -> None:
    state = ClusterState()
    for name in ("y", "x"):
        state.set_quota(quota("default", name))
    state.set_quota(quota("default", "x", group="scheduling.sigs.k8s.io"))
    names = [(quota.name, quota.group) for quota in state.view().namespaces.quotas["default"]]
    assert names == [
        ("x", "scheduling.sigs.k8s.io"),
        ("x", "scheduling.x-k8s.io"),
        ("y", "scheduling.x-k8s.io"),
    ]


def test_resources_get_a_place_when_they_are_first_named() -> None:
    state = ClusterState()
    state.set_node(node("a", cpu="4"))
    before = state.view()
    state.set_pod(a_pod("p", "a", template={"limits": {GPU: "2"}}), seen_at=NOW)
    assert before.axis.find(GPU) is None
    assert before.amount(before.sums[Sum.LIMITS], GPU).tolist() == [0]
    view = state.view()
    assert view.amount(view.sums[Sum.LIMITS], GPU).tolist() == [2]


def test_amounts_of_zero_get_no_place() -> None:
    state = ClusterState()
    state.set_pod(a_pod("p", "a", template={"limits": {GPU: "0"}}), seen_at=NOW)
    assert state.view().axis.find(GPU) is None


def test_pods_cannot_name_ever_more_resources() -> None:
    state = ClusterState()
    for i in range(50):
        named = {f"x.io/r{i}-{j}": "1" for j in range(10)}
        state.set_pod(a_pod(f"p{i}", "a", template={"limits": named}), seen_at=NOW)
    assert len(state.view().axis) == MOST_RESOURCES
    # What a node offers always has its place, and then counts what was there before.
    late = f"x.io/r{49}-{9}"
    state.set_node(node("a", cpu="4", **{late: "8"}))
    view = state.view()
    assert view.amount(view.sums[Sum.LIMITS], late).tolist() == [1]
    for i in range(50):
        state.delete_pod(f"default/p{i}")
    assert not state.view().sums.any()
