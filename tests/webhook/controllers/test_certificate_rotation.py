from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.webhook.certificates.installed import FOREIGN, NAMES, OURS, SECRET, Cluster, cluster
from webhook.certificates import Authority, KeyPair
from webhook.certificates import bundles as bundles_module
from webhook.certificates.authority import certificates_of, is_for, is_signed_by
from webhook.certificates.secret import SecretSource
from webhook.cluster.client.connection import ApiError
from webhook.controllers import certificate_rotation as module
from webhook.controllers.certificate_rotation import (
    Rotation,
    SecretContents,
    Step,
    next_step,
)
from webhook.controllers.leader_election import LeaseElector

NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


def authority(made: datetime) -> Authority:
    return Authority.new(now=made, valid_for=365 * DAY)


def contents_of(
    *authorities: Authority, leaf: KeyPair | None, keyless: bool = False
) -> SecretContents:
    return SecretContents(
        trusted=tuple(one.certificate for one in authorities),
        signer=None if keyless or not authorities else authorities[0],
        leaf=leaf.leaf(NOW) if leaf else None,
    )


def leaf_of(signer: Authority, made: datetime) -> KeyPair:
    return signer.issue(NAMES, now=made, valid_for=90 * DAY)


def step_at(moment: datetime, contents: SecretContents, *, is_settled: bool = False) -> Step | None:
    return next_step(contents, names=NAMES, now=moment, is_settled=is_settled)


def test_with_nothing_there_must_be_an_authority_then_a_certificate_then_nothing() -> None:
    one = authority(NOW)
    assert step_at(NOW, contents_of(leaf=None)) is Step.NEW_AUTHORITY
    assert step_at(NOW, contents_of(one, leaf=None)) is Step.NEW_LEAF
    assert step_at(NOW, contents_of(one, leaf=leaf_of(one, NOW))) is None


def test_a_lost_key_makes_a_new_authority_necessary() -> None:
    one = authority(NOW)
    contents = contents_of(one, leaf=leaf_of(one, NOW), keyless=True)
    assert step_at(NOW, contents) is Step.NEW_AUTHORITY


def test_an_authority_is_replaced_with_half_a_year_left() -> None:
    one = authority(NOW)
    # 365 days less 180: on day 185 exactly 180 are left, which is still enough.
    contents = SecretContents(trusted=(one.certificate,), signer=one, leaf=None)
    assert step_at(NOW + 185 * DAY, contents) is Step.NEW_LEAF
    assert step_at(NOW + 185 * DAY + SECOND, contents) is Step.NEW_AUTHORITY


def test_a_certificate_is_replaced_with_thirty_days_left() -> None:
    one = authority(NOW)
    contents = contents_of(one, leaf=leaf_of(one, NOW))
    assert step_at(NOW + 60 * DAY, contents) is None
    assert step_at(NOW + 60 * DAY + SECOND, contents) is Step.NEW_LEAF


def test_what_a_new_authority_signs_waits_until_callers_have_trusted_it_for_a_while() -> None:
    old, new = authority(NOW - 185 * DAY), authority(NOW)
    contents = contents_of(new, old, leaf=leaf_of(old, NOW - 10 * DAY))
    assert step_at(NOW, contents) is None
    assert step_at(NOW, contents, is_settled=True) is Step.NEW_LEAF


def test_the_old_authority_is_dropped_a_day_after_the_new_certificate() -> None:
    old, new = authority(NOW - 185 * DAY), authority(NOW)
    contents = contents_of(new, old, leaf=leaf_of(new, NOW))
    assert step_at(NOW + DAY - SECOND, contents) is None
    assert step_at(NOW + DAY, contents) is Step.DROP_OLD


def test_a_certificate_by_the_known_signer_is_renewed_without_waiting() -> None:
    old, new = authority(NOW - 185 * DAY), authority(NOW)
    contents = contents_of(new, old, leaf=leaf_of(new, NOW))
    assert step_at(NOW + 61 * DAY, contents) is Step.NEW_LEAF


def test_a_certificate_for_other_names_is_replaced() -> None:
    one = authority(NOW)
    contents = contents_of(one, leaf=one.issue(["elsewhere"], now=NOW, valid_for=90 * DAY))
    assert step_at(NOW, contents) is Step.NEW_LEAF


# With a cluster


async def served(here: Cluster) -> KeyPair:
    store = here.store()
    return store.pair_in(await store.read())


async def is_verifiable(here: Cluster) -> bool:
    """Whether what the Secret has to be served is trusted by all our webhooks, by all its names."""
    leaf = (await served(here)).leaf(here.now)
    return is_for(leaf, NAMES) and all(
        any(is_signed_by(leaf, one) for one in certificates_of(bundle))
        for bundle in here.bundles_of(OURS)
    )


