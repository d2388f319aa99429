from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.fake_api_server.statuses import ApiFault
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cluster.reflecting import eventually
from webhook.cluster.client.connection import Connection, Query, connected
from webhook.controllers.leader_election import LeaseElector, LeaseTimes, steady_clock
from webhook.identity import new_identity

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
AT = ("stowplan", "writer")


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


class Gated(Connection):
    """A connection whose requests leave, and whose answers arrive, when the test says so."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: asyncio.Queue[None] = asyncio.Queue()
        self._go: asyncio.Queue[None] = asyncio.Queue()

    async def get(self, path: str, query: Query = ()) -> bytes:
        return await self.write("GET", path, b"", query=query)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        await self._gate()
        try:
            return await self._connection.write(
                method, path, body, content_type=content_type, query=query
            )
        finally:
            await self._gate()

    async def _gate(self) -> None:
        self._waiting.put_nowait(None)
        await self._go.get()

    async def arrival(self) -> None:
        """Wait until its user waits at a gate."""
        await self._waiting.get()

    async def step(self) -> None:
        """Open one gate, and wait until its user waits at the next."""
        self._go.put_nowait(None)
        await self.arrival()


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[FakeApiServer, Connection]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(fake_api_server())
        yield server, await stack.enter_async_context(connected(server.kubeconfig(folder), None))


def elector(
    connection: Connection,
    identity: str,
    clock: Callable[[], float] = steady_clock,
    *,
    now: Callable[[], datetime] = lambda: NOON,
    times: LeaseTimes | None = None,
) -> LeaseElector:
    namespace, name = AT
    return LeaseElector(
        connection,
        namespace=namespace,
        name=name,
        identity=identity,
        times=times,
        clock=clock,
        now=now,
    )


def lease(server: FakeApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.objects("leases")[AT]["spec"]
    return found


async def test_the_first_to_ask_leads_and_the_second_waits() -> None:
    async with cluster() as (_, connection):
        clock = Clock()
        first, second = elector(connection, "a", clock), elector(connection, "b", clock)
        await first.attempt()
        await second.attempt()
        assert (first.is_leader, second.is_leader) == (True, False)


async def test_a_lease_is_taken_over_once_no_renewal_was_seen_for_its_duration() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        first, second = elector(connection, "a", clock), elector(connection, "b", clock)
        await first.attempt()
        await second.attempt()  # sees the renewal, its 15 s begin
        clock.seconds += 14.9
        await second.attempt()
        assert not second.is_leader
        clock.seconds += 0.1
        await second.attempt()
        assert second.is_leader
        assert (lease(server)["holderIdentity"], lease(server)["leaseTransitions"]) == ("b", 1)


async def test_each_renewal_that_is_seen_begins_the_wait_anew() -> None:
    async with cluster() as (_, connection):
        clock, moment = Clock(), NOON
        first = elector(connection, "a", clock, now=lambda: moment)
        second = elector(connection, "b", clock)
        for _ in range(5):
            moment += timedelta(microseconds=1)  # its time of day hardly moves: that is enough
            await first.attempt()
            await second.attempt()
            clock.seconds += 9
        assert not second.is_leader


async def test_the_wait_begins_when_a_replica_first_looks_however_old_the_lease() -> None:
    async with cluster() as (_, connection):
        clock = Clock()
        first = elector(connection, "a", clock, now=lambda: NOON - timedelta(days=30))
        await first.attempt()
        clock.seconds += 1_000
        second = elector(connection, "b", clock)
        await second.attempt()
        assert not second.is_leader


async def test_a_released_lease_is_taken_at_once() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        first, second = elector(connection, "a", clock), elector(connection, "b", clock)
        await first.attempt()
        await second.attempt()
        await first.release()
        await second.attempt()
        assert (first.is_leader, second.is_leader) == (False, True)
        assert lease(server)["leaseTransitions"] == 1


async def test_only_the_holder_releases() -> None:
    async with cluster() as (server, connection):
        first, second = elector(connection, "a"), elector(connection, "b")
        await first.attempt()
        await second.release()
        assert lease(server)["holderIdentity"] == "a"


async def test_a_renewal_changes_the_time_of_it_alone() -> None:
    async with cluster() as (server, connection):
        moment = NOON
        first = elector(connection, "a", now=lambda: moment)
        await first.attempt()
        stored = server.objects("leases")[AT]
        stored["metadata"]["labels"] = {"team": "shop"}
        server.replace(stored)
        before = lease(server)
        moment += timedelta(seconds=2, microseconds=7)
        await first.attempt()
        assert lease(server) == {**before, "renewTime": "2026-01-05T12:00:02.000007Z"}
        assert server.objects("leases")[AT]["metadata"]["labels"] == {"team": "shop"}


async def test_times_are_written_in_utc_with_microseconds() -> None:
    async with cluster() as (server, connection):
        tokyo = timezone(timedelta(hours=9))
        await elector(connection, "a", now=lambda: NOON.astimezone(tokyo)).attempt()
        assert lease(server)["acquireTime"] == "2026-01-05T12:00:00.000000Z"
        assert re.fullmatch(r"[-\d]+T[:\d]+\.\d{6}Z", lease(server)["renewTime"])


async def test_a_suspended_leader_stops_without_a_request() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        holder = elector(connection, "a", clock)
        await holder.attempt()
        requests = len(server.requests)
        clock.seconds += 9.9
        assert holder.is_leader
        clock.seconds += 0.1
        assert not holder.is_leader
        assert len(server.requests) == requests


async def test_a_leader_without_the_api_server_stops_at_its_deadline_and_returns() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        holder = elector(connection, "a", clock)
        await holder.attempt()
        server.fail_next(2, 503)
        clock.seconds += 8
        await holder.attempt()
        assert holder.is_leader
        clock.seconds += 2
        await holder.attempt()
        assert not holder.is_leader
        await holder.attempt()
        assert holder.is_leader
        assert lease(server)["leaseTransitions"] == 0


async def test_an_outage_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "webhook.controllers.leader_election")
    async with cluster() as (server, connection):
        holder = elector(connection, "a", Clock())
        server.fail_next(3, 503)
        for _ in range(5):
            await holder.attempt()
    assert [record.getMessage() for record in caplog.records] == [
        "lease not reached: failed by the test",
        "lease reached again",
        "a leads",
    ]


@pytest.mark.parametrize("exists", [False, True])
async def test_of_two_that_find_it_free_at_once_one_leads(*, exists: bool) -> None:
    async with cluster() as (_, connection):
        if exists:
            before = elector(connection, "before")
            await before.attempt()
            await before.release()
        ways = [Gated(connection), Gated(connection)]
        both = [elector(way, name) for way, name in zip(ways, "ab", strict=True)]
        attempts = [asyncio.ensure_future(candidate.attempt()) for candidate in both]
        for way in ways:
            await way.arrival()
            await way.step()  # the question leaves
            await way.step()  # its answer is here: both see that it is free
        for way in ways:
            await way.step()  # the write was answered
            way._go.put_nowait(None)  # noqa: SLF001 - the last gate
        await asyncio.gather(*attempts)
        assert [candidate.is_leader for candidate in both] == [True, False]


async def test_the_deadline_counts_from_before_the_request_of_a_late_answer() -> None:
    async with cluster() as (_, connection):
        clock, way = Clock(), Gated(connection)
        holder = elector(way, "a", clock)
        attempt = asyncio.ensure_future(holder.attempt())
        await way.arrival()
        for _ in range(3):
            await way.step()  # read, answered, written
        clock.seconds += 10
        way._go.put_nowait(None)  # noqa: SLF001 - the last gate
        await attempt
        assert not holder.is_leader


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.integers(0, 2), st.integers(1, 6)),
            st.tuples(st.just(-1), st.sampled_from([1, 4, 8, 11, 16])),
        ),
        min_size=5,
        max_size=25,
    )
)
@example([(1, 4), (-1, 8), (1, 6)])  # two attempts within the life of a lease
@example([(0, 3), (1, 4), (-1, 16), (1, 6), (0, 1)])  # an answer that comes after a takeover
@example([(1, 4), (-1, 16), (1, 2), (2, 2), (-1, 16), (2, 2), (1, 4), (2, 4)])  # two see it expire
def test_there_are_never_two_leaders_in_any_order_of_events(
    plan: list[tuple[int, int]],
) -> None:
    """Each entry lets a replica get so many gates further, or with -1 so many seconds pass."""
    asyncio.run(_walk(plan))


async def _walk(plan: Sequence[tuple[int, int]]) -> None:
    async with cluster() as (_, connection):
        clock = Clock()
        ways = [Gated(connection) for _ in range(3)]
        # Nobody agrees on the time of day.
        electors = [
            elector(way, str(hour), clock, now=partial(_wrong_time, hour, clock))
            for hour, way in enumerate(ways)
        ]
        replicas = [asyncio.ensure_future(_attempts(candidate)) for candidate in electors]
        for way in ways:
            await way.arrival()
        # Four gates make an attempt that writes: the walk begins with a leader.
        for index, count in [(0, 4), *plan]:
            if index < 0:
                clock.seconds += count
                assert sum(candidate.is_leader for candidate in electors) <= 1
                continue
            for _ in range(count):
                await ways[index].step()
                assert sum(candidate.is_leader for candidate in electors) <= 1
        for replica in replicas:
            replica.cancel()
        await asyncio.gather(*replicas, return_exceptions=True)


def _wrong_time(hours: int, clock: Clock) -> datetime:
    return NOON + timedelta(hours=hours, seconds=clock.seconds)


async def _attempts(candidate: LeaseElector) -> None:
    while True:
        await candidate.attempt()


QUICK = LeaseTimes(duration_seconds=2_000, deadline_seconds=1_500, retry_seconds=0.01)


class Duty:
    """Notes when it is begun and when it is ended."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def __call__(self) -> None:
        self.times += 1
        self.ended.clear()
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.begun.clear()
            self.ended.set()


