from __future__ import annotations

import asyncio
import gzip
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Self, TypeVar

import pytest
from aiohttp import ClientResponse, ClientSession, StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from engine.errors import QuotaUndecidedError
from tests.patience import PATIENCE_SECONDS
from webhook.admission import wire
from webhook.admission.handler import (
    BodyReader,
    ConcurrencyLimiter,
    Decide,
    Outcome,
    ReviewHandler,
    ReviewLimits,
    ReviewResult,
    Shortcut,
    Undecided,
    _timeout_in,
    admit_unmodified,
)
from webhook.admission.wire import AdmissionError, AdmissionRequest, UndecidedError
from webhook.metrics import Metrics

MOST = 100

T = TypeVar("T")


def request() -> tuple[web.Request, StreamReader]:
    """Return a request whose body is fed by the test."""
    loop = asyncio.get_running_loop()
    protocol = BaseProtocol(loop)
    protocol.connection_made(asyncio.Transport())
    content = StreamReader(protocol, 2**16, loop=loop)
    return make_mocked_request("POST", "/", payload=content, client_max_size=MOST), content


async def turns(count: int = 9) -> None:
    """Let other tasks go on."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("size", [MOST, MOST + 1])
async def test_a_body_that_is_here_is_whole_unless_it_is_too_large(size: int) -> None:
    arrived, content = request()
    content.feed_data(b"x" * size)
    content.feed_eof()
    body = await BodyReader(60.0).read(arrived)
    assert body.is_whole is (size <= MOST)
    assert len(body.data) == size


async def test_of_a_body_without_an_end_no_more_is_read_than_shows_that_it_is_too_large() -> None:
    arrived, content = request()
    reading = asyncio.create_task(BodyReader(60.0).read(arrived))
    for _ in range(3):
        content.feed_data(b"x" * 40)
        await turns()
    assert (await reading) == (b"x" * 120, False)


async def test_a_body_that_stops_is_given_up_in_time() -> None:
    arrived, content = request()
    content.feed_data(b"x")
    with pytest.raises(TimeoutError):
        await BodyReader(0.001).read(arrived)


async def test_when_unfinished_bodies_fill_their_memory_the_oldest_is_given_up() -> None:
    bodies = BodyReader(60.0, most_unfinished_bytes=150)
    requests = [request() for _ in range(3)]
    readings = []
    for arrived, content in requests:
        readings.append(asyncio.create_task(bodies.read(arrived)))
        content.feed_data(b"x" * 60)  # 60, 120, 180: too much
        await turns()
    with pytest.raises(TimeoutError):
        await readings[0]
    for _, content in requests[1:]:
        content.feed_eof()
    assert [(await reading).is_whole for reading in readings[1:]] == [True, True]


async def test_bodies_that_are_read_no_more_take_no_memory_from_others() -> None:
    bodies = BodyReader(60.0, most_unfinished_bytes=100)
    for _ in range(5):
        arrived, content = request()
        reading = asyncio.create_task(bodies.read(arrived))
        content.feed_data(b"x" * 90)
        await turns()
        content.feed_eof()
        assert (await reading).is_whole


def test_there_is_a_place_for_as_many_reviews_as_the_limit() -> None:
    limiter = ConcurrencyLimiter(2, time.monotonic)
    assert [limiter.enter("shop") for _ in range(3)] == [True, True, False]
    assert limiter.in_flight == 3
    for _ in range(3):
        limiter.leave("shop")
    assert limiter.in_flight == 0
    assert limiter.enter("shop")


def test_made_up_namespaces_have_a_multiple_of_the_places_at_most() -> None:
    limiter = ConcurrencyLimiter(12, time.monotonic)
    assert [limiter.enter(f"n{number}") for number in range(50)].count(True) == 4 * 12


def test_each_namespace_has_its_share_of_the_places_whoever_has_taken_them() -> None:
    limiter = ConcurrencyLimiter(12, time.monotonic)
    assert all(limiter.enter("flood") for _ in range(12))
    assert [limiter.enter("shop") for _ in range(7)] == [True] * 6 + [False]
    assert [limiter.enter("bank") for _ in range(5)] == [True] * 4 + [False]
    assert not limiter.enter("flood")
    for _ in range(13):
        limiter.leave("flood")
    assert [limiter.enter("bank") for _ in range(2)] == [True, False]  # half of the places now


async def serialized(limiter: ConcurrencyLimiter, decide: Callable[[], T], at: str = "shop") -> T:
    """Return the result of a review that enters, decides and leaves."""
    limiter.enter(at)
    try:
        async with limiter.turn(at):
            return decide()
    finally:
        limiter.leave(at)


async def test_decisions_are_made_in_order_of_arrival_and_each_caller_gets_its_own_result() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)
    calls: list[str] = []

    def decide(name: str) -> str:
        calls.append(name)
        return name.upper()

    results = await asyncio.gather(*(serialized(limiter, partial(decide, name)) for name in "abc"))
    assert calls == ["a", "b", "c"]
    assert results == ["A", "B", "C"]


async def test_namespaces_decide_in_turn_however_many_reviews_one_of_them_has() -> None:
    limiter = ConcurrencyLimiter(9, lambda: 0.0)
    calls: list[str] = []
    namespaces = [*["flood"] * 5, "shop", "bank", "shop"]
    await asyncio.gather(
        *(serialized(limiter, partial(calls.append, each), each) for each in namespaces)
    )
    assert calls == ["flood", "flood", "shop", "bank", "flood", "shop", "flood", "flood"]


async def test_a_whole_burst_is_counted_before_its_first_review_is_decided() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)

    async def review() -> int:
        return await serialized(limiter, lambda: limiter.in_flight)

    assert await asyncio.gather(*(review() for _ in range(3))) == [3, 2, 1]


async def test_it_tells_how_many_wait_for_their_turn_and_how_many_have_had_it() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)

    async def review() -> tuple[int, int]:
        return await serialized(limiter, lambda: (limiter.waiting, limiter.taken))

    assert await asyncio.gather(*(review() for _ in range(3))) == [(3, 0), (2, 1), (1, 2)]
    assert (limiter.waiting, limiter.taken) == (0, 3)


async def test_other_tasks_run_between_two_decisions() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)
    calls: list[str] = []

    async def review() -> None:
        await serialized(limiter, lambda: calls.append("decided"))

    async def probe() -> None:
        while len(calls) < 9:
            calls.append("probe")
            await asyncio.sleep(0)

    await asyncio.gather(review(), review(), review(), probe())
    decisions = [at for at, call in enumerate(calls) if call == "decided"]
    assert all(later - earlier > 1 for earlier, later in pairwise(decisions))


async def test_a_failure_ends_only_its_own_review() -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)

    def fail() -> None:
        raise ValueError("on the way")

    first, second = await asyncio.gather(
        serialized(limiter, fail),
        serialized(limiter, lambda: "decided"),
        return_exceptions=True,
    )
    assert isinstance(first, ValueError)
    assert second == "decided"


@pytest.mark.parametrize("cancelled", [0, 1])
async def test_a_cancelled_review_gives_up_its_turn(cancelled: int) -> None:
    limiter = ConcurrencyLimiter(9, time.monotonic)
    calls: list[int] = []
    tasks = [
        asyncio.create_task(serialized(limiter, partial(calls.append, number)))
        for number in range(3)
    ]
    await asyncio.sleep(0)  # the first has its turn, but not decided; the others wait for theirs
    tasks[cancelled].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert calls == [number for number in range(3) if number != cancelled]


class Overload:
    """Reviews of a limiter, and what each found when its turn came, 1 ms after the one before."""

    def __init__(self, limit: int, milliseconds: float = 1.0) -> None:
        self.now = 0.0
        self.limiter = ConcurrencyLimiter(limit, lambda: self.now)
        self.had_room: list[bool] = []
        self._seconds = milliseconds / 1e3

    async def review(self, namespace: str = "shop") -> bool:
        """Return whether there was no time for the review, which takes some if there was."""
        self.limiter.enter(namespace)
        if namespace == "shop":
            self.had_room.append(self.limiter.has_room(namespace))
        try:
            async with self.limiter.turn(namespace):
                return self._decide()
        finally:
            self.limiter.leave(namespace)

    def _decide(self) -> bool:
        is_overloaded = self.limiter.is_overloaded
        self.now += self._seconds / 10 if is_overloaded else self._seconds
        return is_overloaded

    async def burst(self, size: int) -> list[bool]:
        """Return what each of many reviews found that came at one moment."""
        return await asyncio.gather(*(self.review() for _ in range(size)))

    async def stream(self, size: int, count: int, namespace: str = "shop") -> list[bool]:
        """Return what reviews found that came one for one that had left."""
        reviews = {asyncio.create_task(self.review(namespace)) for _ in range(size)}
        found: list[bool] = []
        while reviews:
            done, reviews = await asyncio.wait(reviews, return_when=asyncio.FIRST_COMPLETED)
            found += [task.result() for task in done]
            more = min(len(done), count - len(found) - len(reviews))
            reviews |= {asyncio.create_task(self.review(namespace)) for _ in range(more)}
        return found


@pytest.mark.parametrize("milliseconds", [1.0, 10.0])
async def test_a_burst_of_the_limit_waits_as_a_whole_however_slow_the_machine(
    milliseconds: float,
) -> None:
    overload = Overload(100, milliseconds)
    assert not any(await overload.burst(100))


async def test_a_review_that_waited_long_in_a_standing_queue_finds_no_time() -> None:
    overload = Overload(100)
    found = await overload.stream(60, 1_000)
    assert found.index(True) == 100  # a burst may be so long
    assert sum(found[100:160]) == 44  # 16 of 60 in flight waited for less than 20 ms
    assert not any(found[-50:])  # the last of the queue
    assert not any(await overload.burst(100))  # it was empty in between


async def test_in_an_overload_few_may_wait_until_the_queue_is_empty() -> None:
    overload = Overload(100)
    found = await overload.stream(60, 1_000)
    came_before = found.index(True) + 60
    assert all(overload.had_room[:came_before])
    assert not any(overload.had_room[came_before + 60 :])
    overload.had_room.clear()
    await overload.burst(100)
    assert all(overload.had_room)


async def test_an_overload_that_is_not_seen_for_a_second_is_over() -> None:
    overload = Overload(100)
    limiter = overload.limiter
    for _ in range(6):
        limiter.enter("shop")  # the queue is never empty
    await overload.stream(50, 300)
    assert limiter.has_room("shop")
    limiter.enter("shop")
    assert not limiter.has_room("shop")
    overload.now += 1.1
    assert limiter.has_room("shop")


async def test_half_as_many_clients_as_the_limit_are_no_overload_however_slow() -> None:
    assert not any(await Overload(100, milliseconds=50.0).stream(50, 1_000))


async def test_an_overload_by_one_namespace_is_none_of_another() -> None:
    overload = Overload(100)

    async def shop() -> list[bool]:
        one_at_a_time = [await overload.review() for _ in range(20)]
        return one_at_a_time + await overload.burst(50)

    flood = asyncio.create_task(overload.stream(100, 2_000, "flood"))
    await until(lambda: overload.limiter.is_overloaded)
    assert not any(await shop())
    assert all(overload.had_room)
    assert sum(await flood) > 1_000


async def test_an_overload_by_many_namespaces_is_that_of_each() -> None:
    overload = Overload(100)
    streams = [overload.stream(2, 40, f"team-{number}") for number in range(40)]
    found = await asyncio.gather(*streams)
    assert all(any(each) for each in found)


async def test_between_decisions_that_take_long_others_have_more_passes_of_the_loop() -> None:
    now, calls = 0.0, list[str]()

    def decide(seconds: float) -> None:
        nonlocal now
        now += seconds
        calls.append("decided")

    async def probe() -> None:
        while calls.count("decided") < 4:
            calls.append("probe")
            await asyncio.sleep(0)

    limiter = ConcurrencyLimiter(9, lambda: now)
    reviews = [serialized(limiter, partial(decide, each)) for each in (0.001, 0.01, 0.01, 0.001)]
    await asyncio.gather(probe(), *reviews)
    decisions = [at for at, call in enumerate(calls) if call == "decided"]
    first, second, third = (later - earlier for earlier, later in pairwise(decisions))
    assert first < 8 <= second == third


@pytest.mark.parametrize(("waiting", "before"), [(20, 20), (200, 50)])
async def test_a_decision_waits_for_reviews_that_come_first_but_not_for_ever(
    waiting: int, before: int
) -> None:
    first = ConcurrencyLimiter(300, time.monotonic)
    then = ConcurrencyLimiter(300, time.monotonic, yields_to=first)
    calls: list[str] = []
    await asyncio.gather(
        *(serialized(first, partial(calls.append, "first")) for _ in range(waiting)),
        serialized(then, partial(calls.append, "then")),
    )
    assert calls.index("then") == pytest.approx(before, abs=3)


def test_reviews_are_crowded_when_seventeen_are_in_flight() -> None:
    limiter = ConcurrencyLimiter(99, time.monotonic)
    for _ in range(16):
        limiter.enter("shop")
    assert not limiter.is_crowded
    limiter.enter("shop")
    assert limiter.is_crowded


BODY = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "operation": "CREATE"},
    }
).encode()
JSON = {"Content-Type": "application/json"}
LARGEST = 10_000


class Clock:
    """A clock that moves only when set, or by a step at each reading."""

    def __init__(self, step: float = 0.0) -> None:
        self.now = 0.0
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def admit(request: AdmissionRequest) -> ReviewResult:
    return ReviewResult(Outcome.ADMITTED, wire.allowed(request.uid))


class Webhook:
    """One handler behind real HTTP, and what its metrics say."""

    def __init__(  # noqa: PLR0913 - those of a handler
        self,
        decide: Decide = admit,
        *,
        fails_open: bool = True,
        max_in_flight: int = 9,
        clock: Callable[[], float] | None = None,
        body_seconds: float = 60.0,
        shortcut: Shortcut = lambda _: None,
        undecided: Undecided = admit_unmodified,
        decide_quota: Decide | None = None,
    ) -> None:
        self.lost: list[str] = []
        self.metrics = Metrics()
        limits = ReviewLimits(body_seconds=body_seconds)
        self.limiter = ConcurrencyLimiter(max_in_flight, time.monotonic)
        handler = ReviewHandler(
            "review",
            decide,
            fails_open=fails_open,
            limits=limits,
            limiter=self.limiter,
            metrics=self.metrics,
            clock=clock or Clock(),
            shortcut=shortcut,
            undecided=undecided,
            answered=self._note,
            decide_quota=decide_quota,
        )
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post("/review", handler.handle)
        self._runner = web.AppRunner(app)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port: int = self._runner.addresses[0][1]
        self.client = ClientSession(f"http://127.0.0.1:{self.port}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self._runner.cleanup()

    async def post(
        self, body: object, *, headers: Mapping[str, str] = JSON, within: str = ""
    ) -> ClientResponse:
        path = f"/review?timeout={within}" if within else "/review"
        return await self.client.post(path, data=body, headers=headers)

    def _note(self, result: ReviewResult, *, is_lost: bool) -> None:
        if is_lost:
            self.lost.append(result.response.uid)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    def counted(self) -> dict[str, float]:
        """Return the outcomes counted so far."""
        return {
            sample.labels["outcome"]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "stowplan_reviews_total"
        }

    async def until_in_flight(self, count: int) -> None:
        labels = {"path": "review"}
        value = self.metrics.registry.get_sample_value
        await until(lambda: value("stowplan_reviews_in_flight", labels) == count)


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something has come true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0)


class SlowBody:
    """A body whose second half comes when it is let go."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.rest = asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield BODY[:10]
        self.begun.set()
        await self.rest.wait()
        yield BODY[10:]


