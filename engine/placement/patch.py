"""A patch of a pod: its annotations, and its operations, assembled and tried on the pod.

Tens of thousands of pods carry the annotations, estimated usage, advice and a line for a person,
and every replica reads the advice back from its watch: 1 KiB at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict

import jsonpatch
import jsonpointer
import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.errors import PatchError
from engine.model.decision import ADVICE_ANNOTATION, MOST_NODES, Advice, Decision, PlacementRequest
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from engine.model.pod import Pod
from engine.model.quantity import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    MILLI,
    NANO,
    Format,
    Quantity,
    is_huge_pages,
)
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros, date, micros
from engine.placement.affinity import (
    Alternatives,
    Operation,
    affinity_tree,
    and_into_required,
    graft,
)
from engine.placement.preferred_terms import Turns
from engine.view import ClusterView

ESTIMATED_USAGE_ANNOTATION = "stowplan.dev/estimated-usage"
"""JSON object of resource name to quantity: what the pod is expected to use."""

REASON_ANNOTATION = "stowplan.dev/reason"
"""One line for a person."""

ANNOTATIONS = (ESTIMATED_USAGE_ANNOTATION, ADVICE_ANNOTATION, REASON_ANNOTATION)

MAX_BYTES = 1024
"""The most our annotations take together, keys and values."""

_ESTIMATE_BYTES = 256
_ADVICE_BYTES = 448
_SURELY_FITTING_BYTES = _ADVICE_BYTES - 32  # less is counted for empty lists
_LONGEST_REASON = 256
_ID_BYTES = 8
_CUT = "..."
_BINARY = frozenset({MEMORY, EPHEMERAL_STORAGE})


def advice_of(
    decision: Decision, best_tier: NDArray[np.intp], review_uid: str, *, terms: int = 0
) -> Advice:
    """Return the advice, cut to the size of its annotation."""
    names = tuple([decision.names[row] for row in best_tier[:MOST_NODES].tolist()])
    advice = Advice(decision.policies, names, len(decision.ranking), advice_id(review_uid), terms)
    return fitted(advice)


def fitted(advice: Advice) -> Advice:
    """Return an advice without the names that its annotation has no room for."""
    if len(msgspec.json.encode(advice)) <= _SURELY_FITTING_BYTES:
        return advice
    framed = msgspec.structs.replace(advice, policies=("",), nodes=("",))
    room = _ADVICE_BYTES - len(msgspec.json.encode(framed))
    nodes = _fitting(advice.nodes, room)
    policies = _fitting(advice.policies, room - sum(map(_item_bytes, nodes)))
    return msgspec.structs.replace(advice, policies=policies, nodes=nodes)


def advice_id(review_uid: str) -> str:
    """Return a short identifier for a review's advice; nothing bounds the uid itself."""
    if not review_uid:
        return ""
    return blake2b(review_uid.encode(), digest_size=_ID_BYTES).hexdigest()


def advice_text(advice: Advice) -> str:
    """Value of the annotation with an advice."""
    return msgspec.json.encode(advice).decode()


def annotations_of(decision: Decision, advice: Advice) -> dict[str, str]:
    """Return the annotations to add, at most `MAX_BYTES` with their keys."""
    annotations = {ADVICE_ANNOTATION: advice_text(advice)}
    estimate = _estimate_text(decision.estimate)
    if estimate:
        annotations[ESTIMATED_USAGE_ANNOTATION] = estimate
    written = "".join((*annotations, *annotations.values(), REASON_ANNOTATION))
    reason = _cut(" ".join(decision.message.split()), MAX_BYTES - len(written.encode()))
    if reason:
        annotations[REASON_ANNOTATION] = reason
    return annotations


def release_annotations(estimate: Amounts, message: str) -> dict[str, str]:
    """Return the annotations of a pod that was decided when it was released.

    Args:
        estimate: expected usage of the pod, base units.
        message: one line for a person.
    """
    annotations = {}
    text = _estimate_text(estimate)
    if text:
        annotations[ESTIMATED_USAGE_ANNOTATION] = text
    reason = _cut(" ".join(message.split()), _LONGEST_REASON)
    if reason:
        annotations[REASON_ANNOTATION] = reason
    return annotations


def _estimate_text(estimate: Amounts) -> str:
    """Return the estimate as JSON, Kubernetes' own resources first; "" when there is none."""
    names = sorted(estimate, key=lambda name: ("/" in name, name))
    texts = {name: _quantity_text(name, estimate[name]) for name in names}
    while len(text := msgspec.json.encode(texts)) > _ESTIMATE_BYTES:
        texts.popitem()
    return text.decode() if texts else ""


def _quantity_text(name: str, amount: int) -> str:
    """Return an amount in base units as Kubernetes writes it: `850m`, `1Gi`."""
    if name == CPU:
        return _canonical(amount, MILLI, Format.DECIMAL_SI)
    binary = name in _BINARY or is_huge_pages(name)
    return _canonical(amount, 0, Format.BINARY_SI if binary else Format.DECIMAL_SI)


@lru_cache(maxsize=1024)
def _canonical(amount: int, scale: int, style: Format) -> str:
    """Return an amount in units of 10**scale as text; pods of one template share it."""
    return Quantity(amount * 10 ** (scale - NANO), style).canonical()


def _fitting(items: Sequence[str], room: int) -> tuple[str, ...]:
    """Return as many of the first items as fit into `room` bytes of a JSON array."""
    for count, item in enumerate(items):
        room -= _item_bytes(item)
        if room < 0:
            return tuple(items[:count])
    return tuple(items)


def _item_bytes(item: str) -> int:
    """Return the bytes of a text in a JSON array, with its comma."""
    return len(msgspec.json.encode(item)) + 1


def _cut(text: str, room: int) -> str:
    """Return the text, or its start and `...`, in at most `room` bytes."""
    encoded = text.encode()
    if len(encoded) <= room:
        return text
    return encoded[: room - len(_CUT)].decode(errors="ignore") + _CUT


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
