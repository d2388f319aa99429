"""The selection as it is stored: in our own ValidatingWebhookConfiguration.

    webhook `quota.stowplan.dev`           namespaceSelector: what the chart says, and our list
    webhook `rollout-probe.stowplan.dev`   objectSelector: the stamp of the version that has that
                                           list, by which an API server can be asked whether it
                                           has taken it up
    annotation `stowplan.dev/quota-rollout`  the announcement of a narrowing

The names are in the selector, not in a label of Namespaces: whoever may update a Namespace could
remove a label, and so get round a quota. Every write is refused if the configuration has changed
since it was read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import jsonpointer
import msgspec

from engine.errors import StowplanError, counted
from engine.model.well_known import (
    LIST_MARK,
    NAMESPACE_LABEL,
    NARROWING_ANNOTATION,
    PROBE_WEBHOOK,
    QUOTA_WEBHOOK,
    STAMP_LABEL,
)
from engine.quota import Reach
from webhook.cluster.client.connection import ApiError, Requests, change, find

MOST_NAMES = 10_000
"""Names in a selector; beyond it all namespaces are selected. At 63 characters each they take half
of the 1.5 MB that an object may have.
"""

_MOST_KEPT = 1_000  # in an annotation; all annotations together have 256 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """An announcement of the leader that it will narrow the selection."""

    id: str  # of the announcement; no two have the same
    keep: frozenset[str] = frozenset()  # namespaces that were needed since, and stay


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The namespaces that are asked about."""

    names: Reach  # of the namespaces, None for all but those that are excluded
    narrowing: Narrowing | None = None  # the announcement that they will be fewer, None for none

    def covers(self, reach: Reach) -> bool:
        """Whether all these namespaces are asked about."""
        return self.names is None or (reach is not None and reach <= self.names)


def covering(selection: Selection, reach: Reach) -> Selection:
    """Return a selection with further namespaces, which an announced narrowing will keep."""
    if reach is None:
        return Selection(names=None)
    names, narrowing = selection.names, selection.narrowing
    if names is not None:
        names = bounded(names | reach)
    if narrowing is not None:
        keep = narrowing.keep | reach
        narrowing = replace(narrowing, keep=keep) if len(keep) <= _MOST_KEPT else None
    return Selection(names=names, narrowing=narrowing)


def narrowed(selection: Selection, reach: Reach) -> Selection:
    """Return the selection with which an announced narrowing ends."""
    keep = selection.narrowing.keep if selection.narrowing else frozenset()
    return Selection(names=None if reach is None else bounded(reach | keep))


def bounded(names: frozenset[str]) -> Reach:
    """Return names, None where they are too many for a selector."""
    return names if len(names) <= MOST_NAMES else None


def may_be_narrowed(selection: Selection, reach: Reach) -> bool:
    """Whether a selection has more namespaces than the quotas that are known reach."""
    if reach is None or bounded(reach) is None:
        return False
    return selection.names is None or bool(selection.names - reach)


_log = logging.getLogger(__name__)


class RolloutError(StowplanError):
    """It cannot be made sure that API servers ask about a namespace."""