async def test_reviews_of_one_path_are_decided_by_their_resource() -> None:
    def deny(request: AdmissionRequest) -> ReviewResult:
        return ReviewResult(Outcome.INVALID, wire.denied(request.uid, "of a quota"))

    def body(group: str, resource: str) -> bytes:
        review = json.loads(BODY)
        review["request"]["resource"] = {"group": group, "version": "v1", "resource": resource}
        return json.dumps(review).encode()

    async with Webhook(decide_quota=deny) as webhook:
        await webhook.post(body("", "pods"))
        await webhook.post(body("example.com", "elasticquotas"))
        assert webhook.counted() == {"admitted": 2}
        await webhook.post(body("scheduling.x-k8s.io", "elasticquotas"))
        assert webhook.counted() == {"admitted": 2, "invalid": 1}


async def test_a_decision_that_times_out_by_itself_is_an_internal_error() -> None:
    async def time_out(_: AdmissionRequest) -> ReviewResult:
        raise TimeoutError

    async with Webhook(time_out) as webhook:
        assert (await webhook.post(BODY)).status == 500
        assert webhook.counted() == {"error": 1}


async def test_a_response_is_json_and_is_counted_and_timed() -> None:
    async with Webhook() as webhook:
        response = await webhook.post(BODY)
        assert response.status == 200
        assert response.content_type == "application/json"
        assert (await response.json())["response"] == {"uid": "u-1", "allowed": True}
        assert webhook.counted() == {"admitted": 1}
        value = webhook.metrics.registry.get_sample_value
        assert value("stowplan_review_seconds_count", {"path": "review"}) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"<html>", "malformed"),
        (b'{"x":' * 1_900, "truncated"),
        (BODY.replace(b"u-1", b""), "$.request.uid"),
        (BODY.replace(b'"u-1"', b"1" * 5_000), "$.request.uid"),
        (BODY.replace(b"AdmissionReview", b"Pod"), "AdmissionReview"),
    ],
)
async def test_a_malformed_review_is_a_400_with_a_short_reason(body: bytes, reason: str) -> None:
    async with Webhook() as webhook:
        response = await webhook.post(body)
        text = await response.text()
        assert (response.status, response.content_type) == (400, "text/plain")
        assert reason in text
        assert "Traceback" not in text
        assert len(text) < 400
        assert webhook.counted() == {"malformed": 1}


