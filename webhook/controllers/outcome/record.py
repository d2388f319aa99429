"""Figures and policies in Audit mode, in a ConfigMap: they outlive the leader.

The leader alone writes the figures. Which policies are in Audit mode for what they did, an operator
may write as well: taking a name out there is how a policy gets back into force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from engine.outcome import WindowState
from engine.report import AuditedPolicy, OutcomeReport
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.cluster.decode_errors import UNREADABLE

WINDOW_KEY: Final = "window.json"
REPORT_KEY: Final = "report.json"
AUDITED_KEY: Final = "audited.json"

_MERGE_PATCH: Final = "application/merge-patch+json"
_Part = TypeVar("_Part")

_log = logging.getLogger(__name__)


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _ConfigMap(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: dict[str, str] | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the ConfigMap holds.

    Attributes:
        window: figures, for the next leader.
        report: the same for people; None before the first.
        audited: policies in Audit mode for what they did, by name.
        version: resourceVersion of the ConfigMap, "" where there is none.
        uid: of the ConfigMap.
    """

    window: WindowState = WindowState()
    report: OutcomeReport | None = None
    audited: Mapping[str, AuditedPolicy] = {}
    version: str = ""
    uid: str = ""


def recorded_in(body: bytes) -> Recorded:
    """Return what a ConfigMap holds; what cannot be read is left out."""
    config_map = msgspec.json.decode(body, type=_ConfigMap)
    data = config_map.data or {}
    audited = _read(data, AUDITED_KEY, dict[str, AuditedPolicy]) or {}
    report = _read(data, REPORT_KEY, OutcomeReport)
    return Recorded(
        window=_read(data, WINDOW_KEY, WindowState) or WindowState(),
        report=None if report is None else msgspec.structs.replace(report, audited=audited),
        audited=audited,
        version=config_map.metadata.resource_version,
        uid=config_map.metadata.uid,
    )


class OutcomeRecord:
    """Reads and writes the ConfigMap.

    Args:
        connection: to the API server.
        namespace: of the installation.
        name: of the ConfigMap; it is created if it is missing.
        may_write: whether this replica leads at this very moment.
    """

    def __init__(
        self, connection: Connection, *, namespace: str, name: str, may_write: Callable[[], bool]
    ) -> None:
        self.namespace = namespace
        self.name = name
        self._connection = connection
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._may_write = may_write

    async def read(self) -> Recorded:
        """Return what was written last.

        Raises:
            ApiError: it was refused, or there was no answer.
        """
        try:
            body = await self._connection.get(f"{self._collection}/{self.name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return Recorded()
            raise
        try:
            return recorded_in(body)
        except UNREADABLE as error:
            raise ApiError(NO_CONTACT, "", f"ConfigMap `{self.name}`: {error}") from error

    async def write(self, data: Mapping[str, object], version: str = "") -> None:
        """Replace some of its parts, by key.

        Args:
            data: values by key, to be encoded as JSON.
            version: resourceVersion that it must still have; "" for any.

        Raises:
            ApiError: it was refused or changed meanwhile, there was no answer, or this replica does
                not lead.
        """
        if not self._may_write():
            raise ApiError(NO_CONTACT, "", "this replica does not lead")
        texts = {key: msgspec.json.encode(value).decode() for key, value in data.items()}
        metadata = {"resourceVersion": version} if version else {}
        try:
            patch = msgspec.json.encode({"metadata": metadata, "data": texts})
            path = f"{self._collection}/{self.name}"
            await self._connection.write("PATCH", path, patch, content_type=_MERGE_PATCH)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "data": texts,
            }
            body = msgspec.json.encode(config_map)
            await self._connection.write("POST", self._collection, body)


def _read(data: Mapping[str, str], key: str, kind: type[_Part]) -> _Part | None:
    text = data.get(key)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except UNREADABLE as error:
        _log.warning("`%s` cannot be read, and is begun anew: %s", key, error)
        return None