class ConflictError(Exception):
    """The configuration has changed since it was read."""


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the configuration; unknown fields are skipped."""


class _Metadata(_Part, frozen=True):
    resource_version: str
    generation: int = 0
    annotations: dict[str, str] | None = None


class _LabelSelector(_Part, frozen=True):
    match_expressions: list[dict[str, Any]] | None = None
    match_labels: dict[str, str] | None = None


class _Webhook(_Part, frozen=True):
    name: str
    namespace_selector: _LabelSelector = _LabelSelector()
    object_selector: _LabelSelector = _LabelSelector()


class _Configuration(_Part, frozen=True):
    metadata: _Metadata
    webhooks: list[_Webhook] | None = None

    def index_of(self, name: str) -> int:
        """Return the place of a webhook, -1 if there is none."""
        names = [webhook.name for webhook in self.webhooks or ()]
        return names.index(name) if name in names else -1


class _Announcement(msgspec.Struct, frozen=True):
    id: str
    keep: list[str] = []


_decode = msgspec.json.Decoder(_Configuration).decode
_announcements = msgspec.json.Decoder(_Announcement)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSelection:
    """The selection in a version of the configuration."""

    selection: Selection  # the namespaces
    # of the version, as the probe's selector has it; empty where somebody else has changed the
    # webhooks since we stamped them
    stamp: str
    source: _Configuration  # the configuration


@dataclass(eq=False)
class RolloutConfiguration:
    """Reads and writes the selection."""

    connection: Requests  # to the API server
    name: str  # of our ValidatingWebhookConfiguration

    def __post_init__(self) -> None:
        api = "/apis/admissionregistration.k8s.io/v1"
        self._path = f"{api}/validatingwebhookconfigurations/{self.name}"

    async def read(self) -> StoredSelection | None:
        """Return the selection as it is stored at this moment, None where no pod is asked about.

        Raises:
            ApiError: it cannot be read.
            RolloutError: the configuration is not one for an automatic roll-out.
        """
        found = await find(self.connection, self._path)
        return None if found is None else self._stored(found)

    async def write(self, over: StoredSelection, selection: Selection) -> StoredSelection:
        """Store a selection, stamped where that changes which namespaces are asked about.

        Raises:
            ConflictError: the configuration has changed since it was read.
            ApiError: it cannot be written.
            RolloutError: somebody has taken our webhooks out of it.
        """
        version = over.source.metadata.resource_version
        try:
            answer = await change(
                self.connection, self._path, version, _operations(over, selection)
            )
        except ApiError as error:
            if error.status == HTTPStatus.CONFLICT:
                raise ConflictError from error
            raise
        stored = self._stored(answer)
        if stored is None:
            raise RolloutError(f"configuration `{self.name}` has lost its webhooks")
        _log.info("quota is asked about in %s", _described(selection))
        return stored

    def _stored(self, raw: bytes) -> StoredSelection | None:
        source = _decode(raw)
        quota, probe = source.index_of(QUOTA_WEBHOOK), source.index_of(PROBE_WEBHOOK)
        if quota < 0:
            return None
        if probe < 0:
            raise RolloutError(
                f"configuration `{self.name}` has no webhook `{PROBE_WEBHOOK}`: bring it up to"
                " date from the chart, with `quota.rollout: Automatic`"
            )
        webhooks = source.webhooks or []
        written = (webhooks[probe].object_selector.match_labels or {}).get(STAMP_LABEL, "")
        names = _listed(webhooks[quota].namespace_selector)
        is_current = written == str(source.metadata.generation)
        return StoredSelection(
            selection=Selection(names=names, narrowing=_announced(source.metadata)),
            stamp=written if is_current else "",
            source=source,
        )


def _listed(selector: _LabelSelector) -> frozenset[str] | None:
    """Return the names in our requirement, None where there is none."""
    ours = next(filter(_is_ours, selector.match_expressions or ()), None)
    return None if ours is None else frozenset(ours["values"]) - {LIST_MARK}


def _is_ours(requirement: dict[str, Any]) -> bool:
    return requirement.get("key") == NAMESPACE_LABEL and LIST_MARK in (
        requirement.get("values") or ()
    )


def _announced(metadata: _Metadata) -> Narrowing | None:
    """Return the announcement; one that is malformed is none, and is made anew."""
    try:
        found = _announcements.decode((metadata.annotations or {}).get(NARROWING_ANNOTATION, ""))
    except msgspec.DecodeError:
        return None
    return Narrowing(id=found.id, keep=frozenset(found.keep))


def _operations(over: StoredSelection, selection: Selection) -> list[dict[str, object]]:
    source, metadata = over.source, over.source.metadata
    operations: list[dict[str, object]] = []
    if selection.names != over.selection.names:
        index = source.index_of(QUOTA_WEBHOOK)
        selector = (source.webhooks or [])[index].namespace_selector
        requirements = [each for each in selector.match_expressions or () if not _is_ours(each)]
        if selection.names is not None:
            values = [LIST_MARK, *sorted(selection.names)]
            requirements.append({"key": NAMESPACE_LABEL, "operator": "In", "values": values})
        path = f"/webhooks/{index}/namespaceSelector/matchExpressions"
        operations.append({"op": "add", "path": path, "value": requirements})
    if selection.names != over.selection.names or not over.stamp:
        # INVARIANT: the generation that this very write brings about, or none at all.
        labels = {STAMP_LABEL: str(metadata.generation + 1)}
        path = f"/webhooks/{source.index_of(PROBE_WEBHOOK)}/objectSelector"
        operations.append({"op": "add", "path": path, "value": {"matchLabels": labels}})
    return operations + _announcement_operations(metadata, over.selection, selection)


def _announcement_operations(
    metadata: _Metadata, old: Selection, new: Selection
) -> list[dict[str, object]]:
    if old.narrowing == new.narrowing:
        return []
    path = f"/metadata/annotations/{jsonpointer.escape(NARROWING_ANNOTATION)}"
    if new.narrowing is None:
        return [{"op": "remove", "path": path}]
    announcement = _Announcement(new.narrowing.id, sorted(new.narrowing.keep))
    text = msgspec.json.encode(announcement).decode()
    first: list[dict[str, object]] = (
        [{"op": "add", "path": "/metadata/annotations", "value": {}}]
        if metadata.annotations is None
        else []
    )
    return [*first, {"op": "add", "path": path, "value": text}]


def _described(selection: Selection) -> str:
    names = selection.names
    listed = "all namespaces" if names is None else counted(len(names), "namespace")
    return f"{listed}, soon in fewer" if selection.narrowing else listed