async def test_a_duty_is_done_while_leading_and_ends_before_the_lease_is_released() -> None:
    async with cluster() as (server, connection):
        duty = Duty()
        running = asyncio.ensure_future(elector(connection, "a", times=QUICK).run(duty))
        await asyncio.wait_for(duty.begun.wait(), PATIENCE_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert duty.ended.is_set()
        assert lease(server)["holderIdentity"] == ""


async def test_a_duty_ends_when_another_leads_and_begins_again_after_it() -> None:
    async with cluster() as (server, connection):
        duty = Duty()
        running = asyncio.ensure_future(elector(connection, "a", times=QUICK).run(duty))
        await asyncio.wait_for(duty.begun.wait(), PATIENCE_SECONDS)
        for holder, expected in (("b", duty.ended), ("", duty.begun)):
            stored = server.objects("leases")[AT]
            stored["metadata"].pop("resourceVersion")
            stored["spec"]["holderIdentity"] = holder
            server.replace(stored)
            await asyncio.wait_for(expected.wait(), PATIENCE_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert duty.times == 2


async def test_a_duty_ends_at_the_deadline_without_the_api_server() -> None:
    async with cluster() as (server, connection):
        duty = Duty()
        times = LeaseTimes(duration_seconds=1, deadline_seconds=0.3, retry_seconds=0.01)
        running = asyncio.ensure_future(elector(connection, "a", times=times).run(duty))
        await asyncio.wait_for(duty.begun.wait(), PATIENCE_SECONDS)
        server.pause()
        await asyncio.wait_for(duty.ended.wait(), PATIENCE_SECONDS)
        server.resume()
        await asyncio.wait_for(duty.begun.wait(), PATIENCE_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_duty_that_fails_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as (_, connection):
        again = asyncio.Event()
        times = 0

        async def failing() -> None:
            nonlocal times
            times += 1
            if times > 1:
                again.set()
            raise RuntimeError("out of luck")

        times_of_test = LeaseTimes(duration_seconds=2, deadline_seconds=1, retry_seconds=0.01)
        running = asyncio.ensure_future(elector(connection, "a", times=times_of_test).run(failing))
        await asyncio.wait_for(again.wait(), PATIENCE_SECONDS)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert "out of luck" in caplog.text


def test_no_two_processes_of_a_host_have_one_identity() -> None:
    assert new_identity() != new_identity()


def test_times_that_would_let_two_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="retry < deadline < duration"):
        LeaseTimes(duration_seconds=10, deadline_seconds=10)


def written(server: FakeApiServer) -> dict[str, str]:
    found: dict[str, str] = server.objects("leases")[AT]["metadata"].get("annotations") or {}
    return found


async def test_an_annotation_is_written_with_the_next_renewal_and_seen_by_all() -> None:
    async with cluster() as (server, connection):
        leader, other = elector(connection, "a"), elector(connection, "b")
        await leader.attempt()
        leader.annotate("stowplan.dev/releasing", "true")
        assert written(server) == {}
        await leader.attempt()
        await other.attempt()
        assert written(server) == {"stowplan.dev/releasing": "true"}
        for replica in (leader, other):
            assert replica.observed.holder == "a"
            assert replica.observed.annotations == {"stowplan.dev/releasing": "true"}
        leader.annotate("stowplan.dev/releasing", "false")
        await leader.attempt()
        assert written(server) == {"stowplan.dev/releasing": "false"}


async def test_annotations_of_a_leader_end_with_its_lead_and_those_of_others_stay() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        first, second = elector(connection, "a", clock), elector(connection, "b", clock)
        await first.attempt()
        first.annotate("stowplan.dev/releasing", "true")
        await first.attempt()
        stored = server.objects("leases")[AT]
        stored["metadata"]["annotations"]["team"] = "shop"
        server.replace(stored)
        await second.attempt()
        clock.seconds += 15
        await second.attempt()  # takes over from one that died
        assert second.is_leader
        assert written(server) == {"team": "shop"}
        second.annotate("stowplan.dev/releasing", "true")
        await second.attempt()
        await second.release()
        assert written(server) == {"team": "shop"}
        assert second.observed.holder == ""


async def test_an_annotation_does_not_outlive_a_term_even_of_the_same_leader() -> None:
    async with cluster() as (server, connection):
        clock = Clock()
        leader = elector(connection, "a", clock)
        await leader.attempt()
        leader.annotate("stowplan.dev/releasing", "true")
        await leader.attempt()
        clock.seconds += 10  # its duties have ended
        await leader.attempt()
        assert leader.is_leader
        assert written(server) == {}


async def test_the_age_of_a_lease_counts_from_the_last_renewal_that_was_observed() -> None:
    async with cluster() as (_, connection):
        clock, moment = Clock(), NOON
        leader = elector(connection, "a", clock, now=lambda: moment)
        other = elector(connection, "b", clock)
        assert other.observed.age_seconds == float("inf")
        await leader.attempt()
        await other.attempt()
        assert other.observed.holder == "a"
        assert other.observed.age_seconds == float("inf")  # it may have been dead for days
        moment += timedelta(seconds=2)
        await leader.attempt()
        await other.attempt()
        clock.seconds += 7
        assert other.observed.age_seconds == 7
        assert leader.observed.age_seconds == 7
        await other.attempt()  # no renewal
        assert other.observed.age_seconds == 7


async def test_a_leader_knows_whether_it_succeeds_another_and_what_that_one_left() -> None:
    async with cluster() as (_, connection):
        first, second, third = (elector(connection, name) for name in ("one", "two", "three"))
        assert first.seconds_left <= 0
        await first.attempt()
        assert not first.succeeds
        assert 0 < first.seconds_left <= LeaseTimes().deadline_seconds
        first.annotate("stowplan.dev/releasing", "true")
        first.leave("stowplan.dev/bindings-settled", "true")
        await first.attempt()
        await first.release()
        await second.attempt()
        assert second.succeeds
        assert second.inherited == {"stowplan.dev/bindings-settled": "true"}
        await second.release()
        await third.attempt()
        assert third.succeeds
        assert third.inherited == {}


async def test_nothing_is_inherited_from_a_leader_that_was_lost() -> None:
    clock = Clock()
    async with cluster() as (_, connection):
        first, second = elector(connection, "one", clock), elector(connection, "two", clock)
        await first.attempt()
        first.annotate("stowplan.dev/bindings-settled", "true")
        await first.attempt()
        await second.attempt()
        clock.seconds += 60
        await second.attempt()
        assert second.is_leader
        assert second.succeeds
        assert second.inherited == {}


async def test_who_leads_after_somebody_deleted_the_lease_of_another_succeeds_that_one() -> None:
    async with cluster() as (server, connection):
        first, second = elector(connection, "one"), elector(connection, "two")
        await first.attempt()
        await second.attempt()
        server.delete("leases", *AT)
        await second.attempt()
        assert second.is_leader
        assert second.succeeds


# How few calls it takes.


async def test_a_renewal_is_one_write() -> None:
    async with cluster() as (server, connection):
        holder = elector(connection, "a", Clock())
        await holder.attempt()
        before = len(server.requests)
        for _ in range(3):
            await holder.attempt()
        assert [each.method for each in server.requests[before:]] == ["PUT"] * 3


async def test_a_lease_that_was_deleted_is_created_again_by_its_holder() -> None:
    async with cluster() as (server, connection):
        holder = elector(connection, "a", Clock())
        await holder.attempt()
        server.delete("leases", *AT)
        await holder.attempt()
        assert holder.is_leader
        assert lease(server)["holderIdentity"] == "a"


@asynccontextmanager
async def taking_part(*electors: LeaseElector) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each.run()) for each in electors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_candidate_that_watches_makes_no_calls_while_another_one_leads() -> None:
    async with cluster() as (server, connection):
        holder = elector(
            connection, "a", now=lambda: NOON + timedelta(seconds=len(server.requests))
        )
        await holder.attempt()
        candidate = elector(connection, "b", times=QUICK)  # would look every 10 ms
        async with taking_part(candidate):
            await eventually(lambda: server.watches("leases") == 1)
            await eventually(lambda: candidate.observed.holder == "a")
            await holder.attempt()
            await eventually(lambda: candidate.observed.age_seconds < float("inf"))
            before = len(server.requests)
            for _ in range(20):
                await holder.attempt()
                await asyncio.sleep(QUICK.retry_seconds)
            assert [each.method for each in server.requests[before:]] == ["PUT"] * 20
        assert not candidate.is_leader


async def test_a_candidate_takes_a_released_lease_as_soon_as_its_watch_shows_it() -> None:
    async with cluster() as (server, connection):
        holder = elector(connection, "a")
        await holder.attempt()
        slow = LeaseTimes(duration_seconds=3_000, deadline_seconds=2_000, retry_seconds=1_000)
        candidate = elector(connection, "b", times=slow)
        async with taking_part(candidate):
            await eventually(lambda: server.watches("leases") == 1)
            await eventually(lambda: candidate.observed.holder == "a")
            await holder.release()
            await eventually(lambda: candidate.is_leader)


async def test_a_leader_stops_as_soon_as_its_watch_shows_another_one() -> None:
    async with cluster() as (server, connection):
        slow = LeaseTimes(duration_seconds=3_000, deadline_seconds=2_000, retry_seconds=1_000)
        holder = elector(connection, "a", times=slow)
        async with taking_part(holder):
            await eventually(lambda: server.watches("leases") == 1 and holder.is_leader)
            stored = server.objects("leases")[AT]
            stored["metadata"].pop("resourceVersion")
            stored["spec"]["holderIdentity"] = "b"
            server.replace(stored)
            await eventually(lambda: not holder.is_leader)


async def test_without_the_right_to_watch_the_lease_is_read() -> None:
    async with cluster() as (server, connection):
        server.play("GET", f"/apis/coordination.k8s.io/v1/namespaces/{AT[0]}/leases", _forbidden)
        holder = elector(connection, "a")
        await holder.attempt()
        candidate = elector(connection, "b", times=QUICK)
        async with taking_part(candidate):
            await eventually(lambda: candidate.observed.holder == "a")
            await holder.release()
            await eventually(lambda: candidate.is_leader)


def _forbidden(_: object) -> Any:  # noqa: ANN401 - JSON
    raise ApiFault(403, "no watch for you")


async def test_a_follower_sees_who_leads_and_never_leads() -> None:
    async with cluster() as (server, connection):
        holder, follower = elector(connection, "a"), elector(connection, "b")
        following = asyncio.ensure_future(follower.follow())
        await eventually(lambda: server.watches("leases") == 1)
        await holder.attempt()
        await eventually(lambda: follower.observed.holder == "a")
        await holder.release()
        await eventually(lambda: follower.observed.holder == "")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        assert lease(server)["holderIdentity"] == ""