async def test_in_a_new_cluster_one_turn_makes_everything() -> None:
    async with cluster(OURS, FOREIGN) as here:
        await here.rotation().step()
        assert await is_verifiable(here)
        assert set(here.secret()) == {"ca.crt", "ca.key", "tls.crt", "tls.key"}
        assert here.bundles_of(FOREIGN) == [b""] * 3


async def test_a_second_turn_and_a_second_leader_find_nothing_to_do() -> None:
    async with cluster(OURS) as here:
        rotation = here.rotation()
        await rotation.step()
        done = here.writes()
        await rotation.step()
        await here.rotation().step()
        assert here.writes() == done


async def test_who_does_not_lead_writes_nothing() -> None:
    async with cluster(OURS) as here:
        await here.rotation(leads=False).step()
        assert here.writes() == []


@pytest.mark.parametrize("times", range(6))
async def test_who_loses_the_lease_in_the_middle_writes_no_more(times: int) -> None:
    async with cluster(OURS) as here:
        asked = 0
        written_when_lost: list[tuple[str, str]] | None = None

        def leads() -> bool:
            nonlocal asked, written_when_lost
            asked += 1
            if asked > times and written_when_lost is None:
                written_when_lost = here.writes()
            return asked <= times

        rotation = Rotation(
            here.store(), here.bundles(), names=NAMES, is_leader=leads, now=lambda: here.now
        )
        await rotation.step()
        assert here.writes() == written_when_lost
        await here.rotation().step()  # the next one goes on from there
        here.pass_time(minutes=3)
        await here.rotation().step()
        assert await is_verifiable(here)


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("spoil", ["garbled", "empty", "of another"])
async def test_a_spoilt_entry_is_healed_and_what_is_served_stays_trusted(
    name: str, spoil: str
) -> None:
    async with cluster(OURS) as here:
        rotation = here.rotation()
        await rotation.step()
        before = (await served(here)).leaf(here.now)
        other = authority(here.now)
        pair = leaf_of(other, here.now)
        others = {
            "ca.crt": pair.ca_pem,
            "ca.key": other.key_pem,
            "tls.crt": pair.cert_pem,
            "tls.key": pair.key_pem,
        }
        value = {"garbled": b"-----BEGIN", "empty": b"", "of another": others[name]}[spoil]
        here.put_secret({**here.secret(), name: value})
        for _ in range(3):
            await rotation.step()
            here.pass_time(minutes=3)
            for bundle in here.bundles_of(OURS):  # a replica may go on with what it read before
                assert any(is_signed_by(before, one) for one in certificates_of(bundle))
        assert await is_verifiable(here)
        made = len(here.writes())
        await rotation.step()
        assert len(here.writes()) == made


async def test_a_deleted_secret_is_made_anew_and_the_old_authority_is_trusted_for_a_while() -> None:
    async with cluster(OURS) as here:
        await here.rotation().step()
        old = (await served(here)).leaf(here.now)
        here.server.delete("secrets", *SECRET)
        rotation = here.rotation()  # by a leader that has never seen it
        await rotation.step()
        assert "tls.crt" not in here.secret()  # replicas serve what they have
        here.pass_time(minutes=3)
        await rotation.step()
        assert await is_verifiable(here)
        for bundle in here.bundles_of(OURS):
            assert any(is_signed_by(old, one) for one in certificates_of(bundle))
        here.pass_time(days=1)
        await rotation.step()
        assert [len(certificates_of(bundle)) for bundle in here.bundles_of(OURS)] == [1, 1, 1]
        assert await is_verifiable(here)


async def test_after_years_asleep_everything_is_new_at_once() -> None:
    async with cluster(OURS) as here:
        await here.rotation().step()
        here.pass_time(days=800)
        await here.rotation().step()
        assert await is_verifiable(here)


async def test_a_clock_that_was_years_ahead_leaves_nothing_that_is_not_valid_yet() -> None:
    async with cluster(OURS) as here:
        here.pass_time(days=800)
        await here.rotation().step()
        here.pass_time(days=-800)
        await here.rotation().step()
        assert await is_verifiable(here)
        await here.rotation().step()
        assert await is_verifiable(here)


@pytest.mark.parametrize("entries", [("tls.crt", "tls.key"), ("tls.crt", "tls.key", "ca.crt")])
async def test_the_secret_of_somebody_else_is_never_touched(
    entries: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(OURS) as here:
        pair = leaf_of(authority(here.now), here.now)
        theirs = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem, "ca.crt": pair.ca_pem}
        here.put_secret({name: theirs[name] for name in entries}, "kubernetes.io/tls")
        rotation = here.rotation()
        for _ in range(3):
            await rotation.step()
            here.pass_time(days=100)
        assert here.writes() == []
        assert caplog.text.count("was not made by us") == 1


