"""Advice for new pods, from what is known right now. Fails open, whatever happens."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from engine.model.decision import Decision, Verdict
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.model.well_known import NAMESPACE_NAME_LABEL
from engine.pipeline import Scope, decide
from engine.placement import Advice, patch_for
from engine.policy import PolicySet
from engine.report import explanation
from engine.view import ClusterView, Freshness
from webhook.admission import wire
from webhook.admission.decision_cache import Advised, DecisionCache
from webhook.admission.review_result import Outcome, ReviewResult, admit_unmodified, ignored, pod_in
from webhook.admission.wire import AdmissionError, AdmissionRequest, AdmissionResponse
from webhook.placement.explanations import Explanations

_LONGEST_EVALUATION_SECONDS = 0.2
"""How long the expressions of all policies may take for one pod; the rules that are left err."""

_NODES_EXPLAINED = 10

_log = logging.getLogger(__name__)


class InFlight(Protocol):
    """The pods that were advised and are not seen yet."""

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod on its advised node."""

    def withdraw(self, pod: Pod) -> Advice | None:
        """Count a pod no longer; returns the advice it was counted by, None if it was not."""


class PlacementReviews:
    """Answers the reviews of the mutating webhook.

    Args:
        policies: the policies in force.
        view: the cluster as it is known.
        judged_at: the moment to judge ages of measurements at.
        clock: seconds that only grow, for how long expressions may take.
        scope: which pods are ours.
        explanations: where decisions are remembered.
        freshness: how old what is known is.
        in_flight: told of each pod that was advised and what it was, so that the next one sees it;
            None where no pod will ever be seen, as in a recording.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        *,
        policies: Callable[[], PolicySet],
        view: Callable[[], ClusterView],
        judged_at: Callable[[], Micros],
        clock: Callable[[], float],
        scope: Scope,
        explanations: Explanations,
        freshness: Callable[[], Freshness] = Freshness,
        in_flight: InFlight | None = None,
    ) -> None:
        self._policies = policies
        self._view = view
        self._judged_at = judged_at
        self._clock = clock
        self._scope = scope
        self._explanations = explanations
        self._freshness = freshness
        self._in_flight = in_flight
        self._twins = DecisionCache(clock)

    def answer(self, request: AdmissionRequest) -> ReviewResult:
        """Return a pod's advice; if there can be none, the pod passes unmodified."""
        if not request.creates_pod:
            return ignored(request)
        try:
            policies, began = self._policies(), self._clock()
            advised = self._twins.get(request, policies)
            if advised is None:
                advised = self._advised(request, policies)
                self._twins.put(request, policies, advised, began)
            self._assume(advised, request)
        except AdmissionError as error:
            _log.warning("a pod is not advised: %s", error, extra={"uid": request.uid})
            return admit_unmodified(request, Outcome.UNREADABLE, str(error))
        except Exception:  # noqa: BLE001 - advice is never worth a pod
            _log.exception("a pod is not advised", extra={"uid": request.uid})
            return admit_unmodified(request, Outcome.ERROR, "an internal error, see its log")
        else:
            return advised.answer

    def _withdrawn(self, pod: Pod, request: AdmissionRequest) -> Advice | None:
        """Count a pod no longer that is judged again; returns the advice that it keeps."""
        if self._in_flight is None or request.dry_run:
            return None
        return self._in_flight.withdraw(pod)

    def _assume(self, advised: Advised, request: AdmissionRequest) -> None:
        """Count an advised pod, as it is now, until it is seen."""
        is_to_come = advised.answer.outcome is not Outcome.DENIED and not request.dry_run
        if self._in_flight is not None and advised.advice.nodes and is_to_come:
            self._in_flight.assume(advised.pod, advised.advice)

    def _advised(self, request: AdmissionRequest, policies: PolicySet) -> Advised:
        """Decide for one pod; of one that is judged again, the advice that it has may stay."""
        pod = pod_in(request)
        # Only here, where nobody holds the view: it would have to be copied.
        kept = self._withdrawn(pod, request)
        answer, new = self._decided(pod, request, policies)
        return Advised(pod, answer, new if new.nodes or kept is None else kept)

    def _decided(
        self, pod: Pod, request: AdmissionRequest, policies: PolicySet
    ) -> tuple[ReviewResult, Advice]:
        view = self._view()
        until = self._clock() + _LONGEST_EVALUATION_SECONDS
        labels = view.namespace_labels.get(pod.namespace) or {NAMESPACE_NAME_LABEL: pod.namespace}
        placement = PlacementRequest(
            pod=pod,
            raw=bytes(request.object),
            namespace_labels=labels,
            request=request.variables(),
            expired=lambda: self._clock() > until,
        )
        decision = decide(
            placement,
            policies,
            view,
            self._judged_at(),
            scope=self._scope,
            freshness=self._freshness(),
        )
        outcome, response, advice = _response(request, placement, decision, view)
        if not request.dry_run:
            self._explanations.offer(
                lambda: explanation(decision, most_nodes=_NODES_EXPLAINED),
                always=decision.verdict is Verdict.DENY or bool(decision.errors),
            )
        abstained = Counter(domain for rule in decision.abstained for domain in rule.abstained)
        rule_errors = len(decision.errors)
        answer = ReviewResult(outcome, response, rule_errors=rule_errors, abstained=abstained)
        return answer, advice


def _response(
    request: AdmissionRequest, placement: PlacementRequest, decision: Decision, view: ClusterView
) -> tuple[Outcome, AdmissionResponse, Advice]:
    audit = _audit_annotations(decision)
    if decision.verdict is Verdict.DENY:
        return (
            Outcome.DENIED,
            wire.denied(request.uid, decision.message, audit_annotations=audit),
            Advice(),
        )
    patch = patch_for(decision, placement, view)
    response = wire.allowed(
        request.uid,
        operations=patch.operations,
        warnings=(*_nobody_fits(decision), *patch.warnings),
        audit_annotations=audit,
    )
    outcome = Outcome.PLACED if decision.verdict is Verdict.PLACE else Outcome.ABSTAINED
    return outcome, response, patch.advice


def _nobody_fits(decision: Decision) -> tuple[str, ...]:
    """Return what to tell whoever creates a pod that policies find no node for."""
    if decision.policies and not decision.candidates.size:
        return (f"stowplan: {decision.message}",)
    return ()


def _audit_annotations(decision: Decision) -> dict[str, str]:
    """Return what the API server's audit log should keep of a decision."""
    told = {"decision": decision.message}
    if decision.policies:
        told["policies"] = ",".join(decision.policies)
    if decision.errors:
        told["errors"] = "; ".join(decision.errors)
    if decision.audit is not None:
        told["audited-policies"] = ",".join(decision.audit.policies)
        told["audited-decision"] = decision.audit.message
    return told
