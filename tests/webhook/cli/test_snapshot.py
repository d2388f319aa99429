from __future__ import annotations

import asyncio
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import POD, POLICIES, PROGRAM, Stowplan, process
from tests.webhook.cluster.recording import CLUSTER, fill

NOTHING = "the cluster has no such API, or nothing serves it"


@contextmanager
def serving(*, full: bool = True) -> Iterator[FakeApiServer]:
    """Run a server on a loop of its own: a command has one too."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    manager = fake_api_server(without=() if full else ("NodeMetric", "NodeMetrics", "PodMetrics"))
    try:
        server = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result(10)
        try:
            yield server
        finally:
            ending = manager.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(ending, loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with serving() as running:
        fill(running)
        yield running


def words(text: str) -> list[str]:
    """Return the lines of a text, each with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_it_says_what_it_holds_and_suggests_commands_that_work(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "my cluster.json"
    ran = stowplan("snapshot", "-o", file, "--kubeconfig", server.kubeconfig(tmp_path))
    assert (ran.status, ran.err) == (0, "")
    lines = words(ran.out)
    assert lines[0].startswith(f"{file} holds the cluster, in ")
    assert "nodes 3" in lines
    assert "pods 5 1 more have finished, and are left out" in lines
    assert "nodemetrics.slo.koordinator.sh 2" in lines
    suggested = [shlex.split(line) for line in lines if line.startswith("stowplan ")]
    assert [command for _, command, *_ in suggested] == ["explain", "serve"]
    (_, *explain), _ = suggested
    known = {"pod.yaml": str(POD), "policies": str(POLICIES[1])}
    explained = stowplan(*(known.get(one, one) for one in explain))
    assert explained.status in (0, 2)
    assert "alpha-node" in explained.out


def test_what_is_missing_is_told_kind_by_kind(stowplan: Stowplan, tmp_path: Path) -> None:
    with serving(full=False) as server:
        fill(server, [one for one in CLUSTER if "Metric" not in one["kind"]])
        server.fail_next(1, 403, path_prefix="/apis/scheduling.x-k8s.io")
        kubeconfig = server.kubeconfig(tmp_path)
        ran = stowplan("snapshot", "-o", tmp_path / "c.json", "--kubeconfig", kubeconfig)
    assert ran.status == 0
    lines = words(ran.out)
    assert f"nodes.metrics.k8s.io - {NOTHING}" in lines
    quotas = "elasticquotas.scheduling.x-k8s.io"
    can_i = f"kubectl --kubeconfig={kubeconfig} auth can-i list {quotas} --all-namespaces"
    assert f"{quotas} - not permitted: failed by the test" in lines
    assert f"hint: `{can_i}` tells when it is permitted" in lines
    assert any("nothing measures the usage of nodes here" in line for line in lines)


@pytest.mark.parametrize(("kind", "scope"), [("nodes", ""), ("pods", " --all-namespaces")])
def test_without_the_permission_for_nodes_or_pods_it_says_how_to_check(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path, kind: str, scope: str
) -> None:
    server.fail_next(1, 403, path_prefix=f"/api/v1/{kind}")
    kubeconfig = server.kubeconfig(tmp_path)
    file = tmp_path / "c.json"
    ran = stowplan("snapshot", "-o", file, "--kubeconfig", kubeconfig)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == (
        f"we lack the permission to list {kind}: failed by the test\n"
        f"hint: `kubectl --kubeconfig={kubeconfig} auth can-i list {kind}{scope}`"
        " tells when it is permitted\n"
    )
    assert not file.exists()


def test_a_file_is_replaced_only_where_that_is_asked_for(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text("precious")
    command = ("snapshot", "-o", file, "--kubeconfig", server.kubeconfig(tmp_path))
    ran = stowplan(*command)
    assert (ran.status, ran.err) == (1, f"`{file}` exists\nhint: `--force` replaces it\n")
    assert server.requests == []
    assert file.read_text() == "precious"

    server.fail_next(1, 403, path_prefix="/api/v1/pods")
    assert stowplan(*command, "--force").status == 1
    assert file.read_text() == "precious"

    assert stowplan(*command, "--force").status == 0
    assert file.read_text().startswith('{"apiVersion":"v1","kind":"List"')
    assert {one.name for one in tmp_path.iterdir()} == {"c.json", "kubeconfig"}


def test_places_where_nothing_can_be_written_are_told_first(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    ran = stowplan("snapshot", "-o", tmp_path)
    assert (ran.status, ran.err) == (1, f"`{tmp_path}` is a folder\nhint: name a file in it\n")
    ran = stowplan("snapshot", "-o", tmp_path / "no" / "c.json")
    assert (ran.status, ran.err) == (1, f"there is no folder `{tmp_path / 'no'}`\n")


def test_a_disk_without_room_is_told_and_the_file_before_stays(
    server: FakeApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    file.write_text("precious")
    kubeconfig = server.kubeconfig(tmp_path)
    command = ["snapshot", "-o", str(file), "--force", "--kubeconfig", str(kubeconfig)]
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", str(PROGRAM), *command]
    ran = subprocess.run(limited, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    assert (ran.returncode, ran.stderr) == (1, f"`{file}` cannot be written: file too large\n")
    assert file.read_text() == "precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.json", "kubeconfig"}


def test_an_interrupted_run_leaves_nothing(server: FakeApiServer, tmp_path: Path) -> None:
    kubeconfig = server.kubeconfig(tmp_path)
    server.delay(60, "/api/v1/pods")
    asked = threading.Event()
    file = tmp_path / "c.json"
    with process("snapshot", "-o", file, "--kubeconfig", kubeconfig) as running:
        while not any(one.path == "/api/v1/pods" for one in server.requests):
            assert running.poll() is None
            asked.wait(0.05)
        assert len(list(tmp_path.glob(".c.json.*.partial"))) == 1
        running.send_signal(signal.SIGINT)
        assert running.communicate(timeout=PATIENCE_SECONDS) == ("", "")
    assert running.returncode == 130
    assert [one.name for one in tmp_path.iterdir()] == ["kubeconfig"]


def test_anonymous_snapshots_name_nobody(
    stowplan: Stowplan, server: FakeApiServer, tmp_path: Path
) -> None:
    file = tmp_path / "c.json"
    kubeconfig = server.kubeconfig(tmp_path)
    ran = stowplan("snapshot", "-o", file, "--anonymize", "--kubeconfig", kubeconfig)
    assert ran.status == 0
    text = file.read_text()
    assert [name for name in ("alpha-", "shop", "acme", "payroll", "web-") if name in text] == []
    assert "zone-1" in text


def test_a_cluster_that_does_not_answer_is_said_with_a_hint(
    stowplan: Stowplan, tmp_path: Path
) -> None:
    with serving() as server:
        kubeconfig = server.kubeconfig(tmp_path)
    ran = stowplan("snapshot", "-o", tmp_path / "c.json", "--kubeconfig", kubeconfig)
    assert ran.status == 1
    assert ran.err.startswith("no contact with the API server: ")
    assert ran.err.splitlines()[1].startswith("hint: is it the right cluster, and in reach? ")


@pytest.mark.parametrize("command", [["snapshot", "-o", "c.json"], ["doctor"]])
def test_a_missing_kubeconfig_names_the_flag_there_is(
    stowplan: Stowplan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = stowplan(*command, "--kubeconfig", "nowhere")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "there is no kubeconfig `nowhere`\nhint: name another with `--kubeconfig`\n"
    assert list(tmp_path.iterdir()) == []
