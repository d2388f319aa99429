"""Placement of a pod in steps: decide, encode, assume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol, TypeAlias

import msgspec

from engine.batch import (
    GangPlacement,
    StartingGang,
    place_gang,
)
from engine.binding import BindingAction, BindingCycle, BindingDecision, MoveLimits
from engine.model import api
from engine.model.decision import Decision, PlacementRequest, RuleTimes, Verdict
from engine.model.kubernetes_version import KubernetesVersion
from engine.model.pod import Pod
from engine.model.policy_resource import PlacementAt
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import Micros
from engine.model.well_known import NAMESPACE_NAME_LABEL
from engine.pipeline import Scope, audit, decide, policies_for, skip_reason
from engine.placement import Advice, Encoder, Patch, encode, encode_promises
from engine.policy import CompiledPolicy, PolicySet
from engine.report import BindingReport, DecisionExcerpt, binding_excerpt, excerpt_of
from engine.view import ClusterView, Freshness
from webhook.placement.explanations import Explanations

MOST_BYTES = 256 * 1024

_MOST = {
    "containers": 100,
    "container statuses": 100,
    "amounts of resources": 400,
    "node selector terms": 50,
    "node selector requirements": 250,
    "node selector values": 2_000,
    "tolerations": 500,
}
"""What a pod may have for advice; at each, a decision over 5,000 nodes takes some 20 ms."""


def beyond_limits(pod: api.Pod) -> str:
    """Return what a pod has too much of, such as `more than 256 containers`; "" for nothing."""
    for what, count in _counts(pod):
        if count > _MOST[what]:
            return f"more than {_MOST[what]} {what}"
    return ""


def _counts(pod: api.Pod) -> Iterator[tuple[str, int]]:
    spec, status = pod.spec, pod.status
    app, init = spec.containers or (), spec.init_containers or ()
    statuses = len(status.container_statuses or ()) + len(status.init_container_statuses or ())
    yield "containers", len(app) + len(init)
    yield "container statuses", statuses
    lists = chain((spec.resources,), (container.resources for container in chain(app, init)))
    yield "amounts of resources", sum(map(_amounts, lists)) + len(spec.overhead or ())
    yield "tolerations", len(spec.tolerations or ())
    terms = list(_terms(spec))
    requirements = [
        requirement
        for term in terms
        for requirement in chain(term.match_expressions or (), term.match_fields or ())
    ]
    yield "node selector terms", len(terms)
    yield "node selector requirements", len(requirements) + len(spec.node_selector or ())
    yield "node selector values", sum(len(each.values or ()) for each in requirements)


def _amounts(resources: api.ResourceRequirements | None) -> int:
    return len(resources.requests or ()) + len(resources.limits or ()) if resources else 0


def _terms(spec: api.PodSpec) -> Iterator[api.NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms or ()
    for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ():
        yield preferred.preference


_LONGEST_EVALUATION_SECONDS = 0.2
"""Time limit of the expressions of all policies for one pod; the remaining rules err."""

_NODES_EXPLAINED = 10


class AssumedPods(Protocol):
    """The pods that were advised and have not been observed yet."""

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod on its advised node."""

    def withdraw(self, pod: Pod) -> Advice | None:
        """Count a pod no longer; returns the advice it was counted by, None if it was not."""


Rejections: TypeAlias = tuple[tuple[str, str, int], ...]
"""Policy, filter, and the number of nodes that it was the first to reject, if there are any."""


class AuditedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The decision that the matching policies in Audit mode would have made."""

    policies: tuple[str, ...]  # their names, by precedence
    verdict: Verdict  # place, abstain or deny
    message: str  # one line for a person
    rejections: Rejections  # by their filters


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A decision and its encoding, without the view that a `Decision` keeps alive."""

    pod: Pod  # the pod
    verdict: Verdict  # place, abstain or deny
    message: str = ""  # one line for a person; the denial's text when denied
    policies: tuple[str, ...] = ()  # names of the policies that were applied, by precedence
    candidates: int = 0  # number of nodes that may take the pod
    errors: tuple[str, ...] = ()  # rules that could not be evaluated, with the reason
    # number of rules that abstained, by the domain that was too old
    abstained: Mapping[str, int] = {}
    rejections: Rejections = ()  # by the filters of policies
    audit: AuditedDecision | None = None  # None where no matching policy is in Audit mode
    is_meant_to_be_held: bool = False  # whether a policy has the pod held
    patch: Patch  # operations and warnings for the pod
    # by which the pod counts as assumed; in a second round of admission that of the first
    advice: Advice