async def test_a_body_that_is_too_large_is_a_413_unless_it_begins_as_a_review() -> None:
    async with Webhook() as webhook:
        response = await webhook.post(b"x" * (LARGEST + 1))
        assert response.status == 413
        assert "too large" in await response.text()
        assert webhook.counted() == {"malformed": 1}


async def test_of_a_review_that_is_too_large_the_beginning_is_decided() -> None:
    requests: list[AdmissionRequest] = []

    def decide(request: AdmissionRequest) -> ReviewResult:
        requests.append(request)
        return admit(request)

    body = json.dumps(
        {
            "kind": "AdmissionReview",
            "apiVersion": "admission.k8s.io/v1",
            "request": {"uid": "u-1", "operation": "CREATE", "object": {"x": "x" * LARGEST}},
        },
        separators=(",", ":"),
    ).encode()
    async with Webhook(decide) as webhook:
        response = await webhook.post(body)
        assert (await response.json())["response"] == {"uid": "u-1", "allowed": True}
        assert requests[0].is_too_large


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_a_compressed_body_is_a_415(encoding: str) -> None:
    headers = JSON | {"Content-Encoding": encoding}
    async with Webhook() as webhook:
        response = await webhook.post(gzip.compress(b"x" * 1_000_000), headers=headers)
        assert response.status == 415
        assert "uncompressed" in await response.text()
        assert webhook.counted() == {"malformed": 1}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "x"])
