"""The decision for a held pod encoded as what is written with its release.

A nominated pod needs no preferred terms: the scheduler tries the nominated node first and alone.
What filters promise is on the pod since its creation. Only what it lacks is written, for when that
node is taken in the meantime: promises of policies that came since, and excluded nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.decision import Decision
from engine.model.placement_options import DynamicFilters
from engine.model.request import PlacementRequest
from engine.model.resources import Amounts
from engine.placement.affinity import Alternatives, Operation, required_terms
from engine.placement.annotations import release_annotations
from engine.placement.exclusion import Exclusion, exclusion_of
from engine.placement.hostnames import Hostnames
from engine.placement.patch import affinity_of, assemble, read_document
from engine.placement.required_labels import required_labels
from engine.placement.stored_pod import excluded_nodes
from engine.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePatch:
    """The additions to a held pod when it is released.

    Attributes:
        operations: RFC 6902 operations on its affinity, for the pod as the request has it.
        annotations: to add.
    """

    operations: tuple[Operation, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def encode_release(
    decision: Decision,
    request: PlacementRequest,
    view: ClusterView,
    *,
    estimate: Amounts,
    message: str,
) -> ReleasePatch:
    """Return what is written on a held pod beside its nomination.

    Args:
        decision: for the pod, or for another one of its template.
        request: the pod.
        view: the view that the decision was made on.
        estimate: expected usage of the pod, base units.
        message: the decision in one line for a person.

    Raises:
        PatchError: the operations do not apply to the pod.
    """
    document = read_document(request.raw)
    affinity = affinity_of(document)
    terms = required_terms(affinity)
    labels = required_labels(decision.filters, 0 if terms is None else len(terms))
    exclusion = Exclusion()
    if len(decision.ranking) and decision.placement.dynamic_filters is DynamicFilters.REQUIRED:
        rejected = excluded_nodes(decision, labels.enforced)
        exclusion = exclusion_of(rejected, view, Hostnames(view), decision.placement.max_nodes)
    promised = () if labels.are_demanded_by(request.pod.affinity) else labels.required
    required = _tightening(promised, exclusion, has_terms=terms is not None)
    operations = assemble(document, required=required)
    return ReleasePatch(operations=operations, annotations=release_annotations(estimate, message))


def _tightening(promised: Alternatives, exclusion: Exclusion, *, has_terms: bool) -> Alternatives:
    """Return requirements that may be added while a pod is gated.

    The API server lets no term of the pod's own be added or dropped then, so alternatives cannot be
    expressed beside them.
    """
    required = exclusion.added_to(promised)
    if has_terms and len(required) > 1:
        return exclusion.added_to(())
    return required
