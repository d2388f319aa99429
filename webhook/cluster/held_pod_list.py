"""The held pods of a cluster as the API server lists them, for commands that run once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.client.envelopes import Page, page_of
from webhook.cluster.decode_errors import UNREADABLE

_PAGE_SIZE: Final = 500
_MOST_ATTEMPTS: Final = 3
_PENDING: Final[Query] = (
    ("fieldSelector", "status.phase=Pending,spec.nodeName="),
    ("limit", str(_PAGE_SIZE)),
)
_pod_of: Final = msgspec.json.Decoder(api.Pod).decode


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A held pod.

    Attributes:
        pod: its model.
        raw: the object as JSON.
    """

    pod: Pod
    raw: msgspec.Raw


async def list_held_pods(connection: Connection, namespace: str = "") -> list[ListedPod]:
    """Return the pods with our scheduling gate, maybe among others, in any order.

    A pod that cannot be read is left out: whatever it says, we could not have held it.

    Args:
        connection: to the API server.
        namespace: of the pods; "" for all.

    Raises:
        ApiError: they cannot be listed.
    """
    path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return [held async for held in _held_pods(connection, path)]
        except ApiError as error:
            # Pages are of one resourceVersion, which the API server drops after some minutes.
            if error.status != HTTPStatus.GONE:
                raise
    return [held async for held in _held_pods(connection, path)]


async def _held_pods(connection: Connection, path: str) -> AsyncIterator[ListedPod]:
    query: Query = _PENDING
    while True:
        page = await _page(connection, path, query)
        for raw in page.items or ():
            try:
                pod = pod_of(_pod_of(raw))
            except UNREADABLE:
                continue
            if pod.is_held and not pod.deleting:
                yield ListedPod(pod, raw)
        if not page.metadata.token:
            return
        query = (*_PENDING, ("continue", page.metadata.token))


async def _page(connection: Connection, path: str, query: Query) -> Page:
    try:
        return page_of(await connection.get(path, query))
    except UNREADABLE as error:
        raise ApiError(NO_CONTACT, "", "the answer is not a list of objects") from error