async def test_another_content_type_is_a_415(kind: str) -> None:
    async with Webhook() as webhook:
        response = await webhook.post(BODY, headers={"Content-Type": kind})
        assert response.status == 415


async def test_a_content_type_with_a_charset_is_json_too() -> None:
    async with Webhook() as webhook:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert (await webhook.post(BODY, headers=headers)).status == 200


async def test_another_method_is_a_405_and_another_path_a_404() -> None:
    async with Webhook() as webhook:
        assert (await webhook.client.get("/review")).status == 405
        assert (await webhook.client.post("/other", data=BODY)).status == 404


class Waiting:
    """Decides reviews of uid `slow` when it is let go, all others at once."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, request: AdmissionRequest) -> ReviewResult:
        if request.uid == "slow":
            await self.go.wait()
        return admit(request)


SLOW = BODY.replace(b"u-1", b"slow")


async def test_beyond_the_limit_a_pod_passes_unmodified() -> None:
    decide = Waiting()
    async with Webhook(decide, max_in_flight=2) as webhook:
        waiting = [asyncio.create_task(webhook.post(SLOW)) for _ in range(2)]
        await webhook.until_in_flight(2)
        shed = (await (await webhook.post(BODY)).json())["response"]
        assert shed["allowed"] is True
        assert "patch" not in shed
        assert shed["warnings"] == ["stowplan gave no placement advice: too many pods at a time"]
        decide.go.set()
        assert [(await response).status for response in waiting] == [200, 200]
        assert webhook.counted() == {"shed": 1, "admitted": 2}


async def test_a_shortcut_is_taken_beyond_the_limit_and_while_others_wait() -> None:
    decide, quick = Waiting(), BODY.replace(b"u-1", b"quick")
    async with Webhook(
        decide, max_in_flight=1, shortcut=lambda each: admit(each) if each.uid == "quick" else None
    ) as webhook:
        waiting = asyncio.create_task(webhook.post(SLOW))
        await webhook.until_in_flight(1)
        answer = (await (await webhook.post(quick)).json())["response"]
        assert answer == {"uid": "quick", "allowed": True}
        assert webhook.limiter.taken == 2  # connections are let in by turns
        decide.go.set()
        assert (await waiting).status == 200
        assert webhook.counted() == {"admitted": 2}


async def test_beyond_the_limit_quota_is_left_to_the_failure_policy() -> None:
    decide = Waiting()
    async with Webhook(decide, max_in_flight=1, fails_open=False) as webhook:
        waiting = asyncio.create_task(webhook.post(SLOW))
        await webhook.until_in_flight(1)
        assert (await webhook.post(BODY)).status == 503
        decide.go.set()
        assert (await waiting).status == 200


@pytest.mark.parametrize("fails_open", [True, False])
async def test_a_namespace_that_takes_all_places_keeps_no_other_out(fails_open: bool) -> None:  # noqa: FBT001
    def sent(uid: bytes, namespace: bytes) -> bytes:
        return BODY.replace(b'"u-1"', b'"%b", "namespace": "%b"' % (uid, namespace))

    decide = Waiting()
    async with Webhook(decide, max_in_flight=4, fails_open=fails_open) as webhook:
        waiting = [asyncio.create_task(webhook.post(sent(b"slow", b"flood"))) for _ in range(4)]
        await webhook.until_in_flight(4)
        await webhook.post(sent(b"u-1", b"flood"))
        assert (await webhook.post(sent(b"u-2", b"shop"))).status == 200
        assert webhook.counted() == {"shed": 1, "admitted": 1}
        decide.go.set()
        assert [(await response).status for response in waiting] == [200] * 4


@pytest.mark.parametrize("fails_open", [True, False])
async def test_half_sent_bodies_keep_no_review_out(fails_open: bool) -> None:  # noqa: FBT001
    async with Webhook(max_in_flight=2, fails_open=fails_open) as webhook:
        bodies = [SlowBody() for _ in range(9)]
        halves = [asyncio.create_task(webhook.post(body)) for body in bodies]
        async with asyncio.TaskGroup() as group:
            for body in bodies:
                group.create_task(body.begun.wait())
        assert (await webhook.post(BODY)).status == 200
        assert webhook.counted() == {"admitted": 1}
        for half in halves:
            half.cancel()
        await asyncio.gather(*halves, return_exceptions=True)


async def test_a_late_pod_passes_unmodified() -> None:
    # Each reading of the clock takes 8 s: arrival at 8, so the deadline is 8 + 0.6 * 10 = 14;
    # the body is here, deciding would start at 16.
    async with Webhook(clock=Clock(step=8.0)) as webhook:
        late = (await (await webhook.post(BODY)).json())["response"]
        assert late["allowed"] is True
        assert late["warnings"] == ["stowplan gave no placement advice: no time was left"]
        assert webhook.counted() == {"deadline": 1}


async def test_a_path_may_say_what_becomes_of_a_late_review() -> None:
    def refuse(request: AdmissionRequest, outcome: Outcome, reason: str) -> ReviewResult:
        return ReviewResult(outcome, wire.denied(request.uid, reason))

    async with Webhook(clock=Clock(step=8.0), undecided=refuse) as webhook:
        late = (await (await webhook.post(BODY)).json())["response"]
        assert not late["allowed"]
        assert late["status"]["message"] == "no time was left"
        assert webhook.counted() == {"deadline": 1}


async def test_a_path_that_cannot_read_a_late_review_says_so() -> None:
    def unable(*_: object) -> ReviewResult:
        raise AdmissionError("the object is not a binding")

    async with Webhook(clock=Clock(step=8.0), undecided=unable) as webhook:
        assert (await webhook.post(BODY)).status == 400


async def test_an_answer_after_the_timeout_of_its_caller_is_lost() -> None:
    # Arrival at 1, decided at 2, answered at 3; the caller waits for 1 s, or for 9 s.
    async with Webhook(clock=Clock(step=1.0)) as webhook:
        await webhook.post(BODY, within="9s")
        assert not webhook.lost
        await webhook.post(BODY, within="1s")
        assert webhook.lost == ["u-1"]


async def test_an_answer_to_somebody_who_is_gone_is_lost() -> None:
    deciding = Waiting()
    slow = BODY.replace(b"u-1", b"slow")
    async with Webhook(deciding) as webhook:
        asked = asyncio.create_task(webhook.post(slow))
        await webhook.until_in_flight(1)
        asked.cancel()
        await webhook.client.close()
        await until(lambda: not webhook.connections)
        deciding.go.set()
        await until(lambda: webhook.lost == ["slow"])


async def test_a_review_that_must_not_be_decided_here_is_a_503() -> None:
    def unable(_: AdmissionRequest) -> ReviewResult:
        raise UndecidedError("another replica leads")

    async with Webhook(unable) as webhook:
        response = await webhook.post(BODY)
        assert (response.status, await response.text()) == (503, "another replica leads\n")
        assert webhook.counted() == {"undecided": 1}


async def test_a_late_quota_review_is_left_to_the_failure_policy() -> None:
    async with Webhook(clock=Clock(step=8.0), fails_open=False) as webhook:
        assert (await webhook.post(BODY)).status == 503
        assert webhook.counted() == {"deadline": 1}


async def test_the_deadline_is_a_fraction_of_the_timeout_of_the_caller() -> None:
    # As above, with 20 s: the deadline is 8 + 0.6 * 20 = 20.
    async with Webhook(clock=Clock(step=8.0)) as webhook:
        await webhook.post(BODY, within="20s")
        assert webhook.counted() == {"admitted": 1}


async def test_a_body_that_never_ends_is_given_up_soon_whatever_timeout_the_caller_sends() -> None:
    async with Webhook(body_seconds=0.001) as webhook:
        slow = SlowBody()
        response = await webhook.post(slow, within="30s")
        assert response.status == 408
        assert webhook.counted() == {"deadline": 1}
        slow.rest.set()


async def test_a_body_that_comes_in_parts_is_waited_for() -> None:
    async with Webhook() as webhook:
        slow = SlowBody()
        posting = asyncio.create_task(webhook.post(slow))
        await slow.begun.wait()
        slow.rest.set()
        assert (await posting).status == 200
        assert webhook.counted() == {"admitted": 1}


async def test_a_caller_that_goes_away_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)  # not what the test's own server says of each access
    async with Webhook() as webhook:
        _, writer = await asyncio.open_connection("127.0.0.1", webhook.port)
        writer.write(
            b"POST /review HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await until(lambda: bool(webhook.counted()))
        assert webhook.counted() == {"malformed": 1}
        assert not caplog.records


async def test_an_unexpected_failure_is_a_500_that_tells_only_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: AdmissionRequest) -> ReviewResult:
        raise RuntimeError("the reason")

    async with Webhook(fail, fails_open=False) as webhook:
        response = await webhook.post(BODY)
        assert response.status == 500
        assert "the reason" not in await response.text()
        assert "the reason" in caplog.text
        assert caplog.records[0].__dict__["uid"] == "u-1"
        assert webhook.counted() == {"error": 1}


async def test_an_object_that_cannot_be_decoded_is_a_400() -> None:
    def fail(_: AdmissionRequest) -> ReviewResult:
        raise AdmissionError("the object is not a pod")

    async with Webhook(fail, fails_open=False) as webhook:
        assert (await webhook.post(BODY)).status == 400


async def test_rules_that_could_not_be_evaluated_are_counted() -> None:
    def decide(request: AdmissionRequest) -> ReviewResult:
        return ReviewResult(Outcome.PLACED, wire.allowed(request.uid), rule_errors=3)

    async with Webhook(decide) as webhook:
        await webhook.post(BODY)
        assert webhook.metrics.registry.get_sample_value("stowplan_rule_errors_total") == 3


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", 6.0),  # 0.6 of the default 10 s
        ("?timeout=1s", 0.6),
        ("?timeout=1m0s", 18.0),  # no more than 30 s are ever given
        ("?timeout=0s", 6.0),
        ("?timeout=-5s", 6.0),
        ("?timeout=soon", 6.0),
        ("?a=1&timeout=2s&timeout=1s", 1.2),  # the first counts
        ("?timeout=%32s", 1.2),
        ("?timeout", 6.0),
    ],
)
def test_the_time_for_a_review_follows_from_the_timeout_in_its_url(
    query: str, seconds: float
) -> None:
    limits = ReviewLimits()
    request = make_mocked_request("POST", f"/review{query}")
    assert limits.seconds(request) == pytest.approx(seconds)


def test_the_cache_of_timeouts_is_bounded() -> None:
    limits = ReviewLimits()
    for number in range(100):
        limits.seconds(make_mocked_request("POST", f"/review?timeout={number}h"))
    assert _timeout_in.cache_info().currsize <= 16


async def test_a_review_may_wait_for_others_without_blocking_them() -> None:
    decided = asyncio.Event()

    async def wait(request: AdmissionRequest) -> ReviewResult:
        if request.uid == "first":
            await decided.wait()
        else:
            decided.set()
        return admit(request)

    async with Webhook(wait, fails_open=False) as webhook:
        first = asyncio.create_task(webhook.post(BODY.replace(b"u-1", b"first")))
        assert (await webhook.post(BODY.replace(b"u-1", b"second"))).status == 200
        assert (await first).status == 200


async def test_an_undecided_review_is_left_to_the_failure_policy() -> None:
    async def unable(_: AdmissionRequest) -> ReviewResult:
        raise QuotaUndecidedError("the quotas are not known yet")

    async with Webhook(unable, fails_open=False) as webhook:
        response = await webhook.post(BODY)
        assert response.status == 503
        assert await response.text() == "the quotas are not known yet\n"
        assert webhook.counted() == {"undecided": 1}


async def test_a_review_that_waits_too_long_is_left_to_the_failure_policy() -> None:
    cancelled = asyncio.Event()

    async def forever(_: AdmissionRequest) -> ReviewResult:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError("nobody waits for ever")

    async with Webhook(forever, fails_open=False) as webhook:
        response = await webhook.post(BODY, within="10ms")
        assert response.status == 503
        assert cancelled.is_set()
        assert webhook.counted() == {"deadline": 1}
