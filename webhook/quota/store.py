"""Where reservations are kept, as the ledger sees it; and a place for recorded clusters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from engine.errors import StowplanError
from engine.model.elastic_quota import ElasticQuota


class StoreError(StowplanError):
    """A request to the store did not do what it should."""


class ConflictError(StoreError):
    """Somebody else has written the quota meanwhile; ours was not written."""


class UnreachableError(StoreError):
    """There was no answer, or none that says what happened: a write may have been made or not."""


@dataclass(frozen=True, slots=True)
class StoredPod:
    """What there is to know of a pod for its reservations.

    Attributes:
        uid: tells it from others that have had its name.
        version: its resourceVersion.
        holds: whether it has not finished.
    """

    uid: str
    version: int
    holds: bool


class Store(Protocol):
    """Whatever holds quotas and pods. All methods raise `StoreError`."""

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota, None if it is gone."""

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Write the annotation on exactly this version; return the new one, None if it is gone."""

    async def pod(self, namespace: str, name: str) -> StoredPod | None:
        """Return the pod of a name as it is right now, None if there is none."""

    async def newest(self, namespace: str) -> int:
        """Return the newest resourceVersion of a pod in a namespace, 0 if there is none."""


class MemoryStore:
    """Reservations of this process alone, over quotas and pods that nobody else changes."""

    def __init__(self) -> None:
        self._quotas: dict[tuple[str, str, str], ElasticQuota] = {}

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        """Return the newest version of a quota."""
        return self._quotas.get((quota.namespace, quota.group, quota.name), quota)

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        """Return the quota with the annotation."""
        new = replace(quota, version=quota.version + 1, reservations=reservations)
        self._quotas[quota.namespace, quota.group, quota.name] = new
        return new

    async def pod(self, _namespace: str, _name: str) -> StoredPod | None:
        """Return None: what a recording shows is in the view, and nothing is added to it."""
        return None

    async def newest(self, _namespace: str) -> int:
        """Return 0: none is ever added."""
        return 0
