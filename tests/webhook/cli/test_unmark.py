from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cli.running import PROGRAM

MARK = "avoid.stowplan.dev/balanced"


async def _run(server: FakeApiServer, folder: Path) -> tuple[int, str]:
    """Run the command, and return its status and all that it printed."""
    running = await asyncio.create_subprocess_exec(
        PROGRAM,
        "unmark",
        "--kubeconfig",
        server.kubeconfig(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await running.communicate()
    assert running.returncode is not None
    return running.returncode, printed.decode()


def _add(server: FakeApiServer, name: str, *labels: str) -> None:
    metadata = {"name": name, "labels": dict.fromkeys(labels, "true")}
    server.create({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}})


async def test_all_marks_are_taken_back(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        _add(server, "a", MARK, "zone")
        _add(server, "b", "zone")
        assert await _run(server, tmp_path) == (0, "1 node unmarked\n")
        assert server.read("nodes", "", "a")["metadata"]["labels"] == {"zone": "true"}
        assert await _run(server, tmp_path) == (0, "0 nodes unmarked\n")


async def test_a_node_that_stays_marked_is_told_with_the_reason(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        _add(server, "a", MARK)
        server.fail_next(1, status=403, path_prefix="/api/v1/nodes/a")
        status, printed = await _run(server, tmp_path)
        assert status == 2
        assert "node `a` is still marked: " in printed
        assert "0 nodes unmarked" in printed
