from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import platform
import re
import signal
import ssl
import subprocess
import sys
import weakref
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from textwrap import dedent

import aiohttp
import pytest

from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import ADVISING
from webhook.serving import process
from webhook.serving.process import Watchdog, freeze_objects, freezing_survivors


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def logged(form: str, level: str = "info") -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    process.configure(level, "json" if form == "json" else "text", stream)
    return logging.getLogger("webhook.some"), stream


def test_a_json_line_carries_what_was_given_beside_the_message() -> None:
    logger, stream = logged("json")
    logger.info("a pod of %s", "shop", extra={"uid": "u-1"})
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "webhook.some",
        "message": "a pod of shop",
        "uid": "u-1",
    }


def test_a_json_line_is_one_line_whatever_it_holds() -> None:
    logger, stream = logged("json")
    failure = ValueError("two\nlines")
    logger.error("bad\nthings", exc_info=failure, extra={"odd": object()})
    (line,) = stream.getvalue().splitlines()
    assert "two\nlines" in json.loads(line)["traceback"]


def test_a_text_line_cannot_be_forged_by_a_message() -> None:
    logger, stream = logged("text")
    logger.info("first\n2026 error: second", extra={"uid": "u\n-1"})
    (line,) = stream.getvalue().splitlines()
    assert "first\\n2026" in line
    assert line.endswith("uid=u\\n-1")


def test_a_text_line_is_followed_by_its_traceback() -> None:
    logger, stream = logged("text")
    logger.error("what", exc_info=ValueError("why"))
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("error: what")
    assert rest[-1] == "ValueError: why"


def test_less_important_messages_are_left_out() -> None:
    logger, stream = logged("json", "warning")
    logger.info("by the way")
    assert stream.getvalue() == ""


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class _Object:
    def __init__(self) -> None:
        self.itself: _Object | None = None


def test_objects_that_stay_are_looked_at_once() -> None:
    # Of 35,000 objects three times 10,000 are collected, and none of them a second time.
    freeze_objects()
    gc.set_threshold(10_000, 1, 1)
    gc.disable()  # what the test itself allocates must not count
    frozen = gc.get_freeze_count()
    looked_at: list[int] = []
    gc.callbacks.append(lambda phase, _: looked_at.append(_young()) if phase == "start" else None)
    try:
        gc.enable()
        with freezing_survivors():
            kept = [_Object() for _ in range(35_000)]
    finally:
        gc.callbacks.pop()
    assert len(looked_at) == 3
    assert max(looked_at) < 11_000
    assert 29_900 < gc.get_freeze_count() - frozen < 31_000
    assert len(kept) == 35_000


def _young() -> int:
    return len(gc.get_objects())


def test_cycles_that_end_meanwhile_are_freed() -> None:
    freeze_objects()
    with freezing_survivors():
        cycle = _Object()
        cycle.itself = cycle
        end = weakref.ref(cycle)
        del cycle
        gc.collect(0)
    assert end() is None


def test_afterwards_cycles_are_freed_that_outlived_a_collection() -> None:
    freeze_objects()
    with freezing_survivors():
        pass
    cycle = _Object()
    cycle.itself = cycle
    end = weakref.ref(cycle)
    gc.collect(0)
    del cycle
    gc.collect()
    assert end() is None


ROOT = Path(__file__).parents[3]
HANGING = """
import asyncio, time
from webhook.serving.process import Watchdog, end_process

async def main():
    watch = asyncio.create_task(Watchdog(end_process, most=1).watch())
    await asyncio.sleep(0)
    while True:
        time.sleep(0.01)  # no turn for anything else

asyncio.run(main())
"""


def given_up_at(looks: str) -> list[int]:
    """Return the numbers of the looks at which it gives up; a `t` is a turn, a `.` a look."""
    number, ends = 0, list[int]()
    watchdog = Watchdog(lambda: ends.append(number), most=3)
    for each in looks:
        if each == "t":
            watchdog.turn()
        else:
            number += 1
            watchdog.look()
    return ends


def test_it_gives_up_after_so_many_looks_in_a_row_without_a_turn() -> None:
    assert given_up_at("t....") == [4]  # the first look sees the turn; 2, 3 and 4 see none


def test_a_turn_in_between_starts_the_count_again() -> None:
    assert given_up_at("t...t...t...") == []


def test_a_suspended_process_is_not_taken_for_one_that_hangs() -> None:
    assert given_up_at("t.") == []  # however long it takes from one look to the next


def test_a_process_whose_loop_hangs_ends_and_shows_where() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", HANGING],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert ran.returncode == 70
    assert "time.sleep" in ran.stderr or "in main" in ran.stderr