async def test_two_that_both_believe_to_lead_end_with_one_authority() -> None:
    async with cluster(OURS) as here:
        both = [here.rotation(), here.rotation()]
        results = await asyncio.gather(*(one.step() for one in both), return_exceptions=True)
        conflicts = [one for one in results if one is not None]
        assert all(isinstance(one, ApiError) and one.status == 409 for one in conflicts)
        for one in both:
            await one.step()
        assert await is_verifiable(here)
        assert [len(certificates_of(bundle)) for bundle in here.bundles_of(OURS)] == [1, 1, 1]


async def test_while_configurations_cannot_be_written_nothing_unknown_is_served() -> None:
    async with cluster(OURS) as here:
        rotation = here.rotation()
        await rotation.step()
        here.pass_time(days=186)
        before = (await served(here)).cert_pem
        for _ in range(5):
            here.server.fail_next(1, 403, method="PATCH", path_prefix="/apis/admissionregistration")
            await rotation.step()
            here.pass_time(minutes=3)
        assert (await served(here)).cert_pem == before
        await rotation.step()
        here.pass_time(minutes=3)
        await rotation.step()
        assert (await served(here)).cert_pem != before
        assert await is_verifiable(here)


async def test_a_certificate_is_renewed_though_configurations_cannot_be_read() -> None:
    async with cluster(OURS) as here:
        rotation = here.rotation()
        await rotation.step()
        here.pass_time(days=61)
        before = (await served(here)).cert_pem
        here.server.fail_next(9, 403, path_prefix="/apis/admissionregistration")
        await rotation.step()
        assert (await served(here)).cert_pem != before


async def test_no_key_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with cluster(OURS) as here:
        rotation = here.rotation()
        await rotation.step()
        here.put_secret({**here.secret(), "tls.key": b"PRIVATE garbage"})
        await rotation.step()
    assert caplog.text
    assert "PRIVATE" not in caplog.text


def leads(elector: LeaseElector) -> bool:
    return elector.is_leader


async def test_three_replicas_that_start_together_serve_what_one_of_them_made() -> None:
    async with cluster(OURS) as here:
        running = []
        for name in "abc":
            elector = LeaseElector(
                here.connection, namespace="system", name="writer", identity=name
            )
            rotation = Rotation(
                here.store(),
                here.bundles(),
                names=NAMES,
                is_leader=partial(leads, elector),
                now=lambda: here.now,
            )
            running.append(asyncio.ensure_future(elector.run(rotation.run)))
        sources = [
            SecretSource(here.store(), here.bundles(), now=lambda: here.now) for _ in running
        ]
        first_pairs = asyncio.gather(*(source.first() for source in sources))
        await asyncio.wait_for(first_pairs, PATIENCE_SECONDS)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert len({source.pair() for source in sources}) == 1
        assert await is_verifiable(here)
        creations = [path for method, path in here.writes() if method == "POST"]
        assert len([path for path in creations if path.endswith("/secrets")]) == 1


@asynccontextmanager
async def looked_after(here: Cluster) -> AsyncIterator[None]:
    """Have the holder of the Lease at work until the block is left."""
    running = asyncio.ensure_future(here.rotation().run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def all_trust_somebody(here: Cluster) -> bool:
    return all(certificates_of(bundle) for bundle in here.bundles_of(OURS))


@pytest.fixture
def no_look_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave only what changes as a reason to look."""
    monkeypatch.setattr(module, "_STEP_EVERY_SECONDS", 3600)


@pytest.mark.usefixtures("no_look_unasked")
async def test_configurations_that_come_later_get_their_bundle_at_once() -> None:
    async with cluster() as here, looked_after(here):
        await here.server.until(lambda: here.server.watches() == 2)
        here.configure(OURS)
        await here.server.until(lambda: all_trust_somebody(here))


@pytest.mark.usefixtures("no_look_unasked")
async def test_a_bundle_that_somebody_empties_is_put_back_at_once() -> None:
    async with cluster(OURS) as here, looked_after(here):
        await here.server.until(lambda: all_trust_somebody(here) and here.server.watches() == 2)
        emptied = here.configurations(OURS)[0]
        del emptied["webhooks"][0]["clientConfig"]["caBundle"]
        here.server.replace(emptied)
        assert not all_trust_somebody(here)
        await here.server.until(lambda: all_trust_somebody(here))


@pytest.mark.usefixtures("no_look_unasked")
async def test_a_watch_that_breaks_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles_module, "_WATCH_AGAIN_SECONDS", 0.01)
    async with cluster() as here, looked_after(here):
        await here.server.until(lambda: here.server.watches() == 2)
        here.server.fail_next(3, 403, method="WATCH")
        here.server.cut_watches()
        await here.server.until(lambda: here.server.watches() == 2)
        here.configure(OURS)
        await here.server.until(lambda: all_trust_somebody(here))


async def test_a_turn_that_fails_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEP_EVERY_SECONDS", 0.01)
    async with cluster(OURS) as here:
        here.server.fail_next(3, 500)
        async with looked_after(here):
            await here.server.until(lambda: SECRET in here.server.objects("secrets"))
