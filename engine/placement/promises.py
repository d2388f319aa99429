"""Promises of filters on node labels, written on a new pod before any node is judged.

A pod that is held, or whose node is decided at its binding, needs them from its creation on:
whoever releases or binds it, the scheduler keeps what filters promise.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.model.request import PlacementRequest
from engine.model.time import Micros
from engine.placement.affinity import term_count
from engine.placement.patch import Patch, affinity_of, assemble, read_document
from engine.placement.required_labels import promised_labels
from engine.policy import CompiledPolicy
from engine.view import ClusterView


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
