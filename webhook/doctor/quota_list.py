"""The ElasticQuotas of a cluster as the API server lists them, for commands that run once."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, ElasticQuota, quota_of
from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.objects import ObjectList

_decode = msgspec.json.Decoder(ObjectList[msgspec.Raw]).decode
_quota = msgspec.json.Decoder(api.ElasticQuota).decode


async def list_quotas(connection: Connection, namespace: str = "") -> list[ElasticQuota]:
    """Return the quotas of both API groups; of a group that the cluster does not have none.

    A quota that cannot be read is left out: replicas count it among what they skip.

    Args:
        connection: to the API server.
        namespace: of the quotas; "" for all.

    Raises:
        ApiError: they cannot be listed.
    """
    quotas = []
    within = f"namespaces/{namespace}/" if namespace else ""
    for group in (UPSTREAM_GROUP, KOORDINATOR_GROUP):
        try:
            listed = await connection.get(f"/apis/{group}/v1alpha1/{within}elasticquotas")
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            continue
        for raw in _decode(listed).items:
            try:
                quotas.append(quota_of(_quota(raw)))
            except (QuantityError, msgspec.DecodeError):
                continue
    return quotas