@dataclass(kw_only=True, eq=False)
class Placer:
    """Places pods on the cluster as it is known now."""

    view: Callable[[], ClusterView]  # the cluster as it is known
    now: Callable[[], Micros]  # the moment at which ages of measurements are judged
    scope: Scope  # which pods are placed at all
    encode: Encoder = encode  # writes a decision on its pod
    # monotonic seconds that limit the evaluation of expressions; None for no limit
    clock: Callable[[], float] | None = None
    freshness: Callable[[], Freshness] = Freshness  # age of each source of the view
    # where decisions are recorded
    explanations: Explanations = field(default_factory=lambda: Explanations(0))
    # the pods in flight, so that the next decision sees this one; None where no pod will ever be
    # observed, as in a recording
    assumed: AssumedPods | None = None
    # whether somebody decides the pods of policies with `at: Binding` when they are bound: then
    # they get promises at their creation, and no decision
    decides_bindings: bool = False
    rule_times: RuleTimes | None = None  # where the time that rules take is noted

    def place(
        self, request: PlacementRequest, policies: PolicySet, *, dry_run: bool = False
    ) -> Placement:
        """Decide for a pod, and count it on its advised node unless it is denied.

        One that is decided at its binding gets what its policies promise, and counts nowhere.
        """
        # INVARIANT: no view or decision outlives its line: a change would have to copy the view.
        previous = None if dry_run else self.withdraw(request.pod)
        placement = self._decided_later(request, policies)
        if placement is None:
            placement = self._placement(*self.decide(request, policies), dry_run=dry_run)
        if previous is not None and not placement.advice.nodes:
            placement = msgspec.structs.replace(placement, advice=previous)
        if not dry_run and placement.verdict is not Verdict.DENY:
            self.assume(placement.pod, placement.advice)
        return placement

    @property
    def kubernetes(self) -> KubernetesVersion:
        return self.view().kubernetes

    def policies_for(
        self, request: PlacementRequest, policies: PolicySet
    ) -> Sequence[CompiledPolicy]:
        """Return the policies that would decide for a pod, highest priority first."""
        completed = self.completed(request, self.view())
        return policies_for(completed, policies, self.now(), scope=self.scope)

    def decides(self, request: PlacementRequest, policies: PolicySet) -> bool:
        """Return whether policies in Enforce mode have a decision made of a pod at its creation.

        Otherwise it gets promises at most, which takes no milliseconds.
        """
        if not self.is_in_scope(request.pod):
            return False
        match = policies.match(self.completed(request, self.view()), self.now())
        if not match.enforced or match.audited:
            return bool(match.enforced)
        at = match.enforced[0].placement.at
        return not (self.decides_bindings and at is PlacementAt.BINDING)

    def promise(self, request: PlacementRequest, policies: Sequence[CompiledPolicy]) -> Patch:
        """Return what policies promise a pod, whenever its node is decided."""
        view = self.view()
        return encode_promises(policies, self.completed(request, view), view, self.now())

    def is_in_scope(self, pod: Pod) -> bool:
        return not skip_reason(pod, self.scope)

    def withdraw(self, pod: Pod) -> Advice | None:
        """Stop counting an advised pod; return its advice, None if it did not count."""
        return None if self.assumed is None else self.assumed.withdraw(pod)

    def assume(self, pod: Pod, advice: Advice) -> None:
        """Count a pod on its advised node, if there is any, until it is observed."""
        if self.assumed is not None and advice.nodes:
            self.assumed.assume(pod, advice)

    def decide(self, request: PlacementRequest, policies: PolicySet) -> tuple[Decision, Patch]:
        """Full decision with its encoding; keeps the view alive, and assumes nothing."""
        view = self.view()
        completed, freshness = self.completed(request, view), self.freshness()
        decision = decide(
            completed, policies, view, self.now(), scope=self.scope, freshness=freshness
        )
        return decision, self.encode(decision, request, view)

    def binding_cycle(
        self, request: PlacementRequest, node_name: str, view: ClusterView, limits: MoveLimits
    ) -> BindingCycle:
        """Return what the decision on a binding is made of; keeps the view alive."""
        return BindingCycle(
            request=self.completed(request, view),
            node_name=node_name,
            view=view,
            now=self.now(),
            scope=self.scope,
            freshness=self.freshness(),
            limits=limits,
        )

    def explain_binding(self, pod: Pod, made: BindingDecision) -> None:
        decisions = [each.decision for each in (made, made.audit) if each is not None]
        has_errors = any(each is not None and each.errors for each in decisions)
        self.explanations.offer(
            lambda: _binding_excerpt(pod, made, self.now()),
            always=made.action is BindingAction.DENY or has_errors,
        )

    def place_gang(
        self, gang: StartingGang, policies: PolicySet
    ) -> tuple[GangPlacement, ClusterView]:
        """Find nodes for all members of a gang, or say why there are none.

        Returns:
            What would become of them, and the view without them; keeps the view alive.
        """
        view = self.view()
        completed = [self.completed(request, view) for request in gang.requests]
        gang = msgspec.structs.replace(gang, requests=completed)
        freshness, scope = self.freshness(), self.scope
        placement = place_gang(gang, policies, view, self.now(), scope=scope, freshness=freshness)
        return placement, view

    def _decided_later(self, request: PlacementRequest, policies: PolicySet) -> Placement | None:
        """Return the promises for a pod that is decided at its binding, None for any other."""
        if not (self.decides_bindings and policies.may_bind):
            return None
        view, now, freshness = self.view(), self.now(), self.freshness()
        completed = self.completed(request, view)
        applied = policies_for(completed, policies, now, scope=self.scope)
        if not applied or applied[0].placement.at is not PlacementAt.BINDING:
            return None
        audited = audit(completed, policies, view, now, scope=self.scope, freshness=freshness)
        patch = encode_promises(applied, completed, view, now)
        names = ", ".join([policy.name for policy in applied])
        return Placement(
            pod=request.pod,
            verdict=Verdict.ABSTAIN,
            message=f"the node is decided when the scheduler binds the pod, by {names}",
            audit=_audited(audited),
            is_meant_to_be_held=bool(applied[0].placement.hold_reasons),
            patch=patch,
            advice=patch.advice,
        )

    def _placement(self, decision: Decision, patch: Patch, *, dry_run: bool) -> Placement:
        """Return a decision without its view; record its explanation, unless it is a dry run."""
        if not dry_run:
            self.explanations.offer(
                lambda: excerpt_of(decision, _NODES_EXPLAINED),
                always=decision.verdict is Verdict.DENY or bool(decision.errors),
            )
        return Placement(
            pod=decision.pod,
            verdict=decision.verdict,
            message=decision.message,
            policies=decision.policies,
            candidates=len(decision.ranking),
            errors=decision.errors,
            abstained=Counter(domain for rule in decision.abstained for domain in rule.abstained),
            rejections=rejections_of(decision),
            audit=_audited(decision.audit),
            is_meant_to_be_held=bool(decision.placement.hold_reasons),
            patch=patch,
            advice=patch.advice,
        )

    def completed(self, request: PlacementRequest, view: ClusterView) -> PlacementRequest:
        """Return a request with the labels of its namespace and a time limit from now on."""
        namespace = request.pod.namespace
        labels = view.namespaces.labels.get(namespace) or {NAMESPACE_NAME_LABEL: namespace}
        return replace(
            request,
            namespace_labels=labels,
            expired=self._time_limit(),
            rule_times=self.rule_times,
        )

    def _time_limit(self) -> Callable[[], bool] | None:
        if self.clock is None:
            return None
        clock, until = self.clock, self.clock() + _LONGEST_EVALUATION_SECONDS
        return lambda: clock() > until


def _binding_excerpt(pod: Pod, made: BindingDecision, now: Micros) -> DecisionExcerpt:
    report = BindingReport(
        action=str(made.action),
        reason=str(made.reason),
        scheduler_node=made.scheduler_node,
        node=made.node_name,
        message=made.message,
    )
    excerpt = binding_excerpt(pod, made.decision, report, now, _NODES_EXPLAINED)
    audit = None if made.audit is None else _binding_excerpt(pod, made.audit, now)
    return msgspec.structs.replace(excerpt, audit=audit)


def _audited(audit: Decision | None) -> AuditedDecision | None:
    if audit is None:
        return None
    return AuditedDecision(
        policies=audit.policies,
        verdict=audit.verdict,
        message=audit.message,
        rejections=rejections_of(audit),
    )


def rejections_of(decision: Decision) -> Rejections:
    """Return the rejections by policies; those of the scheduler's own filters are no policy's."""
    rejected = zip(decision.filters, decision.first_rejections, strict=True)
    return tuple(
        [
            (outcome.policy, outcome.rule, nodes)
            for outcome, nodes in rejected
            if nodes and outcome.policy != SCHEDULER
        ]
    )
