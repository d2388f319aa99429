"""Coscheduling: what lets the pods of a PodGroup start, and the phases of a PodGroup.

A pod that waits in upstream's scheduler is one that is held here: neither starts before its gang. A
pod that upstream has just found a node for is one that its gang has room for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from engine.gang import (
    GangBackoff,
    GangMember,
    GangStage,
    MemberPhase,
    MemberState,
    count_members,
    gang_key_of,
    gang_of,
    member_of,
    min_resources_gap,
    next_status,
    readiness_of,
)
from engine.model import api
from engine.model.gang import PodGroup, pod_group_of
from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod, pod_of
from engine.model.time import SECOND, Micros
from tests.conformance.cluster import NOW, cluster_of
from tests.conformance.outcome import Json, mismatch
from tests.conformance.stages import queuesort

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine.model.pod_shape import PodShape
    from engine.view import ClusterView
    from tests.conformance.outcome import Stage

_SUCCESS: Final = "Success"
_WAIT: Final = "Wait"
_REFUSED: Final = "UnschedulableAndUnresolvable"


def _pod(written: Json) -> Pod:
    """Return a pod of a case; one without any gate, and on no node, is held."""
    pod = pod_of(msgspec.convert(written, api.Pod), namespace="default")
    if pod.node_name or pod.scheduling_gates:
        return pod
    return msgspec.structs.replace(pod, scheduling_gates=(HOLD_GATE,))


def _pods(case: Json) -> list[Pod]:
    """Return the pods of a case, the incoming one last."""
    incoming = [case["pod"]] if "pod" in case else []
    return [_pod(written) for written in (*case.get("pods", ()), *incoming)]


def _members(pod: Pod, pods: list[Pod]) -> list[GangMember]:
    found = (member_of(each) for each in pods)
    return [each for each in found if each is not None and each.gang == gang_key_of(pod)]


def _running(pods: list[Pod], pod: Pod) -> Iterator[tuple[str, PodShape]]:
    key = gang_key_of(pod)
    for each in pods:
        if each.node_name and gang_key_of(each) == key:
            yield each.node_name, each.shape


def _prefilter_code(pod: Pod, pods: list[Pod], view: ClusterView, backoff: GangBackoff) -> str:
    gang = gang_of(pod, view)
    if gang is None:
        return _SUCCESS
    readiness = readiness_of(gang, count_members(_members(pod, pods)))
    waits = readiness.stage in {GangStage.GATHERING, GangStage.GATED}
    has_gap = min_resources_gap(gang, view, _running(pods, pod))
    return _REFUSED if waits or has_gap or backoff.refusal(gang.key, NOW) else _SUCCESS


def _prefilter(case: Json, _: Json) -> str | None:
    pods = _pods(case)
    code = _prefilter_code(pods[-1], pods, cluster_of(case), GangBackoff())
    return mismatch(case["expect"]["code"], code)


def _cluster_resource(case: Json, _: Json) -> str | None:
    view = cluster_of(case)
    (pod_group,) = view.all_of(PodGroup)
    return mismatch(case["expect"]["fits"], not min_resources_gap(pod_group.gang, view, ()))


def _permit_code(pod: Pod, pods: list[Pod], view: ClusterView) -> str:
    """Return whether a pod may be bound, as the last of its gang that room was found for."""
    gang = gang_of(pod, view)
    if gang is None:
        return _SUCCESS
    others = [each for each in pods if each.node_name]
    readiness = readiness_of(gang, count_members(_members(pod, [*others, pod])))
    may_start = readiness.stage is GangStage.STARTED or readiness.needed == 1
    return _SUCCESS if may_start else _WAIT


def _permit(case: Json, _: Json) -> str | None:
    pods = _pods(case)
    if "reason" in case["expect"]:
        return mismatch(None, gang_key_of(pods[-1]))  # PodGroupNotSpecified
    return mismatch(case["expect"]["code"], _permit_code(pods[-1], pods, cluster_of(case)))


def _gives_up(pod: Pod, pods: list[Pod], view: ClusterView) -> bool:
    """Return whether others of a gang are taken back, as one of them fits nowhere."""
    gang = gang_of(pod, view)
    if gang is None:
        return False
    return readiness_of(gang, count_members(_members(pod, pods))).stage is not GangStage.STARTED


def _postfilter(case: Json, _: Json) -> str | None:
    pods = _pods(case)
    rejects = _gives_up(pods[-1], pods, cluster_of(case))
    return mismatch(case["expect"]["rejectGroup"], rejects)


def _backoff(case: Json, _: Json) -> str | None:
    """Run the three steps of the case: a pod waits, the next fits nowhere, the third is refused."""
    first, second, third = pods = _pods(case)
    expect, view = case["expect"], cluster_of(case)
    backoff = GangBackoff(first_seconds=case["args"]["podGroupBackoffSeconds"])
    gang = gang_of(first, view)
    assert gang is not None
    members = _members(first, pods)
    needed = readiness_of(gang, count_members(members)).needed
    together = [each.key for each in members if each.state is MemberState.HELD][:needed]
    activated = [key for key in together if key != first.key]
    if _gives_up(second, pods, view):
        backoff.failed(gang.key, NOW)
    return (
        mismatch(expect["permit"], _permit_code(first, pods, view))
        or mismatch(expect["activated"], activated)
        or mismatch(expect["prefilter"], _prefilter_code(third, pods, view, backoff))
        or mismatch(expect["reason"], backoff.refusal(gang.key, NOW).partition(";")[0])
        or mismatch("", backoff.refusal(gang.key, Micros(NOW + SECOND)))
    )


def _status(case: Json, _: Json) -> str | None:
    (written,) = case["podgroups"]
    pods = [msgspec.convert(pod, api.Pod) for pod in case["pods"]]
    phases = [pod.status.phase for pod in pods]
    owners = [tuple(o.name for o in pod.metadata.owner_references or ()) for pod in pods]
    pod_group = pod_group_of(msgspec.convert(written, api.PodGroup))
    is_single = "occupiedBy" in case["expect"]
    for at in range(1 if is_single else len(pods)):
        phases[at] = case.get("nextPhase") or phases[at]
        members = [MemberPhase(phase, own) for phase, own in zip(phases, owners, strict=True)]
        status = next_status(pod_group, members)
        pod_group = replace(pod_group, status=status)
    got = {"phase": status.phase, "occupiedBy": status.occupied_by}
    return mismatch(case["expect"], {name: got[name] for name in case["expect"]})


STAGES: Mapping[str, Stage] = {
    "backoff": _backoff,
    "cluster-resource": _cluster_resource,
    "permit": _permit,
    "postfilter": _postfilter,
    "prefilter": _prefilter,
    "sort": queuesort.STAGES["sort"],
    "status": _status,
}
