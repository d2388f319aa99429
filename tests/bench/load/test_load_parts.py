from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.bench.generate import GeneratedCluster
from tests.bench.load import verdicts
from tests.bench.load.api_server import fill
from tests.bench.load.certificates import Certificates
from tests.bench.load.churn import Churn
from tests.bench.load.messages import Arrival, Phase, Target, Window
from tests.bench.load.reviews import Reviews
from tests.bench.load.schedule import moments
from tests.bench.load.scrape import Handled
from tests.bench.load.sender import Sender
from tests.fake_api_server import fake_api_server
from tests.patience import PATIENCE_SECONDS
from webhook.admission import wire

TARGET = Target(port=0, path="/mutate")


def reviews(*, dry_run: bool = False) -> Reviews:
    return Reviews(GeneratedCluster(nodes=20, pods=400).workloads, 30, dry_run=dry_run)


def test_a_review_is_of_a_pod_without_name_and_node_and_no_two_are_the_same() -> None:
    asked = [wire.decode(body) for body in itertools.islice(reviews(), 60)]
    assert all(one.creates_pod and not one.dry_run for one in asked)
    pods = [one.pod() for one in asked]
    assert not any(pod.metadata.name or pod.spec.node_name for pod in pods)
    assert len({one.uid for one in asked}) == 60


def test_a_dry_run_says_so() -> None:
    assert wire.decode(next(iter(reviews(dry_run=True)))).dry_run


@pytest.mark.parametrize("arrival", [Arrival.EVEN, Arrival.RANDOM, Arrival.BURST])
def test_as_many_reviews_are_due_as_the_rate_says_in_order_and_in_time(arrival: Arrival) -> None:
    due = moments(Phase(target=TARGET, arrival=arrival, seconds=4, rate=50))
    assert len(due) == 200
    assert due == sorted(due)
    assert due[0] >= 0
    assert due[-1] <= 4


async def test_things_happen_in_a_generated_cluster() -> None:
    cluster = GeneratedCluster(nodes=20, pods=400)
    async with fake_api_server(without=()) as server:
        churn = Churn(server, cluster, fill(server, cluster), events=100)
        churn.happen(1.0, now=0.0)
        # 20 nodes send a heartbeat in 300 s, so 19 pods end, with another created for each.
        assert churn.events == 38
        churn.happen(0.0, now=math.inf)
        assert churn.events == 95  # these are bound and running by now, the others are gone


def test_a_quantile_lies_within_its_bucket() -> None:
    said = Handled(outcomes={}, mean=0, counts={0.001: 50, 0.002: 90, 0.005: 90, math.inf: 100})
    assert said.quantile(0.5) == pytest.approx(0.001)
    assert said.quantile(0.7) == pytest.approx(0.0015)  # 20 of the 40 from 1 to 2 ms
    assert said.quantile(0.99) == math.inf


def test_memory_that_grows_in_the_second_half_is_a_leak_and_at_first_is_not() -> None:
    warming_up = [(float(minute), min(200.0 + 5 * minute, 250.0)) for minute in range(30)]
    leaking = [(float(minute), 200.0 + minute) for minute in range(30)]
    assert verdicts.memory(warming_up).good
    assert not verdicts.memory(leaking).good


class AtOnce:
    """Counts the reviews that are being answered; each answer takes some steps of the loop."""

    def __init__(self) -> None:
        self.most = self._now = 0

    async def answer(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(20):
            await asyncio.sleep(0)
        self._now -= 1


@asynccontextmanager
async def answering(
    status: Callable[[], int], at_once: AtOnce | None = None
) -> AsyncIterator[Target]:
    """Listen for reviews, to be answered with a status; those with 200 are advised."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        if at_once is not None:
            await at_once.answer()
        return web.Response(status=status(), text='{"response":{"patch":"W10="}}')

    app = web.Application()
    app.router.add_post("/mutate", answer)
    async with TestServer(app) as server:
        if server.port is None:
            raise AssertionError("it listens")
        yield Target(port=server.port, path="/mutate")


async def sent(sender: Sender, phase: Phase) -> Window:
    """Return what comes of a phase in all."""
    came = Window()
    async for window in sender.send(phase):
        came.add(window)
    return came


async def test_the_sender_counts_answers_and_refusals() -> None:
    statuses = itertools.cycle([503, 200, 200, 200])
    async with answering(lambda: next(statuses)) as target:
        phase = Phase(target=target, arrival=Arrival.EVEN, seconds=0.2, rate=200)
        came = await sent(Sender(reviews()), phase)
    assert (len(came.latencies), came.advised) == (30, 30)
    assert came.failed == {"status 503": 10}
    assert not came.timed_out


async def test_what_a_lead_in_leaves_are_connections_for_one_phase_and_nothing_to_count() -> None:
    async with answering(lambda: 200) as target:
        phase = Phase(target=target, arrival=Arrival.EVEN, seconds=0.1, rate=100, connections=1)
        lead_in = msgspec.structs.replace(phase, leaves_connections=True)
        sender = Sender(reviews())
        came = [await sent(sender, one) for one in (lead_in, phase, phase)]
    assert [one.connected for one in came] == [1, 0, 1]
    assert [len(one.latencies) for one in came] == [10, 10, 10]


async def test_only_so_many_reviews_are_under_way_as_an_api_server_has_seats() -> None:
    at_once = AtOnce()
    async with answering(lambda: 200, at_once) as target:
        phase = Phase(target=target, arrival=Arrival.EVEN, seconds=0.01, rate=6_000, seats=2)
        came = await sent(Sender(reviews()), phase)
    assert len(came.latencies) == 60
    assert at_once.most <= 2
    assert came.connected <= 60


async def test_a_review_for_which_no_connection_is_made_fails_once() -> None:
    async with answering(lambda: 200) as target:
        pass
    phase = Phase(target=target, arrival=Arrival.EVEN, seconds=0.05, rate=200, seats=3)
    came = await sent(Sender(reviews()), phase)
    assert sum(came.failed.values()) == 10
    assert not came.timed_out


async def test_connections_that_are_still_being_made_do_not_outlast_their_phase(
    tmp_path: Path,
) -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1_000):  # the first words of a TLS handshake
            pass
        writer.close()
        ended.set()

    ca = str(Certificates(tmp_path).ca)
    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        target = Target(port=port, path="/mutate", ca_file=ca)
        phase = Phase(target=target, arrival=Arrival.AT_ONCE, seconds=0.01, connections=1)
        await sent(Sender(reviews()), phase)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
