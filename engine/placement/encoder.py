"""A decision encoded as one patch of its pod: `encode` is the table of contents."""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import PatchError
from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.policy_resource import DynamicFilters
from engine.model.time import Micros
from engine.placement.affinity import (
    Exclusion,
    Hostnames,
    Rejections,
    exclusion_of,
    promised_labels,
    required_labels,
    term_count,
)
from engine.placement.patch import (
    ANNOTATIONS,
    Patch,
    advice_of,
    affinity_of,
    annotations_of,
    assemble,
    read_document,
)
from engine.placement.preferred_terms import names_needed, preferred_terms, weight_budget
from engine.placement.stored_pod import excludable
from engine.policy import CompiledPolicy
from engine.view import ClusterView

# Promises of filters on node labels, written on a new pod before any node is judged.
#
# A pod that is held, or whose node is decided at its binding, needs them from its creation on:
# whoever releases or binds it, the scheduler keeps what filters promise.


def encode_promises(
    policies: Sequence[CompiledPolicy], request: PlacementRequest, view: ClusterView, now: Micros
) -> Patch:
    """Return the patch that adds what policies require of node labels, and nothing else.

    A pod that demands it already gets nothing, so patching twice equals once; and what is written
    here is not written again with a decision.

    Args:
        policies: that apply to the pod, highest priority first.
        request: the pod, with the labels of its namespace.
        view: any; no node of it is read.
        now: the moment that filters may read.

    Raises:
        PatchError: the operations do not apply to the pod.
    """
    document = read_document(request.raw)
    contexts = [policy.context(request, view, now) for policy in policies]
    labels = promised_labels(
        [
            (rule.name, rule.labels.condition(context))
            for policy, context in zip(policies, contexts, strict=True)
            for rule in policy.filters
        ],
        term_count(affinity_of(document)),
    )
    if labels.required and labels.are_demanded_by(request.pod.affinity):
        return Patch()
    return Patch(assemble(document, required=labels.required), warnings=tuple(labels.warnings))


def encode(
    decision: Decision,
    request: PlacementRequest,
    view: ClusterView,
    percentage_of_nodes_to_score: int = 0,
) -> Patch:
    """Return the patch that writes a decision on its pod.

    A pod that is denied gets none, and one without candidates only the requirements that also hold
    for future nodes. A pod that carries one of our annotations was placed before, in an earlier
    round of its admission or by whoever copied its manifest: it gets no further advice, and the
    required labels only if it does not demand them already. So patching twice equals once, and an
    annotation is no way around a filter.

    Args:
        decision: the decision.
        request: the pod it was made for.
        view: the view it was made on.
        percentage_of_nodes_to_score: as in the scheduler's configuration; 0 lets the number of
            nodes decide.

    Raises:
        PatchError: the view is another one, or the operations do not apply to the pod.
    """
    if decision.view_version != view.version:
        versions = f"{decision.view_version}, not {view.version}"
        raise PatchError(f"the decision was made on another version of the view: {versions}")
    if decision.verdict is Verdict.DENY:
        return Patch()
    document = read_document(request.raw)

    # 1. Required labels: filters that the scheduler enforces from here on.
    labels = required_labels(decision.filters, term_count(affinity_of(document)))
    promised = () if labels.are_demanded_by(request.pod.affinity) else labels.required
    if not request.pod.annotations.keys().isdisjoint(ANNOTATIONS):
        return Patch(assemble(document, required=promised))
    placing = decision.verdict is Verdict.PLACE and bool(len(decision.ranking))
    if not placing and not labels.required:
        return Patch()

    # 2. Exclusion of rejected nodes, if the policy wants its filters to be binding.
    rejections, hostnames = Rejections(decision, labels.enforced), Hostnames(view)
    exclusion, placement = Exclusion(), decision.placement
    if placing and placement.dynamic_filters is DynamicFilters.REQUIRED:
        excluded = excludable(decision.filters, labels.enforced, decision.valid)
        exclusion = exclusion_of(excluded, view, hostnames, placement.max_nodes)

    # 3. Preferred terms, with as much weight as the user's own terms have.
    budget = weight_budget(_user_weights(request.pod.affinity))
    nodes = len(decision.ranking) + sum(decision.first_rejections)
    names = names_needed(nodes, rejections.feasible, percentage_of_nodes_to_score)
    preferred = preferred_terms(decision, view, hostnames, rejections, budget, names)

    # 4. Annotations.
    uid, terms = str(request.request.get("uid", "")), len(preferred.terms)
    advice = advice_of(decision, preferred.best_tier, uid, terms=terms)
    annotations = annotations_of(decision, advice)

    # 5. All of it as operations, tried on the pod.
    operations = assemble(
        document,
        required=exclusion.added_to(promised),
        preferred=preferred.terms,
        annotations=annotations,
    )
    warnings = (*labels.warnings, *exclusion.warnings, *preferred.warnings)
    return Patch(operations, advice, warnings, preferred.turns)


def _user_weights(affinity: api.NodeAffinity | None) -> int:
    if affinity is None:
        return 0
    terms = affinity.preferred_during_scheduling_ignored_during_execution or ()
    return sum(term.weight for term in terms)
