from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.view import ClusterState, ClusterView

PHASES = st.sampled_from(["", "Pending", "Running", "Unknown", "Succeeded"])
EVENTS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from("ab"),
            st.sampled_from("pqr"),
            st.sampled_from(["1", "250m"]),
            st.sampled_from(["", "node-a", "node-b"]),
            PHASES,
        ),
        st.tuples(st.sampled_from("ab"), st.sampled_from("pqr")),
    ),
    max_size=30,
)


def pod(namespace: str, name: str, cpu: str, node: str, phase: str) -> Pod:
    wire: dict[str, Any] = {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "nodeName": node,
            "overhead": {"cpu": "10m"},
            "containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }
    return pod_of(msgspec.convert(wire, api.Pod))


def counts(view: ClusterView) -> tuple[dict[str, dict[str, int]], ...]:
    each = (view.namespaces.requested, view.namespaces.scheduled, view.namespaces.running)
    return tuple(
        {
            namespace: {name: n for name, n in amounts.items() if n}
            for namespace, amounts in totals.items()
        }
        for totals in each
    )


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
    for a_pod in pods:
        own, bare = Counter(a_pod.shape.requests), Counter(a_pod.shape.bare_requests)
        own["pods"] = bare["pods"] = 1
        requested.setdefault(a_pod.namespace, Counter()).update(own)
        if a_pod.node_name and a_pod.phase in {"", "Pending", "Running"}:
            scheduled.setdefault(a_pod.namespace, Counter()).update(own)
        if a_pod.node_name and a_pod.phase == "Running":
            running.setdefault(a_pod.namespace, Counter()).update(bare)
    return tuple(
        {namespace: dict(counted) for namespace, counted in totals.items()}
        for totals in (requested, scheduled, running)
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
