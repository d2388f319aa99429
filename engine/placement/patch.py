"""A patch of a pod: its operations, assembled and tried on the pod."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

import jsonpatch
import jsonpointer
import msgspec
from msgspec import structs

from engine.errors import PatchError
from engine.model.decision import Advice, Decision, PlacementRequest
from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    RELEASE_BY_ANNOTATION,
)
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros, date, micros
from engine.placement.affinity import (
    Alternatives,
    Operation,
    affinity_tree,
    and_into_required,
    graft,
)
from engine.placement.annotations import advice_id, advice_text, fitted
from engine.placement.preferred_terms import Turns
from engine.view import ClusterView


@dataclass(frozen=True, slots=True)
class Patch:
    """The additions to a pod; everything is empty when there is nothing to add.

    Attributes:
        operations: RFC 6902 operations, in order.
        advice: the advice in the annotation.
        warnings: what could not be written, for the person who created the pod.
        turns: of pods that share the decision; None where their terms are the same.
    """

    operations: tuple[Operation, ...] = ()
    advice: Advice = field(default_factory=Advice)
    warnings: tuple[str, ...] = ()
    turns: Turns | None = None


Encoder: TypeAlias = Callable[[Decision, PlacementRequest, ClusterView], Patch]
"""Writes a decision on its pod; gets the view that the decision was made on."""


class _Metadata(TypedDict, total=False):
    annotations: dict[str, Any] | None


class _Spec(TypedDict, total=False):
    affinity: dict[str, Any] | None
    schedulingGates: list[Any] | None


class PodDocument(TypedDict, total=False):
    """The part of a pod that a patch can touch, as plain JSON; the rest is skipped."""

    metadata: _Metadata | None
    spec: _Spec | None


read_document: Final = msgspec.json.Decoder(PodDocument).decode


def affinity_of(document: PodDocument) -> Mapping[str, Any] | None:
    """Return the `spec.affinity` of a pod."""
    return (document.get("spec") or {}).get("affinity")


def assemble(
    document: PodDocument,
    *,
    required: Alternatives,
    preferred: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
) -> tuple[Operation, ...]:
    """Return the operations that add requirements, preferred terms and annotations to a pod."""
    affinity = affinity_of(document)
    added: dict[str, Any] = {"metadata": {"annotations": annotations}} if annotations else {}
    to_affinity = affinity_tree(affinity, required, preferred)
    if to_affinity:
        added["spec"] = {"affinity": to_affinity}
    operations = (*graft(document, added, ""), *and_into_required(affinity, required))
    ensure_applies(operations, document)
    return operations


def ensure_applies(operations: Sequence[Operation], document: Mapping[str, Any]) -> None:
    """Apply operations to `document`, in place: a failure here would be one at the API server.

    There a patch that does not apply is an internal error, even under failurePolicy Ignore. Nulls
    are added instead of the values, which jsonpatch would copy name by name: that finds the same
    faults, and also an operation that points into the value of another.
    """
    try:
        for operation in operations:
            _adding_null(operation["path"]).apply(document)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise PatchError(f"the patch does not apply to the pod: {error}") from error


@lru_cache(maxsize=64)
def _adding_null(path: str) -> jsonpatch.AddOperation:
    """Return the operation that adds a null; most pods share the same few paths."""
    return jsonpatch.AddOperation({"op": "add", "path": path, "value": None})


# The patch of a decision for other pods of its template, as text.
#
# Only the names of nodes and the advice differ between them, so the rest is encoded once.


_HOLES: Final = tuple(msgspec.Raw(bytes([number])) for number in range(3))
"""For the advice and two lists of names: control characters, which JSON has escaped only."""

_HOLE: Final = re.compile(rb"([\0-\2])")
_encode: Final = msgspec.json.Encoder().encode


class SharedPatch(NamedTuple):
    """The patch of one of the pods that share a decision.

    Attributes:
        document: the JSON Patch.
        advice: the advice in it.
    """

    document: bytes
    advice: Advice


class PatchTemplate:
    """The patch of a decision, to be filled in for each pod that shares it.

    Args:
        patch: of the pod that the decision was made for; has an advice with an id.
    """

    def __init__(self, patch: Patch) -> None:
        self._advice = patch.advice
        self._turns = patch.turns
        lists = [] if patch.turns is None else patch.turns.lists
        holes = {id(names): hole for names, hole in zip(lists, _HOLES[1:], strict=False)}
        text, hole = advice_text(patch.advice), _HOLES[0]
        operations = _with_holes(
            patch.operations, lambda value: hole if value == text else holes.get(id(value))
        )
        *pairs, self._end = _HOLE.split(_encode(operations))
        self._parts = list(zip(pairs[::2], (ord(number) for number in pairs[1::2]), strict=True))

    def filled(self, number: int, review_uid: str) -> SharedPatch:
        """Return the patch of another pod, with an advice of its own.

        The scheduler will not put all of them on one node either, and each counts on its best node
        until it is bound.

        Args:
            number: how many pods have had one before.
            review_uid: of the admission review.
        """
        nodes, turns = self._advice.nodes, self._turns
        lists: Sequence[Sequence[str]] = ()
        if turns is not None:
            lists, nodes = turns.listed(number), turns.nodes(number)
            number //= turns.count
        first = number % max(1, len(nodes))
        nodes = nodes[first:] + nodes[:first]
        advice = fitted(structs.replace(self._advice, nodes=nodes, id=advice_id(review_uid)))
        fillings = [_encode(advice_text(advice)), *map(_encode, lists)]
        parts = [part for text, hole in self._parts for part in (text, fillings[hole])]
        return SharedPatch(b"".join([*parts, self._end]), advice)


def _with_holes(value: Any, hole_for: Callable[[Any], msgspec.Raw | None]) -> Any:  # noqa: ANN401 (JSON)
    """Return a value with holes, wherever `graft` has put what they stand for."""
    hole = hole_for(value)
    if hole is not None:
        return hole
    if isinstance(value, dict):
        return {key: _with_holes(each, hole_for) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_holes(each, hole_for) for each in value]
    return value


_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


def hold_patch(
    pod: Pod,
    raw: bytes,
    *,
    reasons: str,
    now: Micros,
    seconds: int,
    after: Sequence[Operation] = (),
) -> tuple[Operation, ...]:
    """Return the operations that hold a pod; none for one that is held already.

    So patching twice equals once. What a pod says of itself is believed only as far as this hold
    could have written it: another reason, or another moment than one within the bound, is replaced.

    Args:
        pod: the model of the pod.
        raw: the same, as JSON.
        reasons: why it is held, separated by commas.
        now: the moment from which it is held.
        seconds: the bound of a hold.
        after: operations that are made on the pod before, none of them on gates or on annotations
            of a hold.

    Raises:
        PatchError: the operations do not apply to the pod.
    """
    added: dict[str, Any] = {}
    if not (pod.is_held and _is_ours(pod, reasons, now, seconds)):
        release_by = date(Micros(now + seconds * SECOND)).strftime(_FORMAT)
        annotations = {
            HOLD_REASONS_ANNOTATION: reasons,
            RELEASE_BY_ANNOTATION: release_by,
        }
        added["metadata"] = {"annotations": annotations}
    if not pod.is_held:
        added["spec"] = {"schedulingGates": [{"name": HOLD_GATE}]}
    document = read_document(raw)
    if after:
        document = jsonpatch.apply_patch(document, list(after), in_place=True)
    operations = tuple(graft(document, added, ""))
    ensure_applies(operations, document)
    return operations


def _is_ours(pod: Pod, reasons: str, now: Micros, seconds: int) -> bool:
    """Return whether the annotations of a pod are those of a hold that began a moment ago."""
    if pod.annotations.get(HOLD_REASONS_ANNOTATION) != reasons:
        return False
    try:
        text = pod.annotations.get(RELEASE_BY_ANNOTATION, "")
        release_by = micros(datetime.strptime(text, _FORMAT).replace(tzinfo=UTC))
    except ValueError:
        return False
    return now < release_by <= now + seconds * SECOND
