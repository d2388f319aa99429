"""Holds of new pods: those that wait for quota or a gang, or whose policies have them held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from engine.gang import gang_key_of, gang_of, named_gang_of
from engine.model.decision import PlacementRequest, Verdict
from engine.model.hold import HOLD_FOR_GANG, HOLD_FOR_QUOTA
from engine.model.pod import Pod, is_never_held
from engine.model.time import Micros
from engine.placement import Patch, hold_patch
from engine.policy import CompiledPolicy, PolicySet
from engine.view import ClusterView
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult
from webhook.placement.held_pods import HoldGuard, Refusal
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placement, Placer

_REASONS: Final = {
    Refusal.NO_LEADER: "no replica leads",
    Refusal.NOT_RELEASING: "no pods are being released",
    Refusal.OVERDUE: "held pods are not released in time",
    Refusal.FULL: "too many pods of its namespace are held",
}


def may_name_gang(raw: bytes) -> bool:
    """Return whether a pod as it was sent may name a gang; takes a microsecond for each KiB.

    The API server writes no letter of a name as an escape.
    """
    return b"pod-group" in raw or b"gang.scheduling.koordinator.sh/name" in raw


class GangHolds:
    """Says which new pods are held until their gang may start."""

    def __init__(self, view: Callable[[], ClusterView], has_pod_groups: Callable[[], bool]) -> None:
        self._view = view
        self._has_pod_groups = has_pod_groups

    def waits(self, pod: Pod) -> bool:
        """Return whether a pod waits for its gang.

        So does one whose PodGroup is not there: it may have been created just before the pod, and
        be seen a moment later. If it is not, the pod is released as one of its own.
        """
        if gang_key_of(pod) is None:
            return False
        return self._has_pod_groups() or gang_of(pod, self._view()) is not None

    def warning(self, pod: Pod, refusal: Refusal, *, is_held: bool) -> str:
        """Return what the creator of a pod that waits for its gang should know, "" for nothing."""
        key = gang_key_of(pod)
        if is_held:
            if gang_of(pod, self._view()) is not None:
                return ""
            return (
                f"stowplan: no PodGroup `{key}` is known: unless it is in a moment, the pod starts"
                " on its own"
            )
        reason = "such pods are never held" if is_never_held(pod) else _REASONS[refusal]
        return (
            f"stowplan: the pod may start before others of its gang `{key}` can: it is not held,"
            f" for {reason}"
        )

    def warning_of_scheduling_group(self, pod: Pod) -> str:
        """Return what the creator of a pod of a group of the scheduler should know, "" for nothing.

        The Job controller puts pods into such groups unasked, whatever gang their labels name.
        """
        key = named_gang_of(pod)
        if key is None:
            return ""
        return (
            f"stowplan: the pod is no member of its gang `{key}`: `spec.schedulingGroup` leaves it"
            " to the scheduler"
        )


@dataclass(eq=False)
class PodHolder:
    """Holds pods, while the guard lets it."""

    placer: Placer
    guard: HoldGuard
    _: KW_ONLY
    queues: Callable[[str, str | None], bool]
    gangs: GangHolds
    now: Callable[[], Micros]
    seconds: int
    counts: PolicyCounts
    count_refusal: Callable[[str], None] = lambda _reason: None

    def may_hold(self, request: wire.AdmissionRequest, policies: PolicySet) -> bool:
        """Return whether a pod may be held, or warned that it is not; takes microseconds."""
        is_meant = policies.may_hold or self.queues(request.namespace, None)
        if is_meant and not self.guard.refusal(self.now(), request.namespace):
            return True
        return may_name_gang(bytes(request.object))

    def held_at_once(
        self, request: wire.AdmissionRequest, pod: PlacementRequest, policies: PolicySet
    ) -> ReviewResult | None:
        """Return the result of `held` where that takes no decision, None where it does."""
        return None if self.placer.decides(pod, policies) else self.held(request, pod, policies)

    def held(
        self,
        request: wire.AdmissionRequest,
        pod: PlacementRequest,
        policies: PolicySet,
        *,
        in_haste: bool = False,
    ) -> ReviewResult | None:
        """Return the result that holds a pod, None for one that is not to be held.

        It is placed as if it was not held: advised, or promised what filters say of labels, which
        then holds whoever releases it. What policies deny is not held. Nothing is assumed. In a
        second round of admission a pod is held that the first has advised, if the guard lets it by
        now: then it is assumed no longer.
        """
        if is_never_held(pod.pod) or self._refusal(pod.pod):
            return None
        applied = self.placer.policies_for(pod, policies)
        reasons = self._reasons(pod.pod, applied)
        if not reasons:
            return None
        advice = Patch()
        if applied and in_haste:
            advice = self.placer.promise(pod, applied)
        elif applied:
            placement = self.placer.place(pod, policies, dry_run=True)
            if placement.verdict is Verdict.DENY:
                return None
            advice = placement.patch
            if not request.dry_run:
                self.counts.count(placement, policies)
        operations = hold_patch(
            pod.pod,
            pod.raw,
            reasons=",".join(reasons),
            now=self.now(),
            seconds=self.seconds,
            after=advice.operations,
        )
        if not request.dry_run:
            self.placer.withdraw(pod.pod)
        warning = ""
        if HOLD_FOR_GANG in reasons:
            warning = self.gangs.warning(pod.pod, Refusal.NONE, is_held=True)
        audit = {"decision": f"held until it is released: {' and '.join(reasons)}"}
        if applied:
            audit["policies"] = ",".join([policy.name for policy in applied])
        response = wire.allowed(
            request.uid,
            patch=wire.json_patch((*advice.operations, *operations)),
            warnings=(*advice.warnings, warning) if warning else advice.warnings,
            audit_annotations=audit,
        )
        return ReviewResult(Outcome.HELD, response)

    def _reasons(self, pod: Pod, applied: Sequence[CompiledPolicy]) -> tuple[str, ...]:
        """Return why a pod is to be held, () if it is not."""
        reasons = list(applied[0].placement.hold_reasons) if applied else []
        if self._waits_for_quota(pod):
            reasons.append(HOLD_FOR_QUOTA)
        if self._waits_for_gang(pod):
            reasons.append(HOLD_FOR_GANG)
        return tuple(reasons)

    def _waits_for_quota(self, pod: Pod) -> bool:
        queues = self.queues(pod.namespace, pod.shape.quota_name)
        return queues and self.placer.is_in_scope(pod)

    def _waits_for_gang(self, pod: Pod) -> bool:
        return self.gangs.waits(pod) and self.placer.is_in_scope(pod)

    def warning(self, pod: Pod) -> str:
        """Return what the creator of a pod that is not held should know, "" for nothing."""
        if pod.has_scheduling_group and self.placer.is_in_scope(pod):
            return self.gangs.warning_of_scheduling_group(pod)
        if not self._waits_for_gang(pod):
            return ""
        return self.gangs.warning(pod, self._refusal(pod), is_held=False)

    def _refusal(self, pod: Pod) -> Refusal:
        return self.guard.refusal(self.now(), pod.namespace)

    def count_advised(self, placement: Placement, policies: PolicySet) -> None:
        """Count a pod that was advised, if it would have been held but for the guard."""
        pod = placement.pod
        by_policy = policies.may_hold and placement.is_meant_to_be_held
        is_meant = by_policy or self._waits_for_quota(pod) or self._waits_for_gang(pod)
        if is_meant and not is_never_held(pod):
            refusal = self._refusal(pod)
            if refusal is not Refusal.NONE:
                self.count_refusal(refusal)
