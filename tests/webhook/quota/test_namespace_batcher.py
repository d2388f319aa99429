"""One namespace on one replica, with another replica that is always slightly faster."""

from __future__ import annotations

from dataclasses import replace

from engine.model.elastic_quota import ElasticQuota
from engine.quota import RESOURCE_QUOTA_RULES, QuotaRequest, Reservation
from engine.view import ClusterState
from tests.builders import elastic_quota
from webhook.quota import MemoryStore, ObservedCluster, QuotaConfig
from webhook.quota.namespace_batcher import NamespaceBatcher
from webhook.quota.store import ConflictError


class ContendedStore(MemoryStore):
    """A store where another replica writes just before each of the first writes.

    Args:
        state: of the loser.
        by_watch: whether it observes the writes of others at once.
        others: number of writes that are faster.
    """

    def __init__(self, state: ClusterState, *, by_watch: bool, others: int) -> None:
        super().__init__()
        self.reads = 0
        self._state = state
        self._by_watch = by_watch
        self._others = others

    async def read(self, quota: ElasticQuota) -> ElasticQuota | None:
        self.reads += 1
        return await super().read(quota)

    async def write(self, quota: ElasticQuota, reservations: str) -> ElasticQuota | None:
        if not self._others:
            return await super().write(quota, reservations)
        self._others -= 1
        theirs = await super().write(quota, quota.reservations)
        if self._by_watch and theirs is not None:
            self._state.set_quota(theirs)
        raise ConflictError("too late")


async def reads_after_conflicts(*, by_watch: bool) -> int:
    """Return how often the quota was read until a pod was admitted at the third attempt."""
    state = ClusterState()
    quota = elastic_quota(group="g", most={"pods": 1}, uid="q")
    state.set_quota(replace(quota, version=1))
    store = ContendedStore(state, by_watch=by_watch, others=2)
    counted: list[str] = []
    observed, rules = ObservedCluster(view=state.view), RESOURCE_QUOTA_RULES
    batcher = NamespaceBatcher("shop", observed, store, QuotaConfig(), counted.append, rules)
    assert (await batcher.admit(QuotaRequest(Reservation("u", "a", {"pods": 1})))).allowed
    assert counted == ["conflict", "conflict", "written"]
    return store.reads


async def test_the_loser_of_a_race_that_observed_the_other_write_needs_not_read() -> None:
    assert await reads_after_conflicts(by_watch=True) == 0


async def test_the_loser_of_a_race_reads_what_it_has_not_observed() -> None:
    assert await reads_after_conflicts(by_watch=False) == 2
