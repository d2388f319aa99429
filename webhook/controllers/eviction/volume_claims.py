"""Volume claims of pods that others would be evicted for: the scheduler binds no pod without them.

They are read when a plan is due, as few pods that wait have any; nothing watches them.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

import msgspec

from engine.model.api import ObjectMeta
from engine.release import HeldPod
from webhook.cluster.client.connection import ApiError, Connection, find
from webhook.cluster.objects import UNREADABLE

MOST_CLAIMS: Final = 8
"""Claims of one pod that are read; whoever creates a pod may name any number of them."""

_STORAGE_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Of a claim for which a volume is made where the scheduler wanted it."""

_log = logging.getLogger(__name__)


class _Claim(msgspec.Struct, rename="camel"):
    claim_name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    persistent_volume_claim: _Claim | None = None


class _PodSpec(msgspec.Struct):
    volumes: list[_Volume] | None = None


class _Pod(msgspec.Struct):
    spec: _PodSpec


class _ClaimSpec(msgspec.Struct, rename="camel"):
    storage_class_name: str = ""


class _ClaimStatus(msgspec.Struct):
    phase: str = ""


class _VolumeClaim(msgspec.Struct):
    metadata: ObjectMeta
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _ClaimStatus = msgspec.field(default_factory=_ClaimStatus)


class _StorageClass(msgspec.Struct, rename="camel"):
    volume_binding_mode: str = ""


async def unbound_claim(connection: Connection, held: HeldPod) -> str:
    """Return the first claim of a pod that no scheduler can help, "" for none.

    A claim whose StorageClass waits for the first consumer is bound when the pod is scheduled. What
    cannot be read counts as bound, and so do claims beyond MOST_CLAIMS: the plan may fail then.

    Args:
        connection: to the API server.
        held: the pod.
    """
    if b'"persistentVolumeClaim"' not in held.raw:
        return ""
    try:
        volumes = msgspec.json.decode(held.raw, type=_Pod).spec.volumes or ()
        claims = (volume.persistent_volume_claim for volume in volumes)
        names = dict.fromkeys(claim.claim_name for claim in claims if claim)
        for name in islice(names, MOST_CLAIMS):
            if not await _is_bound_in_time(connection, held.pod.namespace, name):
                return name
    except (ApiError, *UNREADABLE) as error:
        _log.info("volume claims of pod `%s` cannot be read: %s", held.key, error)
    return ""


async def _is_bound_in_time(connection: Connection, namespace: str, name: str) -> bool:
    """Return whether a claim is bound, or will be once its pod is scheduled."""
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
    body = await find(connection, path)
    if body is None:
        return False
    claim = msgspec.json.decode(body, type=_VolumeClaim)
    if claim.status.phase == "Bound" or _SELECTED_NODE in (claim.metadata.annotations or {}):
        return True
    if not claim.spec.storage_class_name:
        return False
    body = await find(connection, f"{_STORAGE_CLASSES}/{claim.spec.storage_class_name}")
    if body is None:
        return False
    storage_class = msgspec.json.decode(body, type=_StorageClass)
    return storage_class.volume_binding_mode == "WaitForFirstConsumer"
