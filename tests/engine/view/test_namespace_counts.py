from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model import api
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod import Pod, pod_of
from engine.model.time import SECOND, Micros
from engine.view import ClusterState, ClusterView

PHASES = st.sampled_from(["", "Pending", "Running", "Unknown", "Succeeded"])
HOLDS = st.sampled_from(["", "placement", "quota", "placement,quota", "quotas"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from("pqr"),
            st.sampled_from(["1", "250m"]),
            st.sampled_from(["", "node-a", "node-b"]),
            PHASES,
            HOLDS,
        ),
        st.tuples(st.sampled_from("ab"), st.sampled_from("pqr")),
    ),
    max_size=30,
)


def pod(namespace: str, name: str, cpu: str, node: str, phase: str, hold: str = "") -> Pod:
    wire: dict[str, Any] = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "nodeName": node,
            "overhead": {"cpu": "10m"},
            "containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }
    if hold and not node:
        wire["metadata"]["annotations"] = {HOLD_REASONS_ANNOTATION: hold}
        wire["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
    return pod_of(msgspec.convert(wire, api.Pod))


def counts(view: ClusterView) -> tuple[dict[str, dict[str, int]], ...]:
    facts = view.namespaces
    each = (facts.requested, facts.scheduled, facts.running, facts.queued)
    sums = {
        namespace: dict(sum((_times(items, n) for items, n in counts.items()), Counter[str]()))
        for namespace, counts in facts.queued_pods.items()
    }
    return tuple(
        {
            namespace: {name: n for name, n in amounts.items() if n}
            for namespace, amounts in totals.items()
        }
        for totals in (*each, sums)
    )


def _times(requests: tuple[tuple[str, int], ...], count: int) -> Counter[str]:
    return Counter({name: count * amount for name, amount in requests})


def summed(state: ClusterState) -> tuple[dict[str, dict[str, int]], ...]:
    """Return the totals of requested and scheduled, as the sums of what each pod adds."""
    totals: list[dict[str, Counter[str]]] = []
    for scheduled in (False, True):
        total: dict[str, Counter[str]] = {}
        for namespace, name in product("ab", "pqr"):
            if added := state.requests(f"{namespace}/{name}", scheduled=scheduled):
                total.setdefault(namespace, Counter()).update(added)
        totals.append(total)
    return tuple({space: dict(total) for space, total in each.items()} for each in totals)


def recounted(pods: list[Pod]) -> tuple[dict[str, dict[str, int]], ...]:
    requested: dict[str, Counter[str]] = {}
    scheduled: dict[str, Counter[str]] = {}
    running: dict[str, Counter[str]] = {}
    queued: dict[str, Counter[str]] = {}
    for a_pod in pods:
        own, bare = Counter(a_pod.shape.requests), Counter(a_pod.shape.bare_requests)
        own["pods"] = bare["pods"] = 1
        if a_pod.is_queued:
            queued.setdefault(a_pod.namespace, Counter()).update(own)
            continue
        requested.setdefault(a_pod.namespace, Counter()).update(own)
        if a_pod.node_name and a_pod.phase in {"", "Pending", "Running"}:
            scheduled.setdefault(a_pod.namespace, Counter()).update(own)
        if a_pod.node_name and a_pod.phase == "Running":
            running.setdefault(a_pod.namespace, Counter()).update(bare)
    return tuple(
        {namespace: dict(counted) for namespace, counted in totals.items()}
        for totals in (requested, scheduled, running, queued, queued)
    )


@given(events=EVENTS, hold=st.booleans())
@settings(max_examples=100)
def test_what_namespaces_hold_is_always_what_a_recount_gives(
    *, events: list[tuple[str, ...]], hold: bool
) -> None:
    state = ClusterState()
    pods: dict[str, Pod] = {}
    held: list[tuple[ClusterView, object]] = []
    for event in events:
        key = f"{event[0]}/{event[1]}"
        pods.pop(key, None)
        if len(event) == 2:
            state.delete_pod(key)
        else:
            new = pod(*event)
            state.set_pod(new, seen_at=Micros(0))
            if not new.is_terminal:
                pods[key] = new
        view = state.view()
        assert counts(view) == recounted(list(pods.values()))
        assert summed(state) == counts(view)[:2]
        if hold:
            held.append((view, counts(view)))
    for view, then in held:
        assert counts(view) == then


DELETED = st.tuples(
    st.sampled_from("pqr"), st.none() | st.integers(1, 9), st.sampled_from(["", "n"])
)


@given(events=st.lists(DELETED | st.sampled_from("pqr") | st.just(1), max_size=20))
@settings(max_examples=100)
def test_no_namespace_is_charged_for_a_pod_that_should_be_gone(
    events: list[tuple[str, int | None, str] | str | int],
) -> None:
    state, now, pods = ClusterState(), 0, dict[str, Pod]()
    for event in events:
        if isinstance(event, int):  # a second passes
            now += event
            state.release_assumed(Micros(now))
        elif isinstance(event, str):
            state.delete_pod(f"a/{event}")
            pods.pop(event, None)
        else:
            name, gone_by, node = event
            made = pod("a", name, "1", node, "Running" if node else "Pending")
            moment = None if gone_by is None else Micros(gone_by)
            pods[name] = msgspec.structs.replace(made, gone_by=moment)
            state.set_pod(pods[name], seen_at=Micros(now))
        charged = [each for each in pods.values() if each.gone_by is None or each.gone_by > now]
        assert counts(state.view()) == recounted(charged)
        assert summed(state) == counts(state.view())[:2]
        # Until it is gone the scheduler counts it on its node, and so do we.
        bound = sum(bool(each.node_name) for each in pods.values())
        assert len(state.pods_on("n")) == bound


def test_a_pod_that_is_deleted_is_charged_for_its_grace_period_once_more() -> None:
    # deletionTimestamp is the end of the grace period, which is counted again: 12:00:00 + 30 s.
    made = {
        "namespace": "a",
        "name": "p",
        "deletionTimestamp": "2026-01-05T12:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    noon = 1_767_614_400
    leaving = pod_of(msgspec.convert({"metadata": made, "spec": {"nodeName": "n"}}, api.Pod))
    assert leaving.gone_by == (noon + 30) * SECOND
    state = ClusterState()
    state.set_pod(leaving, seen_at=Micros(noon * SECOND))
    for seconds, charged in ((29, {"a": {"pods": 1}}), (30, {})):
        state.release_assumed(Micros((noon + seconds) * SECOND))
        assert state.view().namespaces.requested == charged


def test_a_grace_period_that_overflows_is_not_believed() -> None:
    # 9,223,372,037 s are more nanoseconds than an int64 has: the API server's sum is in 1733.
    made = {
        "namespace": "a",
        "name": "p",
        "creationTimestamp": "2026-01-05T11:00:00Z",
        "deletionTimestamp": "1733-09-26T12:12:43Z",
        "deletionGracePeriodSeconds": 9_223_372_037,
    }
    leaving = pod_of(msgspec.convert({"metadata": made, "spec": {"nodeName": "n"}}, api.Pod))
    assert leaving.deleting
    assert leaving.gone_by is None


def test_a_queued_pod_counts_once_its_gate_is_gone_or_its_reason() -> None:
    state = ClusterState()
    state.set_pod(pod("a", "p", "1", "", "Pending", "quota"), seen_at=Micros(0))
    queued = {"a": {"cpu": 1010, "pods": 1}}
    assert (state.view().namespaces.requested, state.view().namespaces.queued) == ({}, queued)
    assert (state.requests("a/p"), state.pod_requests("a/p")) == ({}, queued["a"])
    for hold in ("placement", ""):
        state.set_pod(pod("a", "p", "1", "", "Pending", hold), seen_at=Micros(0))
        assert (state.view().namespaces.requested, state.view().namespaces.queued) == (queued, {})
        assert state.requests("a/p") == queued["a"]


def test_a_queued_pod_stays_queued_while_it_is_nominated() -> None:
    state = ClusterState()
    queued = pod("a", "p", "1", "", "Pending", "quota")
    state.set_pod(queued, seen_at=Micros(0))
    state.nominate("a/p", "node-a")
    state.set_pod(queued, seen_at=Micros(0))
    state.nominate("a/p", "")
    assert state.view().namespaces.queued == {"a": {"cpu": 1010, "pods": 1}}
    assert state.view().namespaces.requested == {}


def test_a_queued_pod_that_others_keep_too_claims_nothing_but_counts() -> None:
    state = ClusterState()
    queued = pod("a", "p", "1", "", "Pending", "quota")
    kept = replace(queued, scheduling_gates=(HOLD_GATE, "example.com/other"))
    for _ in range(2):
        state.set_pod(kept, seen_at=Micros(0))
        facts = state.view().namespaces
        assert (facts.requested, facts.queued, facts.queued_pods) == ({}, {"a": {"pods": 1}}, {})
        assert state.requests("a/p") == {}
        state.set_pod(queued, seen_at=Micros(0))
        facts = state.view().namespaces
        assert facts.queued == {"a": {"cpu": 1010, "pods": 1}}
        assert list(facts.queued_pods) == ["a"]
    state.delete_pod("a/p")
    assert state.view().namespaces.queued == {}


def test_where_no_release_is_judged_queued_pods_count_as_used() -> None:
    state = ClusterState(leave_out_queued=False)
    state.set_pod(pod("a", "p", "1", "", "Pending", "quota"), seen_at=Micros(0))
    assert state.view().namespaces.requested == {"a": {"cpu": 1010, "pods": 1}}
    assert state.view().namespaces.queued == {}
