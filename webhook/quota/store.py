"""The store of quotas and pods that the ledger needs, and one in memory for recorded clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from engine.errors import StowplanError
from engine.model.elastic_quota import ElasticQuota, QuotaKey
from engine.model.pod import Pod


class StoreError(StowplanError):
    """A request to the store failed."""


class ConflictError(StoreError):
    """Another writer was faster; nothing was written."""


class UnreachableError(StoreError):
    """The outcome is unknown: a write may have been made or not."""


@dataclass(frozen=True, slots=True)
class StoredPod:
    """A pod on the API server.

    Attributes:
        uid: distinguishes it from others that have had its name.
        version: its resourceVersion.
        is_active: whether it has not finished.
    """

    uid: str
    version: int
    is_active: bool


class Store(Protocol):
    """The newest versions of quotas and pods. All methods raise `StoreError`."""

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota, None if it is gone."""

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Write the annotation on exactly this version; return the new one, None if it is gone."""

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        """Return the pod of a name, None if there is none."""

    async def newest_pod_version(self, namespace: str) -> int:
        """Return the newest resourceVersion of a pod in a namespace, 0 if there is none."""

    async def pods(self, namespace: str) -> Sequence[Pod]:
        """Return the pods of a namespace that can be read."""


class MemoryStore:
    """Reservations of this process alone, on quotas that nobody else writes."""

    def __init__(self) -> None:
        self._quotas: dict[QuotaKey, ElasticQuota] = {}

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota."""
        return self._quotas.get(quota.key, quota)

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Return the quota with the annotation."""
        new = replace(quota, version=quota.version + 1, reservations=reservations)
        self._quotas[quota.key] = new
        return new

    async def pod(self, _namespace: str, _name: str) -> StoredPod | None:
        """Return None: all pods of a recording are in the view, and none is added."""
        return None

    async def newest_pod_version(self, _namespace: str) -> int:
        """Return 0: none is ever added."""
        return 0

    async def pods(self, _namespace: str) -> Sequence[Pod]:
        """Return none: a recording shows whom a surge might replace, and nobody else."""
        return ()
