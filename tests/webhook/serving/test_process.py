from __future__ import annotations

import asyncio
import json
import platform
import re
import signal
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from textwrap import dedent

import aiohttp
import pytest

from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import ADVISING

ROOT = Path(__file__).parents[3]
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
async def process(tmp_path: Path, *flags: str) -> AsyncIterator[tuple[Process, str, str]]:
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


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_idle_process_well(tmp_path: Path, which: signal.Signals) -> None:
    async with process(tmp_path) as (running, url, _):
        connector = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"{url}/mutate", json=REVIEW) as response,
        ):
            assert "patch" in (await response.json())["response"]
        running.send_signal(which)
        out, log = await asyncio.wait_for(running.communicate(), PATIENCE_SECONDS)
        assert running.returncode == 0
        assert out is not None
        assert all(json.loads(line)["level"] == "info" for line in log.splitlines())


async def test_a_recorded_cluster_is_served_with_pages_of_its_pods(tmp_path: Path) -> None:
    async with process(tmp_path, "dashboard_port=0") as (_, _, greeting):
        url = re.search(r"dashboard +(https://\S+)", greeting)
        assert url is not None, greeting
        connector = aiohttp.TCPConnector(ssl=False)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"{url[1]}/dashboard/pod?namespace=shop&name=web") as response,
        ):
            text = await response.text()
        assert response.status == HTTPStatus.OK
        assert "node-a" in text


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with process(tmp_path, "drain_seconds=600") as (running, url, _):
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
