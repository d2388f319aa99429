from __future__ import annotations

import io
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import DATA, ROOT, Stowplan, process
from webhook.cli.demo import DemoError, run_demo


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a copy of what the demonstration works with."""
    return shutil.copytree(DATA, tmp_path / "demo")


async def told(data: Path) -> str:
    """Return what the demonstration prints."""
    output = io.StringIO()
    console = Console(file=output, width=120, soft_wrap=True, highlight=False)
    await run_demo(data, console, page=data / "report.html")
    return output.getvalue()


def test_the_demo_ends_by_itself_and_suggests_commands_that_work(
    stowplan: Stowplan, monkeypatch: pytest.MonkeyPatch
) -> None:
    with process("demo", PATH="/usr/bin:/bin") as running:
        out, err = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    # 60 points by requests, but limits of 10 + 4 of 8 cores
    assert "node1 8 4 10 1.5 60 0 (limits 175 %)" in lines
    # 54 points by requests, and limits of 5 + 4 of 8 cores
    assert "node2 8 5 5 1.6 54 100 (limits 112 %)" in lines
    assert "by a preferred node affinity for node2." in " ".join(out.split())
    # The scheduler goes by requests, and so takes the node that is 90 % busy.
    assert '{"op": "replace", "path": "/target/name", "value": "node2"},' in lines
    assert '"stowplan.dev/scheduler-node": "node3",' in lines
    assert "bindings moved, kept, denied 3, 5, 0" in lines
    assert (
        'Error from server (Forbidden): error when creating "2-quota.yaml": admission webhook'
        ' "quota.stowplan.dev" denied the request: exceeded quota: batch, requested: cpu=1,'
        " used: cpu=3500m, limited: cpu=4"
    ) in lines

    (report,) = [word for line in lines for word in line.split() if word.startswith("file:")]
    assert Path(report.removeprefix("file://")).read_text().startswith("<!doctype html>")

    monkeypatch.chdir(ROOT)
    suggested = [shlex.split(line) for line in lines if "/stowplan " in line]
    assert [command for _, command, *_ in suggested] == [
        *("explain", "lint", "serve"),
        *("snapshot", "simulate", "explain", "serve"),
    ]
    assert all(Path(program).is_file() for program, *_ in suggested)
    assert stowplan(*suggested[0][1:]).status == 0
    assert stowplan(*suggested[1][1:]).status == 0


async def test_another_order_of_nodes_is_no_demonstration(data: Path) -> None:
    policy = data / "policies" / "limits-and-load.yaml"
    policy.write_text(policy.read_text().replace("cpu: 65", "cpu: 62"))
    # node2: 1.6 + 3.4 = 5 of 8 cores, 63 %: left out
    with pytest.raises(DemoError, match=r"the order is not as .* \['node2', 'node1'\], got"):
        await told(data)


async def test_a_scheduler_that_takes_the_best_node_is_no_demonstration(data: Path) -> None:
    cluster = data / "cluster.yaml"
    # node3 with a request of 7 cores: by requests it is the worst then.
    text = cluster.read_text()
    assert text.count("cpu: 500m") == 1
    cluster.write_text(text.replace("cpu: 500m", 'cpu: "7"'))
    with pytest.raises(DemoError, match="by requests is not as expected"):
        await told(data)


async def test_a_quota_that_lets_the_pod_pass_is_no_demonstration(data: Path) -> None:
    cluster = data / "cluster.yaml"
    cluster.write_text(
        cluster.read_text().replace('      cpu: "4"\n      memory: 64Gi', "      {}")
    )
    with pytest.raises(DemoError, match="the denial is not as expected"):
        await told(data)
