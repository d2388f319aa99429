from __future__ import annotations

import asyncio

import pytest
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from webhook.admission.body import BodyReader

MOST = 100


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
