"""One ConfigMap in which a leader keeps what must outlive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection
from webhook.cluster.decode_errors import UNREADABLE

_MERGE_PATCH: Final = "application/merge-patch+json"


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class ConfigMap(msgspec.Struct):
    """What is read of a ConfigMap."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    data: dict[str, str] = {}


class ConfigMapStore:
    """Reads and writes a ConfigMap.

    Args:
        connection: to the API server.
        namespace: of the installation.
        name: of the ConfigMap; it is created if it is missing.
        may_write: whether this replica leads at this very moment.
    """

    def __init__(
        self, connection: Connection, *, namespace: str, name: str, may_write: Callable[[], bool]
    ) -> None:
        self.namespace: Final = namespace
        self.name: Final = name
        self._connection = connection
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._may_write = may_write

    async def read(self) -> ConfigMap:
        """Return what was written last; an empty one where there is none.

        Raises:
            ApiError: it was refused, or there was no answer that can be read.
        """
        try:
            body = await self._connection.get(f"{self._collection}/{self.name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return ConfigMap()
            raise
        try:
            return msgspec.json.decode(body, type=ConfigMap)
        except UNREADABLE as error:
            raise ApiError(NO_CONTACT, "", f"ConfigMap `{self.name}`: {error}") from error

    async def write(self, data: Mapping[str, str], version: str = "") -> None:
        """Replace some of its parts, by key.

        Args:
            data: texts by key.
            version: resourceVersion that it must still have; "" for any.

        Raises:
            ApiError: it was refused or changed meanwhile, there was no answer, or this replica does
                not lead.
        """
        if not self._may_write():
            raise ApiError(NO_CONTACT, "", "this replica does not lead")
        metadata = {"resourceVersion": version} if version else {}
        try:
            patch = msgspec.json.encode({"metadata": metadata, "data": data})
            path = f"{self._collection}/{self.name}"
            await self._connection.write("PATCH", path, patch, content_type=_MERGE_PATCH)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "data": data,
            }
            body = msgspec.json.encode(config_map)
            await self._connection.write("POST", self._collection, body)
