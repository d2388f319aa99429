"""The held pods of a cluster as the API server lists them, for commands that run once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from engine.model import api
from engine.model.pod import Pod, pod_of
from webhook.cluster.client.connection import Connection, Query
from webhook.cluster.client.lists import list_kind
from webhook.cluster.objects import UNREADABLE

_PENDING: Final[Query] = (("fieldSelector", "status.phase=Pending,spec.nodeName="),)
_pod_of: Final = msgspec.json.Decoder(api.Pod).decode


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A held pod."""

    pod: Pod  # its model
    raw: msgspec.Raw  # the object as JSON


async def list_held_pods(connection: Connection, namespace: str = "") -> list[ListedPod]:
    """Return the pods with our scheduling gate, maybe among others, in any order.

    A pod that cannot be read is left out: whatever it says, we could not have held it.
    """
    return await list_kind(connection, "Pod", namespace, query=_PENDING, decode=_held_in) or []


def _held_in(raw: msgspec.Raw) -> ListedPod | None:
    try:
        pod = pod_of(_pod_of(raw))
    except UNREADABLE:
        return None
    return ListedPod(pod, raw) if pod.is_held and not pod.deleting else None
