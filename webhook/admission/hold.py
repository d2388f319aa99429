"""Holds of new pods: those that wait for quota or a gang, or whose policies have them held."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.model.decision import Verdict
from engine.model.hold import HOLD_FOR_GANG, HOLD_FOR_QUOTA
from engine.model.never_held import is_never_held
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.placement import Patch, hold_patch
from engine.policy import CompiledPolicy, PolicySet
from webhook.admission import wire
from webhook.admission.gang_hold import GangHolds, may_name_gang
from webhook.admission.review_result import Outcome, ReviewResult
from webhook.placement.hold_guard import HoldGuard, Refusal
from webhook.placement.placer import Placement, Placer
from webhook.placement.policy_counts import PolicyCounts


class PodHolder:
    """Holds pods, while the guard lets it.

    Args:
        placer: knows the policies of a pod.
        guard: says whether pods may be held.
        queues: whether pods of a namespace whose label names a quota of Koordinator, "" for none,
            wait for quota; given None, whether any pod of the namespace may.
        gangs: says which pods wait for their gang.
        now: the time of day.
        seconds: the bound of a hold.
        counts: where placements of held pods are counted.
        count_refusal: called with the reason for each pod that is not held for it.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        placer: Placer,
        guard: HoldGuard,
        *,
        queues: Callable[[str, str | None], bool],
        gangs: GangHolds,
        now: Callable[[], Micros],
        seconds: int,
        counts: PolicyCounts,
        count_refusal: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._placer = placer
        self._guard = guard
        self._queues = queues
        self._gangs = gangs
        self._now = now
        self._seconds = seconds
        self._counts = counts
        self._count_refusal = count_refusal

    def may_hold(self, request: wire.AdmissionRequest, policies: PolicySet) -> bool:
        """Return whether a pod may be held, or warned that it is not; takes microseconds."""
        is_meant = policies.may_hold or self._queues(request.namespace, None)
        if is_meant and not self._guard.refusal(self._now(), request.namespace):
            return True
        return may_name_gang(bytes(request.object))

    def held_at_once(
        self, request: wire.AdmissionRequest, pod: PlacementRequest, policies: PolicySet
    ) -> ReviewResult | None:
        """Return the result of `held` where that takes no decision, None where it does.

        Raises:
            PatchError: the operations do not apply to the pod.
        """
        return None if self._placer.decides(pod, policies) else self.held(request, pod, policies)

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

        Args:
            request: the review.
            pod: its pod.
            policies: those in force.
            in_haste: whether there is no time for a decision: then the pod has promises alone, and
                may be one that policies would have denied.

        Raises:
            PatchError: the operations do not apply to the pod.
        """
        if is_never_held(pod.pod) or self._refusal(pod.pod):
            return None
        applied = self._placer.policies_for(pod, policies)
        reasons = self._reasons(pod.pod, applied)
        if not reasons:
            return None
        advice = Patch()
        if applied and in_haste:
            advice = self._placer.promise(pod, applied)
        elif applied:
            placement = self._placer.place(pod, policies, dry_run=True)
            if placement.verdict is Verdict.DENY:
                return None
            advice = placement.patch
            if not request.dry_run:
                self._counts.count(placement, policies)
        operations = hold_patch(
            pod.pod,
            pod.raw,
            reasons=",".join(reasons),
            now=self._now(),
            seconds=self._seconds,
            after=advice.operations,
        )
        if not request.dry_run:
            self._placer.withdraw(pod.pod)
        warning = ""
        if HOLD_FOR_GANG in reasons:
            warning = self._gangs.warning(pod.pod, Refusal.NONE, is_held=True)
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
        queues = self._queues(pod.namespace, pod.shape.quota_name)
        return queues and self._placer.is_in_scope(pod)

    def _waits_for_gang(self, pod: Pod) -> bool:
        return self._gangs.waits(pod) and self._placer.is_in_scope(pod)

    def warning(self, pod: Pod) -> str:
        """Return what the creator of a pod that is not held should know, "" for nothing."""
        if pod.has_scheduling_group and self._placer.is_in_scope(pod):
            return self._gangs.warning_of_scheduling_group(pod)
        if not self._waits_for_gang(pod):
            return ""
        return self._gangs.warning(pod, self._refusal(pod), is_held=False)

    def _refusal(self, pod: Pod) -> Refusal:
        return self._guard.refusal(self._now(), pod.namespace)

    def count_advised(self, placement: Placement, policies: PolicySet) -> None:
        """Count a pod that was advised, if it would have been held but for the guard."""
        pod = placement.pod
        by_policy = policies.may_hold and placement.is_meant_to_be_held
        is_meant = by_policy or self._waits_for_quota(pod) or self._waits_for_gang(pod)
        if is_meant and not is_never_held(pod):
            refusal = self._refusal(pod)
            if refusal is not Refusal.NONE:
                self._count_refusal(refusal)
