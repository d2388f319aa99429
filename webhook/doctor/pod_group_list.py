"""The PodGroups of a cluster as the API server lists them, for commands that run once."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.model.pod_group import PodGroup, pod_group_of
from webhook.cluster.client.connection import ApiError, Connection
from webhook.doctor.objects import ObjectList

_NOT_THERE: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN)
_KINDS: Final[Mapping[str, type[api.PodGroup]]] = {
    UPSTREAM_GROUP: api.PodGroup,
    KOORDINATOR_GROUP: api.KoordinatorPodGroup,
}
_decode = msgspec.json.Decoder(ObjectList[msgspec.Raw]).decode


async def list_pod_groups(connection: Connection) -> list[PodGroup] | None:
    """Return the PodGroups of both API groups, in any order; None if neither can be listed.

    A PodGroup that cannot be read is left out: replicas count it among what they skip.

    Raises:
        ApiError: the API server does not say.
    """
    pod_groups, is_listed = [], False
    for group, kind in _KINDS.items():
        try:
            listed = await connection.get(f"/apis/{group}/v1alpha1/podgroups")
        except ApiError as error:
            if error.status not in _NOT_THERE:
                raise
            continue
        is_listed = True
        for raw in _decode(listed).items:
            try:
                pod_groups.append(pod_group_of(msgspec.json.decode(raw, type=kind)))
            except (QuantityError, msgspec.DecodeError):
                continue
    return pod_groups if is_listed else None
