"""CrossNodePreemption: every set of pods of lower priority whose end makes room on their nodes."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING

import msgspec

from engine.eviction import (
    Candidate,
    Plan,
    Preemption,
    Situation,
    completed,
    plan_for_pod,
    running_pod_of,
)
from engine.eviction.nodes import CrossNodeSearch, Preemptor
from engine.eviction.quota_accounts import PossibleVictim
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod, pod_of
from engine.policy import PolicySet
from engine.view import ClusterState, counted_requests
from tests.builders import node_from
from tests.conformance.cluster import NOW
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.conformance.outcome import Stage


def _pod(written: Json) -> Pod:
    return pod_of(msgspec.convert(written, api.Pod), namespace="default")


def _candidates(case: Json, state: ClusterState) -> Iterator[Candidate]:
    for pod in map(_pod, case["pods"]):
        running, entry = running_pod_of(pod), state.entry(pod.key)
        if running is not None and entry is not None:
            yield Candidate(pod=running, entry=entry, quotas=())


def _preempt(case: Json, _: Json) -> str | None:
    """Compare all candidates; then check that the plan is one of them that spares most."""
    state = ClusterState()
    for node in case["nodes"]:
        state.set_node(node_from(node))
    for written in case["pods"]:
        state.set_pod(_pod(written), seen_at=NOW)
    request = PlacementRequest(pod=_pod(case["pod"]), raw=b"{}")
    situation = Situation(
        view=state.view(),
        policies=PolicySet(),
        candidates=list(_candidates(case, state)),
        accounts={},
        cohort_room={},
        lendable={},
        now=NOW,
    )
    found = list(_found(request, situation))
    expected = sorted(
        (node_name, sorted(each["victims"]))
        for node_name, each in case["expect"]["candidates"].items()
    )
    got = sorted((node_name, sorted(names)) for node_name, names in found)
    wrong = mismatch(expected, got)
    if wrong is not None:
        return wrong
    plan = completed(plan_for_pod(request, Preemption(()), situation))
    if not isinstance(plan, Plan):
        return f"no plan: {plan.message}"
    chosen = plan.node_name, sorted(victim.key.partition("/")[2] for victim in plan.victims)
    return None if chosen in got else f"the plan is no candidate: {chosen}"


def _found(request: PlacementRequest, situation: Situation) -> Iterator[tuple[str, list[str]]]:
    """Yield nodes that lose a pod of a set and would take the preemptor then, with the set."""
    search = CrossNodeSearch(Preemptor(request, situation, ()))
    lower = [
        PossibleVictim(
            pod=each.pod,
            entry=each.entry,
            quotas=(),
            pushed=(),
            requests=counted_requests(each.entry.shape),
        )
        for each in situation.candidates
        if each.pod.priority < request.pod.priority
    ]
    sets = chain.from_iterable(combinations(lower, size) for size in range(1, len(lower) + 1))
    for victims in sets:
        fits = search.fitting([victims])
        for row in sorted({each.entry.row for each in victims}):
            if fits[row]:
                yield (
                    situation.view.names[row],
                    [each.pod.key.partition("/")[2] for each in victims],
                )


STAGES: Mapping[str, Stage] = {"preempt": _preempt}
