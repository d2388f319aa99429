"""A pod as it will be stored: the affinity that policies add counts before it is written.

Topology spread counts the nodes that a pod's required affinity allows. The scheduler reads that of
the stored pod, so a decision must, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from engine.model.decision import PlacementRequest, advice_in
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.model.policy_resource import DynamicFilters, PlacementOptions
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome, and_not
from engine.model.selectors import Operator, Requirement
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import (
    PREFERRED,
    Hostnames,
    exclusion_of,
    promised_labels,
    required_labels,
)
from engine.placement.patch import ANNOTATIONS
from engine.policy import CompiledPolicy, RuleContext
from engine.view import BoolColumn, ClusterView, Freshness

# A pod as it was submitted: without what was written on it since, by us or for its node.
#
# What filters promise stays in its required affinity: it cannot be told from the pod's own, and
# whoever decides for the pod again has to obey it.


_OURS: Final = (*ANNOTATIONS, RELEASED_ANNOTATION)
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


def as_submitted(raw: bytes) -> bytes:
    """Return a stored pod as JSON without its node, status, and our annotations and preferences.

    The preferred terms of an advice are the last ones of the pod, as many as the advice says.

    Args:
        raw: the pod as the API server sends it.
    """
    pod = _decode(raw)
    annotations = dict((pod.get("metadata") or {}).get("annotations") or {})
    advice = advice_in(annotations)
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key != "nodeName"}
    if advice is not None and advice.terms > 0:
        spec["affinity"] = _without_preferred(spec.get("affinity") or {}, advice.terms)
    for name in _OURS:
        annotations.pop(name, None)
    metadata = {**(pod.get("metadata") or {}), "annotations": annotations}
    return msgspec.json.encode({**pod, "metadata": metadata, "spec": spec, "status": {}})


def _without_preferred(affinity: dict[str, Any], terms: int) -> dict[str, Any]:
    """Return the affinity of a pod without its last preferred terms."""
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = of_nodes.get(PREFERRED) or []
    return {**affinity, "nodeAffinity": {**of_nodes, PREFERRED: preferred[:-terms]}}


SPREAD = "PodTopologySpread"
"""The one filter of the scheduler that reads the affinity of a pod for other nodes, too."""


def contexts_of(
    policies: Sequence[CompiledPolicy],
    request: PlacementRequest,
    view: ClusterView,
    now: Micros,
    freshness: Freshness,
) -> list[RuleContext]:
    """Return contexts of policies that all apply to a pod, which has their label promises."""
    contexts = [policy.context(request, view, now, freshness) for policy in policies]
    filters = [
        (rule.name, rule.labels.condition(context))
        for policy, context in zip(policies, contexts, strict=True)
        for rule in policy.filters
    ]
    promised = promised_labels(filters, _own_terms(request.pod)) if filters else None
    if promised is not None and promised.required:
        pod = replace(request.pod, promised=promised.condition.terms)
        for context in contexts:
            context.pod = pod
    return contexts


def excludable(
    filters: Sequence[FilterOutcome], enforced: Sequence[FilterOutcome], nodes: BoolColumn
) -> BoolColumn:
    """Return the nodes that a pod is kept off where its dynamic filters are required, (n,).

    Those that the scheduler would accept and a policy rejects. Whether the pods of other nodes
    leave them room by topology spread does not count: that depends on which nodes these are.
    """
    rejected = nodes & False
    for outcome in filters:
        if outcome.policy == SCHEDULER or outcome in enforced:
            if outcome.rule != SPREAD or outcome.policy != SCHEDULER:
                nodes = and_not(nodes, outcome.rejects)
        else:
            rejected = rejected | outcome.rejects
    return nodes & rejected


def is_kept_off(context: RuleContext, placement: PlacementOptions) -> bool:
    """Return whether nodes that filters reject change how a pod finds other pods spread."""
    pod = context.pod
    is_spread = bool(pod.topology_spread or pod.soft_topology_spread)
    return is_spread and placement.dynamic_filters is DynamicFilters.REQUIRED


def with_exclusion(
    context: RuleContext, filters: Sequence[FilterOutcome], nodes: BoolColumn, max_nodes: int
) -> RuleContext:
    """Return a context whose pod is kept off the nodes that filters reject."""
    view = context.view
    enforced = required_labels(filters, _own_terms(context.pod)).enforced
    rejected = excludable(filters, enforced, nodes)
    exclusion = exclusion_of(rejected, view, Hostnames(view), max_nodes)
    if not exclusion.requirements:
        return context
    (written,) = exclusion.requirements
    listed = Requirement(HOSTNAME_LABEL, Operator.NOT_IN, frozenset(written["values"]))
    kept_off = context.on(view)
    kept_off.errors = context.errors
    alternatives = context.pod.promised or ((),)
    kept_off.pod = replace(
        context.pod, promised=tuple([(*alternative, listed) for alternative in alternatives])
    )
    return kept_off


def _own_terms(pod: Pod) -> int:
    """Return how many required terms a pod has, without empty ones."""
    required = pod.affinity and pod.affinity.required_during_scheduling_ignored_during_execution
    terms = (required.node_selector_terms or ()) if required else ()
    return sum(bool(term.match_expressions or term.match_fields) for term in terms)
