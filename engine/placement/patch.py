"""A decision as one JSON Patch: what is required, what is preferred, and what is noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypedDict

import jsonpatch
import jsonpointer
import msgspec

from engine.errors import PatchError
from engine.model import api
from engine.model.advice import ADVICE_ANNOTATION, Advice
from engine.model.decision import Decision, DynamicFilters, Verdict
from engine.model.request import PlacementRequest
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import (
    Alternatives,
    Operation,
    affinity_tree,
    and_into_required,
    graft,
    is_empty,
    required_terms,
)
from engine.placement.annotations import ANNOTATIONS, advice_of, advice_text, annotations_of
from engine.placement.exclusion import Exclusion, Rejections, exclusion_of
from engine.placement.hostnames import Hostnames
from engine.placement.preferred_terms import Preference, preference_of
from engine.placement.required_labels import RequiredLabels, required_labels
from engine.placement.weight_tiers import weight_budget
from engine.view import ClusterView


@dataclass(frozen=True, slots=True)
class Patch:
    """What to write on a pod; everything is empty when there is nothing to write.

    Attributes:
        operations: RFC 6902 operations, in order.
        advice: what was advised, as it stands in the annotation.
        warnings: what could not be written, for the person who created the pod.
    """

    operations: tuple[Operation, ...] = ()
    advice: Advice = field(default_factory=Advice)
    warnings: tuple[str, ...] = ()

    def with_advice(self, advice: Advice) -> Patch:
        """Patch for another pod of the same template, equal but for the advice in it."""
        text = advice_text(advice)
        return replace(self, advice=advice, operations=_with_advice(self.operations, text))


_LONGEST_RULE = 63
_ADVICE_PATH = f"/metadata/annotations/{jsonpointer.escape(ADVICE_ANNOTATION)}"
_WHY = f"label {HOSTNAME_LABEL} is missing or not unique"


class _Metadata(TypedDict, total=False):
    annotations: dict[str, Any] | None


class _Spec(TypedDict, total=False):
    affinity: dict[str, Any] | None


class _Touched(TypedDict, total=False):
    """The part of a pod that a patch can touch, as plain JSON; all else is skipped unread."""

    metadata: _Metadata | None
    spec: _Spec | None


_touched = msgspec.json.Decoder(_Touched).decode


def patch_for(decision: Decision, request: PlacementRequest, view: ClusterView) -> Patch:
    """Return how a decision is written on its pod.

    A pod that is denied gets nothing, and one for which there is no node now only what holds for
    nodes to come. A pod that carries one of our annotations was placed before, in an earlier round
    of its admission or by whoever kept its manifest: it gets no further advice, and what filters
    say of labels only if it does not demand that already. So patching twice equals once, and an
    annotation is no way around a filter.

    Args:
        decision: what was decided.
        request: the pod it was decided for.
        view: the view it was decided on.

    Raises:
        PatchError: the view is another one, or the operations do not apply to the pod.
    """
    if decision.view_version != view.version:
        versions = f"{decision.view_version}, not {view.version}"
        raise PatchError(f"the decision was made on another version of the view: {versions}")
    if decision.verdict is Verdict.DENY:
        return Patch()
    # 1. What is required: what filters say of labels, and from here on the scheduler with them.
    document = _touched(request.raw)
    affinity = (document.get("spec") or {}).get("affinity")
    promise = required_labels(
        decision, sum(not is_empty(t) for t in required_terms(affinity) or ())
    )
    if not request.pod.annotations.keys().isdisjoint(ANNOTATIONS):
        return _repatch(promise, request, document)
    placing = decision.verdict is Verdict.PLACE and bool(decision.candidates.size)
    if not placing and not promise.required:
        return Patch()
    # 2. What else is required: no rejected node, if the policy wants its filters to be binding.
    rejections, hostnames = Rejections(decision, promise.kept), Hostnames(view)
    exclusion, placement = Exclusion(), decision.placement
    if placing and placement.dynamic_filters is DynamicFilters.REQUIRED:
        exclusion = exclusion_of(rejections.rejected, view, hostnames, placement.max_nodes)
    required = _required(promise, exclusion)
    # 3. What is preferred, with as much to say as the user's own terms have.
    total_weight = weight_budget(_weights(request.pod.affinity))
    preference = preference_of(decision, view, hostnames, rejections, total_weight)
    # 4. What is noted, and all of it as operations, tried on the pod before anyone else does.
    advice = advice_of(decision, preference.best_tier, str(request.request.get("uid", "")))
    annotations = annotations_of(decision, advice)
    operations = _operations(document, annotations, required, preference)
    ensure_applies(operations, document)
    return Patch(operations, advice, _warnings(promise, exclusion, preference))


def _repatch(promise: RequiredLabels, request: PlacementRequest, document: _Touched) -> Patch:
    """Return what is still missing of a promise on a pod that was placed before."""
    if promise.is_kept_by(request.pod.affinity):
        return Patch()
    affinity = (document.get("spec") or {}).get("affinity")
    tree = {"spec": {"affinity": affinity_tree(affinity, promise.required, ())}}
    operations = (*graft(document, tree, ""), *and_into_required(affinity, promise.required))
    ensure_applies(operations, document)
    return Patch(operations)


def _required(promise: RequiredLabels, exclusion: Exclusion) -> Alternatives:
    """Return what is required in all; the exclusion goes into every alternative."""
    if not exclusion.requirements:
        return promise.required
    alternatives: Alternatives = promise.required or ((),)
    return [[*alternative, *exclusion.requirements] for alternative in alternatives]


def _operations(
    document: _Touched,
    annotations: Mapping[str, str],
    required: Alternatives,
    preference: Preference,
) -> tuple[Operation, ...]:
    """Return the operations that bring all of it into the pod."""
    affinity = (document.get("spec") or {}).get("affinity")
    added: dict[str, Any] = {"metadata": {"annotations": annotations}}
    to_affinity = affinity_tree(affinity, required, preference.terms)
    if to_affinity:
        added["spec"] = {"affinity": to_affinity}
    return (*graft(document, added, ""), *and_into_required(affinity, required))


def _with_advice(operations: Sequence[Operation], text: str) -> tuple[Operation, ...]:
    """Operations with another advice, wherever `graft` has put its annotation."""
    annotation: Any = {ADVICE_ANNOTATION: text}
    changed: list[Operation] = []
    for operation in operations:
        path, value = operation["path"], operation["value"]
        if path == _ADVICE_PATH:
            value = text
        elif path == "/metadata/annotations":
            value = value | annotation
        elif path == "/metadata":
            value = {"annotations": value["annotations"] | annotation}
        changed.append({**operation, "value": value})
    return tuple(changed)


def ensure_applies(operations: Sequence[Operation], document: Mapping[str, Any]) -> None:
    """Apply operations to `document`, in place: what fails here would fail at the API server.

    There a patch that does not apply is an internal error, even under failurePolicy Ignore. Nulls
    are added in place of the values, which jsonpatch would copy name by name: that finds the same
    faults, and would also find an operation that points into what another one adds.

    Args:
        operations: all of them `add`.
        document: has nulls at their paths afterwards.

    Raises:
        PatchError: an operation does not apply.
    """
    try:
        for operation in operations:
            _adding_null(operation["path"]).apply(document)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(f"the patch does not apply to the pod: {error}") from error


@lru_cache(maxsize=64)
def _adding_null(path: str) -> jsonpatch.AddOperation:
    """Return the operation that adds a null; most pods get theirs at the same few paths."""
    return jsonpatch.AddOperation({"op": "add", "path": path, "value": None})


def _weights(affinity: api.NodeAffinity | None) -> int:
    """Return the sum of the weights of the user's preferred terms."""
    if affinity is None:
        return 0
    terms = affinity.preferred_during_scheduling_ignored_during_execution or ()
    return sum(term.weight for term in terms)


def _warnings(
    promise: RequiredLabels, exclusion: Exclusion, preference: Preference
) -> tuple[str, ...]:
    """Return what could not be written, each below the 120 characters that clients show."""
    warnings = [
        f"filter {rule[:_LONGEST_RULE]} is not required of nodes: it takes too many terms"
        for rule in promise.left_out
    ]
    if exclusion.left_out:
        warnings.append(
            f"{exclusion.left_out} rejected nodes are not excluded: too many, or {_WHY}"
        )
    if preference.left_out:
        warnings.append(f"{preference.left_out} nodes are not preferred as they should be: {_WHY}")
    return tuple(warnings)
