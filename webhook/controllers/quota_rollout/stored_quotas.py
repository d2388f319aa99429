"""The quotas that are stored at this moment, whatever a watch has delivered."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, QuotaKey
from engine.quota import Reach, reach_of
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.client.envelopes import Meta
from webhook.cluster.client.pages import PagedLists


class _Quota(msgspec.Struct):
    metadata: Meta


_decode = msgspec.json.Decoder(_Quota).decode


class StoredQuotas:
    """Lists quotas of both groups.

    Args:
        connection: to the API server.
    """

    def __init__(self, connection: Connection) -> None:
        self._lists = PagedLists(connection)

    async def reach(self) -> Reach:
        """Return the namespaces whose pods may be limited by a quota that is stored.

        Raises:
            ApiError: they cannot be listed.
        """
        keys = [
            key for group in (UPSTREAM_GROUP, KOORDINATOR_GROUP) for key in await self._keys(group)
        ]
        return reach_of(keys)

    async def _keys(self, group: str) -> list[QuotaKey]:
        """Return the keys of a group's quotas; none where it is not installed."""

        def key(raw: msgspec.Raw) -> QuotaKey:
            metadata = _decode(raw).metadata
            return metadata.namespace, group, metadata.name

        try:
            # Without a resourceVersion: what etcd has, and no cache of an API server.
            return await self._lists.read(f"/apis/{group}/v1alpha1/elasticquotas", (), key)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return []
            raise
