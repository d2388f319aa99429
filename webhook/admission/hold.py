"""Holds of new pods whose policies decide them at their release."""

from __future__ import annotations

from collections.abc import Callable

from engine.model.decision import PlacementAt
from engine.model.never_held import is_never_held
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.placement import hold_patch
from engine.policy import PolicySet
from webhook.admission import wire
from webhook.admission.review_result import Outcome, ReviewResult
from webhook.placement.hold_guard import HoldGuard, Refusal
from webhook.placement.placer import Placement, Placer


class PodHolder:
    """Holds pods, while the guard lets it.

    Args:
        placer: knows the policies of a pod.
        guard: says whether pods may be held.
        now: the time of day.
        seconds: the bound of a hold.
        count_refusal: called with the reason for each pod that is advised instead.
    """

    def __init__(
        self,
        placer: Placer,
        guard: HoldGuard,
        *,
        now: Callable[[], Micros],
        seconds: int,
        count_refusal: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._placer = placer
        self._guard = guard
        self._now = now
        self._seconds = seconds
        self._count_refusal = count_refusal

    def may_hold(self, policies: PolicySet) -> bool:
        """Return whether any pod may be held now by some policies; takes a microsecond."""
        return policies.may_hold and not self._guard.refusal(self._now())

    def held(
        self, request: wire.AdmissionRequest, pod: PlacementRequest, policies: PolicySet
    ) -> ReviewResult | None:
        """Return the result that holds a pod, None for one that is to be advised.

        Nothing is decided and nothing assumed. In a second round of admission a pod is held that
        the first has advised, if the guard lets it by now: then it is assumed no longer.

        Raises:
            PatchError: the operations do not apply to the pod.
        """
        if is_never_held(pod.pod):
            return None
        applied = self._placer.policies_for(pod, policies)
        if not applied or applied[0].placement.at is not PlacementAt.RELEASE:
            return None
        operations = hold_patch(pod.pod, pod.raw, now=self._now(), seconds=self._seconds)
        if not request.dry_run:
            self._placer.withdraw(pod.pod)
        names = ",".join([policy.name for policy in applied])
        audit = {"decision": "held until it is released", "policies": names}
        response = wire.allowed(request.uid, operations=operations, audit_annotations=audit)
        return ReviewResult(Outcome.HELD, response)

    def count_advised(self, placement: Placement, policies: PolicySet) -> None:
        """Count a pod that was advised, if it would have been held but for the guard."""
        is_meant = policies.may_hold and placement.at is PlacementAt.RELEASE
        if is_meant and not is_never_held(placement.pod):
            refusal = self._guard.refusal(self._now())
            if refusal is not Refusal.NONE:
                self._count_refusal(refusal)