LOGGING = """
import logging, os, threading
from webhook.serving.process import end_process

logging.getLogger().addHandler(logging.StreamHandler())
reading, writing = os.pipe()
os.dup2(writing, 2)
threading.Thread(target=end_process).start()
os.write(2, bytes(1 << 20))  # nobody reads: stderr takes no more
"""


def test_a_process_that_hangs_as_nobody_reads_its_log_ends_too() -> None:
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", LOGGING], cwd=ROOT, check=False, timeout=PATIENCE_SECONDS
    )
    assert ran.returncode == 70


REVIEW = json.loads((Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text())[
    "review"
]
CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/hostname: node-a}}
status: {allocatable: {cpu: "4", memory: 16Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: web}
spec: {nodeName: node-a, containers: [{name: main}]}
status: {phase: Running}
"""
GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc")


@asynccontextmanager
async def started_process(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[Process, str, str]]:
    """Start `serve` as a process of its own; yields it with its URL and its greeting."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "policy.yaml").write_text(ADVISING)
    program = (
        "from webhook.serving.process import serve; from webhook.serving.services import Role;"
        "from webhook.settings import Settings;"
        f"serve(Settings(cluster=['{tmp_path / 'cluster.yaml'}'],"
        f" policies=['{tmp_path / 'policy.yaml'}'], host='127.0.0.1', port=0, metrics_port=0,"
        f" {','.join(flags)}), Role.REVIEWS)"
    )
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", program, cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    try:
        assert running.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            greeting = (await running.stdout.readuntil(b"curl")).decode()
        found = re.search(r"https://127\.0\.0\.1:\d+", greeting)
        assert found is not None
        yield running, found[0], greeting
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def held_connection(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that has no request on it, and so keeps a draining server waiting."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    return await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]), ssl=blind)


async def test_a_recorded_cluster_is_served_with_pages_until_a_signal_ends_it_well(
    tmp_path: Path,
) -> None:
    async with started_process(tmp_path, "dashboard_port=0") as (running, url, greeting):
        pages = re.search(r"dashboard +(https://\S+)", greeting)
        assert pages is not None, greeting
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.post(f"{url}/mutate", json=REVIEW) as response:
                assert "patch" in (await response.json())["response"]
            page = f"{pages[1]}/dashboard/pod?namespace=shop&name=web"
            async with session.get(page) as response:
                assert response.status == HTTPStatus.OK
                assert "node-a" in await response.text()
        running.send_signal(signal.SIGTERM)
        out, log = await asyncio.wait_for(running.communicate(), PATIENCE_SECONDS)
        assert running.returncode == 0
        assert out is not None
        assert all(json.loads(line)["level"] == "info" for line in log.splitlines())


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with started_process(tmp_path, "drain_seconds=600") as (running, url, _):
        reader, writer = await held_connection(url)
        running.send_signal(signal.SIGTERM)
        assert running.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            await running.stderr.readuntil(b"ending")
            running.send_signal(signal.SIGTERM)
            assert await running.wait() == -signal.SIGTERM
        writer.transport.abort()
        await reader.read()


def printed_by(program: str) -> list[int]:
    command = [sys.executable, "-c", dedent(program)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 (ours)
    return [int(number) for number in finished.stdout.split()]


@GLIBC
def test_a_large_block_is_apart_though_one_was_freed_before() -> None:
    before, meanwhile, after = printed_by("""
        import ctypes
        from webhook.serving.process import map_large_blocks, trim_heap

        class Figures(ctypes.Structure):
            _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks")]
            _fields_ += [(f"other{number}", ctypes.c_size_t) for number in range(6)]

        mallinfo = ctypes.CDLL(None).mallinfo2
        mallinfo.restype = Figures
        map_large_blocks()
        bytearray(2**24)
        print(mallinfo().hblks)
        block = bytearray(2**23)  # more than the heap has free after the imports
        print(mallinfo().hblks)
        del block
        print(mallinfo().hblks)
    """)
    assert (meanwhile, after) == (before + 1, before)


@GLIBC
def test_what_is_free_between_what_is_not_is_returned() -> None:
    before, after = printed_by("""
        from pathlib import Path
        from webhook.serving.process import map_large_blocks, trim_heap

        def pages() -> int:
            return int(Path("/proc/self/statm").read_text().split()[1])

        blocks = [bytearray(b"x" * 2**16) for _ in range(300)]
        del blocks[:-1]  # the last one is above all that is free
        print(pages())
        trim_heap()
        print(pages())
    """)
    assert before - after > 200 * 16  # most of 299 blocks of 16 pages
