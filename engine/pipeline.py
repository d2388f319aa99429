"""The decision for a pod: `decide` is the table of contents of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from engine.model.decision import Decision, PlacementRequest, Ranking, Verdict
from engine.model.pod import Pod
from engine.model.policy_resource import PlacementOptions, WhenNoneFits
from engine.model.rule_outcomes import FilterOutcome, and_not
from engine.model.time import Micros
from engine.model.well_known import SYSTEM_CLASSES
from engine.placement.stored_pod import SPREAD, contexts_of, is_kept_off, with_exclusion
from engine.policy import (
    SCHEDULER_POLICY,
    CompiledPolicy,
    PolicySet,
    RuleContext,
    scheduler_filters,
    scheduler_scores,
)
from engine.report import summary
from engine.view import (
    FRESH,
    BoolColumn,
    ClusterView,
    Freshness,
    hash_of,
    name_hashes,
)

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The pods to place.

    Attributes:
        scheduler_names: schedulers whose pods are placed; a pod without one has the default.
        excluded_namespaces: namespaces whose pods are not placed.
    """

    scheduler_names: tuple[str, ...] = ("default-scheduler",)
    excluded_namespaces: tuple[str, ...] = SYSTEM_NAMESPACES


def decide(
    request: PlacementRequest,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope = Scope(),
    freshness: Freshness = FRESH,
) -> Decision:
    """Decide where a pod should go.

    The same arguments always give the same decision: nothing else is read.

    Args:
        request: the pod and its context.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment of the decision, at which ages of measurements are judged.
        scope: the pods to place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    # 1. Skip pods outside the scope.
    reason = skip_reason(request.pod, scope)
    if reason:
        return _abstain(request, view, now, reason)

    # 2. Find the policies that select this pod, highest priority first.
    match = policies.match(request, now)
    if not match.enforced and not match.audited:
        return _abstain(request, view, now, "no policy matches", errors=match.errors)

    # 3. Decide by those in Enforce mode; note the decision of those in Audit mode.
    if match.enforced:
        contexts = contexts_of(match.enforced, request, view, now, freshness)
        decision = decide_in(contexts, match.enforced, errors=match.errors)
    else:
        reason = "no policy in Enforce mode matches"
        decision = _abstain(request, view, now, reason, errors=match.errors)
    if match.audited:
        contexts = contexts_of(match.audited, request, view, now, freshness)
        decision = replace(decision, audit=decide_in(contexts, match.audited))
    return decision


def policies_for(
    request: PlacementRequest, policies: PolicySet, now: Micros, *, scope: Scope
) -> Sequence[CompiledPolicy]:
    """Return the policies that would decide for a pod, highest priority first, without a decision.

    Args:
        request: the pod and its context.
        policies: the loaded policies.
        now: the moment.
        scope: the pods to place; one outside of it has no policies.
    """
    return () if skip_reason(request.pod, scope) else policies.match(request, now).enforced


def audit(
    request: PlacementRequest,
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    scope: Scope,
    freshness: Freshness,
) -> Decision | None:
    """Return what policies in Audit mode would decide for a pod, None where none matches it.

    The same as `decide(...).audit`; see there for the arguments.
    """
    if skip_reason(request.pod, scope):
        return None
    audited = policies.match(request, now).audited
    if not audited:
        return None
    return decide_in(contexts_of(audited, request, view, now, freshness), audited)


def decide_in(
    contexts: Sequence[RuleContext],
    policies: Sequence[CompiledPolicy],
    *,
    nodes: BoolColumn | None = None,
    errors: tuple[str, ...] = (),
) -> Decision:
    """Decide by policies that all apply, highest priority first; at least one.

    Args:
        contexts: of their rules, one each, all of one request and one view, by `contexts_of`.
        policies: the policies.
        nodes: (n,), those that are looked at, valid rows all of them; None for all.
        errors: lines for conditions that could not be evaluated.
    """
    request, view, freshness = contexts[0].request, contexts[0].view, contexts[0].freshness
    nodes = view.valid if nodes is None else nodes

    # 1. Filter: the scheduler's own rules first, so that only nodes which can win are ranked.
    own, placement = contexts[0], policies[0].placement
    of_scheduler = scheduler_filters(own)
    is_excluding = is_kept_off(own, placement)
    outcomes = {
        rule.name: rule.outcome(own)
        for rule in of_scheduler
        if not is_excluding or rule.name != SPREAD
    }
    policy_outcomes = [
        rule.outcome(context)
        for policy, context in zip(policies, contexts, strict=True)
        for rule in policy.filters
    ]
    if is_excluding:
        known = (*outcomes.values(), *policy_outcomes)
        own = with_exclusion(own, known, nodes, placement.max_nodes)
        outcomes |= {rule.name: rule.outcome(own) for rule in of_scheduler if rule.name == SPREAD}
    scheduler_outcomes = [outcomes[rule.name] for rule in of_scheduler]
    filters = (*scheduler_outcomes, *policy_outcomes)
    left = _left(filters, nodes)
    (candidates,) = left[-1].nonzero()

    # 2. Score the candidates and nothing else: a node that cannot win must not sway the scale. What
    # the pod itself asks for counts as it does for the scheduler.
    wishes = scheduler_scores(own, policies)
    scores = [rule.outcome(own, candidates) for rule in wishes]
    scores += [
        rule.outcome(context, candidates)
        for policy, context in zip(policies, contexts, strict=True)
        for rule in policy.scores
    ]

    # 3. Weigh; the ranking by these sums is made as far as it is read.
    totals = np.zeros(candidates.size, np.int64)
    for score in scores:
        totals += score.normalized if score.weight == 1 else score.normalized * score.weight
    ranking = Ranking(candidates, totals, lambda rows: _tie_breakers(view, rows, request.pod))

    # 4. Decide, with the reasons.
    reachable = left[len(scheduler_outcomes) - 1]
    estimators = (policy.estimator for policy in policies)
    return Decision(
        pod=request.pod,
        verdict=_verdict(candidates, placement, reachable, scheduler_outcomes),
        message_or_source=summary,
        policies=tuple([policy.name for policy in policies if policy is not SCHEDULER_POLICY]),
        placement=placement,
        names=view.names,
        valid=nodes,
        filters=filters,
        left=left,
        scored=tuple(scores),
        ranking=ranking,
        estimate=next((each(request.pod) for each in estimators if each is not None), {}),
        errors=errors + tuple([line for context in contexts for line in context.errors]),
        decided_at=contexts[0].now,
        view_version=view.version,
        ages=freshness.ages,
    )


def skip_reason(pod: Pod, scope: Scope) -> str:
    """Return why a pod is not placed, "" when it is."""
    if pod.node_name:
        return f"the pod is bound to node {pod.node_name} already"
    if pod.is_daemon_set:
        return "DaemonSet pods are pinned to their node"
    if pod.is_mirror:
        return "mirror pods belong to their kubelet"
    if pod.priority_class_name in SYSTEM_CLASSES:
        return f"pods of priority class {pod.priority_class_name} run the cluster"
    if pod.namespace in scope.excluded_namespaces:
        return f"namespace {pod.namespace} is excluded"
    if (pod.scheduler_name or "default-scheduler") not in scope.scheduler_names:
        return f"scheduler {pod.scheduler_name} is not one we advise"
    return ""


def _abstain(
    request: PlacementRequest,
    view: ClusterView,
    now: Micros,
    reason: str,
    *,
    errors: tuple[str, ...] = (),
) -> Decision:
    return Decision(
        pod=request.pod,
        verdict=Verdict.ABSTAIN,
        message_or_source=reason,
        names=view.names,
        valid=view.valid.copy(),
        estimate={},
        errors=errors,
        decided_at=now,
        view_version=view.version,
    )


def _left(filters: Sequence[FilterOutcome], nodes: BoolColumn) -> tuple[BoolColumn, ...]:
    """Return which of `nodes` each filter and those before it leave."""
    left: list[BoolColumn] = []
    for outcome in filters:
        rejects = outcome.rejects
        if rejects.size and rejects.item(rejects.argmax()):  # many reject none
            nodes = and_not(nodes, rejects)
        left.append(nodes)
    return tuple(left)


def _tie_breakers(view: ClusterView, rows: NDArray[np.intp], pod: Pod) -> NDArray[np.uint64]:
    """Return a hash of pod and node name for each of some rows.

    With the first name winning, every pod of a burst would be sent to the same few nodes.
    """
    hashes = name_hashes(view)[rows]  # `take` takes twice as long
    hashes *= tie_factor(pod)
    return hashes


def tie_factor(pod: Pod) -> int:
    """Return what hashes of names are multiplied with, so that each pod has an order of its own."""
    return hash_of(pod.uid or pod.key) | 1  # odd: different hashes stay different


def _verdict(
    candidates: NDArray[np.intp],
    placement: PlacementOptions,
    reachable: BoolColumn,
    scheduler_outcomes: Sequence[FilterOutcome],
) -> Verdict:
    """Return the verdict for a pod with these candidates.

    Without any, it is denied only if the scheduler's own filters leave nodes and policies reject
    all of them: where nothing is reachable anyway, pending is the right state, for an autoscaler
    can act. The reachable nodes are unknown when one of the scheduler's filters abstained, and
    filters that abstain reject nothing: so a stale view never denies a pod.
    """
    if candidates.size:
        return Verdict.PLACE
    abstained = any(outcome.abstained for outcome in scheduler_outcomes)
    surely_reachable = reachable.any() and not abstained
    if surely_reachable and placement.when_none_fits is WhenNoneFits.DENY:
        return Verdict.DENY
    return Verdict.ABSTAIN
