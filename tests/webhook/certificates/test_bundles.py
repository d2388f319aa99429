from __future__ import annotations

import asyncio
import copy
from datetime import timedelta

import pytest

from tests.webhook.certificates.installed import FOREIGN, OURS, Cluster, cluster
from webhook.certificates import Authority, bundle_of
from webhook.cluster.client.connection import ApiError


def some_bundle(here: Cluster) -> bytes:
    return bundle_of([Authority.new(now=here.now, valid_for=timedelta(days=1)).certificate])


async def test_every_webhook_of_ours_gets_the_bundle_and_nothing_else_changes() -> None:
    async with cluster(OURS, FOREIGN) as here:
        before = copy.deepcopy(here.configurations(OURS) + here.configurations(FOREIGN))
        bundle = some_bundle(here)
        assert await here.bundles().distribute(bundle, may_write=lambda: True)
        assert here.bundles_of(OURS) == [bundle] * 3
        after = here.configurations(OURS) + here.configurations(FOREIGN)
        for one in after:
            for webhook in one["webhooks"]:
                webhook["clientConfig"].pop("caBundle", None)
        for one in before + after:
            for field in ("resourceVersion", "generation"):
                del one["metadata"][field]
        assert after == before
        assert all(path.endswith(f"/{OURS}") for _, path in here.writes())


async def test_a_bundle_that_is_there_is_not_written_again() -> None:
    async with cluster(OURS) as here:
        bundle = some_bundle(here)
        await here.bundles().distribute(bundle, may_write=lambda: True)
        written = here.writes()
        await here.bundles().distribute(bundle, may_write=lambda: True)
        assert here.writes() == written


async def test_a_configuration_that_is_missing_is_found_later() -> None:
    async with cluster() as here:
        bundle, bundles = some_bundle(here), here.bundles()
        assert await bundles.distribute(bundle, may_write=lambda: True)
        assert await bundles.read() == ()
        here.configure(OURS)
        assert await bundles.distribute(bundle, may_write=lambda: True)
        assert here.bundles_of(OURS) == [bundle] * 3


async def test_who_may_not_write_does_not() -> None:
    async with cluster(OURS) as here:
        assert not await here.bundles().distribute(some_bundle(here), may_write=lambda: False)
        assert here.writes() == []


async def test_a_configuration_that_changed_meanwhile_is_left_to_the_next_turn() -> None:
    async with cluster(OURS) as here:
        bundles, bundle = here.bundles(), some_bundle(here)

        def somebody_is_faster() -> bool:
            changed = here.configurations(OURS)[0]
            changed["webhooks"].reverse()
            here.server.replace(changed)
            return True

        with pytest.raises(ApiError) as refused:
            await bundles.distribute(bundle, may_write=somebody_is_faster)
        assert refused.value.status == 409
        assert here.bundles_of(OURS) == [b""] * 3


async def test_a_configuration_that_cannot_be_read_is_an_error() -> None:
    async with cluster(OURS) as here:
        here.server.fail_next(1, 403)
        with pytest.raises(ApiError):
            await here.bundles().read()


async def test_where_somebody_undoes_every_change_looks_become_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def hurry(seconds: float) -> None:
        if seconds:
            pauses.append(seconds)
        await sleep(0)

    async with cluster(OURS) as here, here.bundles().change_events(10) as next_change:
        await here.server.until(lambda: here.server.watches() == 2)
        monkeypatch.setattr(asyncio, "sleep", hurry)
        for number in range(9):
            changed = here.configurations(OURS)[0]
            changed["metadata"]["labels"]["team"] = str(number)
            here.server.replace(changed)
            await next_change()
    # 0.2 s, doubled up to 10 s; jitter leaves at least half of it.
    assert pauses[0] <= 0.2
    assert pauses[-1] >= 5


async def test_a_bundle_that_is_not_pem_names_nobody() -> None:
    async with cluster(OURS) as here:
        for one in here.configurations(OURS):
            one["webhooks"][0]["clientConfig"]["caBundle"] = "Cg=="  # a line end, as charts put it
            here.server.replace(one)
        assert await here.bundles().read() == ((), (), ())
