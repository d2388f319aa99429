"""One namespace on one replica, with another that is always quicker by a moment."""

from __future__ import annotations

from dataclasses import replace

from engine.model.elastic_quota import ElasticQuota
from engine.quota import RESOURCE_QUOTA_RULES, QuotaRequest, Reservation
from engine.view import ClusterState
from webhook.quota import MemoryStore, ObservedCluster, QuotaTiming
from webhook.quota.namespace_batcher import NamespaceBatcher
from webhook.quota.store import ConflictError


class Contested(MemoryStore):
    """A store where somebody else writes just before each of the first writes.

    Args:
        state: which hears of what others write, by watch.
        hears: whether it does so at once.
        others: how often somebody is quicker.
    """

    def __init__(self, state: ClusterState, *, hears: bool, others: int) -> None:
        super().__init__()
        self.reads = 0
        self._state = state
        self._hears = hears
        self._others = others

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        self.reads += 1
        return await super().read(quota)

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        if not self._others:
            return await super().write(quota, reservations)
        self._others -= 1
        theirs = await super().write(quota, quota.reservations)
        if self._hears and theirs is not None:
            self._state.set_quota(theirs)
        raise ConflictError("too late")


async def reads_after_conflicts(*, hears: bool) -> int:
    """Return how often the quota was read until a pod was admitted at the third attempt."""
    state = ClusterState()
    quota = ElasticQuota(
        namespace="shop", name="team", group="g", min=None, max={"pods": 1}, used={}, uid="q"
    )
    state.set_quota(replace(quota, version=1))
    store = Contested(state, hears=hears, others=2)
    counted: list[str] = []
    sight, rules = ObservedCluster(view=state.view), RESOURCE_QUOTA_RULES
    desk = NamespaceBatcher("shop", sight, store, QuotaTiming(), counted.append, rules)
    assert (await desk.admit(QuotaRequest(Reservation("u", "a", {"pods": 1})))).allowed
    assert counted == ["conflict", "conflict", "written"]
    return store.reads


async def test_who_was_too_late_and_has_heard_why_needs_not_read() -> None:
    assert await reads_after_conflicts(hears=True) == 0


async def test_who_was_too_late_reads_what_was_not_heard_of() -> None:
    assert await reads_after_conflicts(hears=False) == 2
