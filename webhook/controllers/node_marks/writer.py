"""Writes of marks on one node: our taint and our labels, and nothing else of it.

The node is read right before, and the patch applies to that version alone: the place of a taint in
the list, and whether there is a list at all, may change at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import msgspec
from aiolimiter import AsyncLimiter
from jsonpointer import escape

from engine.model.node_marks import AVOID_TAINT, MARK_VALUE, is_mark_label
from engine.model.taints import PREFER_NO_SCHEDULE
from engine.model.time import Micros, micros
from webhook.cluster.client.connection import ApiError, Connection

NODES: Final = "/api/v1/nodes"

Operation: TypeAlias = dict[str, Any]
"""One JSON Patch operation."""

_JSON_PATCH: Final = "application/json-patch+json"
_SECONDS_PER_WRITE: Final = 0.2  # at most 5 in a second, never two at once
_CONFLICTS: Final = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
_REFUSALS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    resource_version: str
    creation_timestamp: datetime | None = None
    labels: dict[str, str] | None = None


class _Taint(msgspec.Struct, frozen=True):
    key: str = ""
    effect: str = ""


class _Spec(msgspec.Struct, frozen=True):
    taints: tuple[_Taint, ...] | None = None


class MarkedNode(msgspec.Struct, frozen=True):
    """The part of a Node that marks are written on."""

    metadata: _Metadata
    spec: _Spec = _Spec()

    @property
    def created(self) -> Micros | None:
        """Its creation time."""
        created = self.metadata.creation_timestamp
        return None if created is None else micros(created)

    @property
    def marks(self) -> frozenset[str]:
        """Keys of our taint and labels on it."""
        labels = filter(is_mark_label, self.metadata.labels or ())
        return frozenset((*labels, *(AVOID_TAINT for _ in self.avoidances)))

    @property
    def avoidances(self) -> tuple[int, ...]:
        """The places of our taint among its taints."""
        ours = (AVOID_TAINT, PREFER_NO_SCHEDULE)
        taints = enumerate(self.spec.taints or ())
        return tuple(place for place, taint in taints if (taint.key, taint.effect) == ours)


class Outcome(StrEnum):
    """What became of a write."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"  # it is as it should be
    GONE = "gone"
    CHANGED = "changed"  # by another writer at that moment: it is tried again
    REFUSED = "refused"  # we lack the right
    FAILED = "failed"  # no answer, or an API server in trouble


def mark_operations(node: MarkedNode, wanted: Collection[str]) -> list[Operation]:
    """Return the operations that leave a node with the marks of these keys and no other.

    They apply to no other version of the node; none if there is nothing to change.
    """
    operations = [*_taint_operations(node, AVOID_TAINT in wanted), *_label_operations(node, wanted)]
    if not operations:
        return []
    version = node.metadata.resource_version
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]


def _taint_operations(node: MarkedNode, is_wanted: bool) -> Iterator[Operation]:  # noqa: FBT001 - of two states
    path = "/spec/taints"
    if not is_wanted:
        for place in reversed(node.avoidances):  # from the end: the others keep their places
            yield {"op": "remove", "path": f"{path}/{place}"}
    elif not node.avoidances:
        taint = {"key": AVOID_TAINT, "effect": PREFER_NO_SCHEDULE}
        if node.spec.taints is None:
            yield {"op": "add", "path": path, "value": [taint]}
        else:
            yield {"op": "add", "path": f"{path}/-", "value": taint}


def _label_operations(node: MarkedNode, wanted: Collection[str]) -> Iterator[Operation]:
    path, labels = "/metadata/labels", node.metadata.labels
    missing = sorted(key for key in wanted if is_mark_label(key) and key not in (labels or ()))
    if labels is None and missing:
        yield {"op": "add", "path": path, "value": {}}
    for key in missing:
        yield {"op": "add", "path": f"{path}/{escape(key)}", "value": MARK_VALUE}
    for key in sorted(key for key in labels or () if is_mark_label(key) and key not in wanted):
        yield {"op": "remove", "path": f"{path}/{escape(key)}"}


class NodeWriter:
    """Writes marks, at most 5 in a second.

    Args:
        connection: to the API server.
        may_write: asked right before each write.
        limiter: of the writes.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        may_write: Callable[[], bool] = lambda: True,
        limiter: AsyncLimiter | None = None,
    ) -> None:
        self._connection = connection
        self._may_write = may_write
        self._limiter = limiter or AsyncLimiter(1, _SECONDS_PER_WRITE)

    async def write(
        self, name: str, marks_of: Callable[[MarkedNode], Collection[str]]
    ) -> tuple[Outcome, str]:
        """Read a node and change its marks; return the outcome, and why it failed.

        Args:
            name: of the node.
            marks_of: the keys that the node, as it was read, is to have.
        """
        path = f"{NODES}/{name}"
        try:
            node = msgspec.json.decode(await self._connection.get(path), type=MarkedNode)
            operations = mark_operations(node, marks_of(node))
            if not operations:
                return Outcome.UNCHANGED, ""
            await self._limiter.acquire()
            if not self._may_write():
                return Outcome.CHANGED, "this replica no longer leads"
            await self._connection.write(
                "PATCH", path, msgspec.json.encode(operations), content_type=_JSON_PATCH
            )
        except ApiError as error:
            return _outcome_of(error), error.message
        except msgspec.DecodeError as error:  # a proxy answered
            return Outcome.FAILED, str(error)
        return Outcome.WRITTEN, ""


def _outcome_of(error: ApiError) -> Outcome:
    if error.status == HTTPStatus.NOT_FOUND:
        return Outcome.GONE
    if error.status in _CONFLICTS:
        return Outcome.CHANGED
    return Outcome.REFUSED if error.status in _REFUSALS else Outcome.FAILED
