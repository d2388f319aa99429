"""Patches of pods that are released, or were: made for the pod as it is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

import jsonpointer
import msgspec

from engine.errors import PatchError
from engine.model.hold import HOLD_GATE
from webhook.cluster.decode_errors import UNREADABLE

Operation: TypeAlias = Mapping[str, Any]
"""An operation of RFC 6902."""

NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
"""Nothing to annotate."""

_ANNOTATIONS: Final = "/metadata/annotations"
_TRIED_IN_VAIN: Final = ("PodScheduled", "False", "Unschedulable")


class _Metadata(TypedDict, total=False):
    uid: str
    resourceVersion: str
    annotations: dict[str, str] | None


class _Spec(TypedDict, total=False):
    nodeName: str
    preemptionPolicy: str | None
    schedulingGates: list[dict[str, str]] | None


class _Condition(TypedDict, total=False):
    type: str
    status: str
    reason: str


class _Status(TypedDict, total=False):
    nominatedNodeName: str
    conditions: list[_Condition] | None


class _Document(TypedDict):
    """The part of a pod that a patch of ours reads or touches; the rest is skipped."""

    metadata: _Metadata
    spec: _Spec
    status: NotRequired[_Status]


_document_of: Final = msgspec.json.Decoder(_Document).decode


def release_patch(
    raw: bytes,
    uid: str,
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> tuple[Operation, ...]:
    """Return the operations that remove our gate and annotate a pod.

    They apply to the pod with this uid alone, where our gate still is at its place, and where
    nobody changed meanwhile what they replace.

    Args:
        raw: the pod as JSON.
        uid: of the pod that is to be released.
        annotations: to add.

    Raises:
        PatchError: it is another pod, or our gate is gone.
    """
    document = _document(raw)
    if document["metadata"].get("uid") != uid:
        raise PatchError("another pod has its name")
    unchanged = [_test("/metadata/uid", uid)]
    if annotations and not document["metadata"].get("annotations"):
        unchanged.append(_test(_ANNOTATIONS, None))  # holds where there are none
    gate = _without_gate(document["spec"])
    return (*unchanged, *gate, *_annotating(document["metadata"], annotations))


def stale_nomination_patch(raw: bytes, uid: str, node_name: str) -> Mapping[str, Any] | None:
    """Return the merge patch of a pod's status that withdraws its nomination, None to leave it.

    It applies to this version of the pod alone. It is left to a pod that is bound, or nominated to
    another node, and to one that the scheduler has tried in vain and may evict others for: a cycle
    that fails takes a nomination back, but for the one by which the scheduler keeps the room of its
    victims. A pod with `preemptionPolicy: Never` keeps any, and so it is never the scheduler's.

    Args:
        raw: the pod as JSON.
        uid: of the pod that was released.
        node_name: the node that it was nominated to.

    Raises:
        PatchError: it cannot be read.
    """
    document = _document(raw)
    metadata, spec, status = document["metadata"], document["spec"], document.get("status", {})
    if metadata.get("uid") != uid or spec.get("nodeName"):
        return None
    if status.get("nominatedNodeName") != node_name:
        return None
    if _was_tried(status) and spec.get("preemptionPolicy") != "Never":
        return None
    unchanged = {"uid": uid, "resourceVersion": metadata.get("resourceVersion", "")}
    return {"metadata": unchanged, "status": {"nominatedNodeName": None}}


def is_tried_in_vain(raw: bytes) -> bool:
    """Return whether the scheduler has said of a pod that no node takes it; not if unreadable."""
    try:
        return _was_tried(_document_of(raw).get("status", {}))
    except UNREADABLE:
        return False


def _was_tried(status: _Status) -> bool:
    return any(
        (each.get("type"), each.get("status"), each.get("reason")) == _TRIED_IN_VAIN
        for each in status.get("conditions") or ()
    )


def uid_of(raw: bytes) -> str:
    """Return the uid of a pod as JSON.

    Raises:
        PatchError: it cannot be read.
    """
    return _document(raw)["metadata"].get("uid", "")


def _document(raw: bytes) -> _Document:
    try:
        return _document_of(raw)
    except UNREADABLE as error:
        raise PatchError(f"the pod cannot be read: {error}") from error


def _without_gate(spec: _Spec) -> tuple[Operation, Operation]:
    gates = [gate.get("name", "") for gate in spec.get("schedulingGates") or ()]
    if HOLD_GATE not in gates:
        raise PatchError("the pod is not held any more")
    path = f"/spec/schedulingGates/{gates.index(HOLD_GATE)}"
    return _test(f"{path}/name", HOLD_GATE), {"op": "remove", "path": path}


def _annotating(metadata: _Metadata, annotations: Mapping[str, str]) -> list[Operation]:
    if not annotations:
        return []
    if not metadata.get("annotations"):
        return [{"op": "add", "path": _ANNOTATIONS, "value": dict(annotations)}]
    return [
        {"op": "add", "path": f"{_ANNOTATIONS}/{jsonpointer.escape(name)}", "value": value}
        for name, value in annotations.items()
    ]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}
