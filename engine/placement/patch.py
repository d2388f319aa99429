"""A patch of a pod: its operations, assembled and tried on the pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypedDict

import jsonpatch
import jsonpointer
import msgspec

from engine.errors import PatchError
from engine.model.advice import Advice
from engine.model.decision import Decision
from engine.model.request import PlacementRequest
from engine.placement.affinity import (
    Alternatives,
    Operation,
    affinity_tree,
    and_into_required,
    graft,
)
from engine.placement.turns import Turns
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
    """Return the operations that add requirements, preferred terms and annotations to a pod.

    Raises:
        PatchError: they do not apply to the pod.
    """
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
    """Return the operation that adds a null; most pods share the same few paths."""
    return jsonpatch.AddOperation({"op": "add", "path": path, "value": None})
