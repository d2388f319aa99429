"""One or two replicas, and everything that can go wrong between them and the API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model.elastic_quota import ElasticQuota
from engine.quota import RESOURCE_QUOTA_RULES, QuotaRequest, Reservation
from engine.view import ClusterState
from tests.builders import elastic_quota
from tests.webhook.cluster.reflecting import eventually
from tests.webhook.quota.replicas import GROUP, OTHER_GROUP, pod_named, replicas
from webhook.admission.handler import Outcome
from webhook.quota import MemoryStore, ObservedCluster, QuotaConfig
from webhook.quota.ledger import NamespaceBatcher
from webhook.quota.store import ConflictError

ADMITTED, DENIED, UNDECIDED = Outcome.ADMITTED, Outcome.QUOTA_DENIED, Outcome.UNDECIDED


async def test_what_is_not_limited_is_admitted_without_a_request(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, namespaces=()) as world:
        world.quota(**{"nvidia.com/gpu": "0"})
        version = world.server.version
        await eventually(lambda: world.replicas[0].knows(version))
        before = len(world.server.requests)
        assert await world.create() is ADMITTED
        assert await world.create("unlimited") is ADMITTED
        assert len(world.server.requests) == before


async def test_a_dry_run_is_judged_and_written_nowhere(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        (replica,) = world.replicas
        for number in range(3):
            assert await replica.answer(pod_named(f"dry-{number}"), dryRun=True) is ADMITTED
        assert world.writes() == 0
        assert await world.create() is ADMITTED
        assert await replica.answer(pod_named("dry"), dryRun=True) is DENIED


async def test_a_request_that_is_repeated_is_reserved_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        (replica,) = world.replicas
        pod = pod_named("a")
        assert await replica.answer(pod) is ADMITTED
        assert await replica.answer(pod) is ADMITTED
        assert world.reserved().by_key.keys() == {pod["metadata"]["uid"]}


async def test_the_pod_must_fit_the_quotas_of_both_groups(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, cpu="1") as world:
        world.quota(group=OTHER_GROUP, pods="2")
        version = world.server.version
        await eventually(lambda: all(replica.knows(version) for replica in world.replicas))
        assert await world.create(cpu="600m") is ADMITTED
        assert await world.create(cpu="600m") is DENIED  # 1200m > 1
        assert await world.create(cpu="400m") is ADMITTED
        assert await world.create(cpu="0") is DENIED  # 3 pods > 2
        assert len(world.reserved().by_key) == len(world.reserved(group=OTHER_GROUP).by_key) == 2


async def test_the_loser_of_a_race_reads_again_and_judges_again(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.server.fail_next(5, 409, method="PATCH")
        assert await world.create() is ADMITTED
        assert world.replicas[0].counted == ["conflict"] * 5 + ["written"]


async def test_a_replica_that_always_loses_gives_no_verdict(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.server.fail_next(100, 409, method="PATCH")
        assert await world.create() is UNDECIDED
        assert not world.reserved().by_key
        world.server.recover()
        assert await world.create() is ADMITTED


@pytest.mark.parametrize("method", ["PATCH", "GET"])
async def test_what_the_api_server_forbids_is_not_tried_again(tmp_path: Path, method: str) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.server.fail_next(1, 409, method="PATCH")
        world.server.fail_next(1, 403, method=method, path_prefix="/apis")
        assert await world.create() is UNDECIDED
        assert await world.create() is ADMITTED


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_failures_that_pass_by_are_survived(tmp_path: Path, status: int) -> None:
    headers = {"Retry-After": "0"}
    async with replicas(tmp_path, 1, pods="1") as world:
        world.server.fail_next(2, status, method="PATCH", headers=headers)
        world.server.fail_next(2, status, method="GET", path_prefix="/apis", headers=headers)
        assert await world.create() is ADMITTED
        assert await world.create() is DENIED


async def test_a_write_whose_answer_was_lost_counts_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="2") as world:
        world.server.cut_next_bodies()
        assert await world.create() is ADMITTED
        assert len(world.reserved().by_key) == 1
        assert world.replicas[0].counted == ["unknown"]
        assert await world.create() is ADMITTED
        assert await world.create() is DENIED


async def test_while_the_api_server_is_away_nothing_is_admitted(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.server.pause()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):  # as the handler does at the deadline
                await world.create()
        assert world.stored() == 0
        world.server.resume()
        outcome = await world.create()
        # The write that was on its way may have arrived: then its share is kept until its time.
        assert outcome in {ADMITTED, DENIED}
        assert len(world.reserved().by_key) == 1


async def test_a_call_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.call_seconds = 0.01
        await world.crash(0)
        await world.start()
        world.server.pause()
        assert await world.create() is UNDECIDED
        assert set(world.replicas[0].counted) == {"unknown"}


async def test_a_quota_that_is_gone_limits_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        (replica,) = world.replicas
        replica.quota_gate.clear()
        world.server.delete(f"elasticquotas.{GROUP}", "shop", "team")
        assert await world.create() is ADMITTED  # before the watch delivers it
        assert await world.create() is ADMITTED
        assert replica.counted == ["gone"]
        replica.quota_gate.set()
        world.quota(pods="3")  # another one of the same name
        version = world.server.version
        await eventually(lambda: replica.knows(version))
        await world.all_seen()
        assert await world.create() is ADMITTED
        assert await world.create() is DENIED


async def test_a_pod_that_the_watch_has_yet_to_deliver_counts_for_as_long_as_it_takes(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.replicas[0].gate.clear()
        assert await world.create() is ADMITTED
        for _ in range(3):
            world.now += 80
            assert await world.create() is DENIED
        ((_, stored),) = world.server.objects("pods").items()
        world.server.replace({**stored, "status": {"phase": "Succeeded"}})
        world.now += 80
        assert await world.create() is ADMITTED


async def test_a_broken_annotation_loses_nothing_that_is_known(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="2") as world:
        assert await world.create(stored=False) is ADMITTED
        world.annotate("[what?")
        assert await world.create(stored=False) is ADMITTED  # after a conflict
        assert await world.create() is DENIED
        assert len(world.reserved().by_key) == 2  # as good as new


async def test_reservations_copied_from_another_quota_mean_nothing(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="1") as world:
        world.annotate('{"quota":"another","seenUpTo":99999,"reserved":[]}')
        assert await world.create() is ADMITTED


async def test_growing_is_charged_by_the_difference(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, cpu="1") as world:
        assert await world.create(cpu="300m") is ADMITTED
        await world.all_seen()
        ((_, name),) = world.server.objects("pods")
        (old,) = world.server.objects("pods").values()

        async def resized(cpu: str, by: int) -> Outcome:
            new = pod_named(name, cpu=cpu)
            more = {"operation": "UPDATE", "subResource": "resize", "uid": f"to-{cpu}"}
            return await world.replicas[by].answer(new, oldObject=old, **more)

        writes = world.writes()
        assert await resized("200m", by=0) is ADMITTED  # needs nothing
        assert world.writes() == writes
        assert await resized("1100m", by=0) is DENIED  # 300m + 800m > 1
        assert await resized("900m", by=0) is ADMITTED  # 300m + 600m
        assert await world.create(cpu="200m") is DENIED  # 900m + 200m > 1, on either replica
        assert await world.create(cpu="200m") is DENIED
        world.server.replace({**old, "spec": pod_named(name, cpu="900m")["spec"]})
        await world.all_seen()
        assert await world.create(cpu="100m") is ADMITTED  # seen, and counted once: 900m + 100m
        assert await world.create(cpu="100m") is DENIED


async def test_a_ledger_that_ends_answers_waiting_requests(tmp_path: Path) -> None:
    async with replicas(tmp_path, 1, pods="9") as world:
        (replica,) = world.replicas
        world.server.pause()
        waiting = asyncio.gather(*(world.create() for _ in range(3)))
        await world.server.until(lambda: world.writes() == 1)
        world.server.resume()
        await replica.ledger.close()
        assert UNDECIDED in await waiting


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
