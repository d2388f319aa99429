"""What reclaim has done so far, in a ConfigMap: the guards hold across leaders.

It is written before anything is evicted. So whoever leads next knows each eviction that was sent,
and maybe some that were not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from engine.reclaim import GuardState
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.cluster.decode_errors import UNREADABLE

_KEY: Final = "guards.json"
_MERGE_PATCH: Final = "application/merge-patch+json"

_log = logging.getLogger(__name__)


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class GuardRecord:
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
        self._connection = connection
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = name
        self._may_write = may_write

    async def read(self) -> GuardState:
        """Return what was written last; nothing where there is none, or none that can be read.

        Raises:
            ApiError: it was refused, or there was no answer.
        """
        try:
            body = await self._connection.get(f"{self._collection}/{self._name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return GuardState()
            raise
        try:
            data = msgspec.json.decode(body, type=_ConfigMap).data or {}
            return msgspec.json.decode(data.get(_KEY, "{}"), type=GuardState)
        except UNREADABLE as error:
            _log.warning("ConfigMap `%s` cannot be read, and is begun anew: %s", self._name, error)
            return GuardState()

    async def write(self, state: GuardState) -> None:
        """Replace what was written.

        Raises:
            ApiError: it was refused, there was no answer, or this replica does not lead.
        """
        if not self._may_write():
            raise ApiError(NO_CONTACT, "", "this replica does not lead")
        data = {_KEY: msgspec.json.encode(state).decode()}
        path = f"{self._collection}/{self._name}"
        try:
            patch = msgspec.json.encode({"data": data})
            await self._connection.write("PATCH", path, patch, content_type=_MERGE_PATCH)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self._name},
                "data": data,
            }
            body = msgspec.json.encode(config_map)
            await self._connection.write("POST", self._collection, body)
