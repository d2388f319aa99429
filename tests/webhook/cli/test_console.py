"""Names and texts that others have written reach no terminal as they are."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from engine.report import AuditedPolicy, PolicyOutcome
from tests.fake_api_server import fake_api_server
from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import DATA, ROOT, Ran, Stowplan, process
from tests.webhook.cli.test_outcome import REPORT, SHOP, stored
from tests.webhook.cli.test_queue import deployment, lease, pod
from webhook.cli.console import visible
from webhook.cluster.client.connection import NO_CONTACT, ApiError

# ESC and OSC with a title, CSI of C1, DEL, a carriage return, and an override of the direction.
HOSTILE = "a\x1b]0;owned\x07b\x9b31mc\x7fd\re\u202ef"
SHOWN = "a\\u001b]0;owned\\u0007b\\u009b31mc\\u007fd\\re\\u202ef"

POLICY = {
    "apiVersion": "stowplan.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": "p"},
    "spec": {
        "filters": [
            {"name": "rule", "expression": "node.name == pod.name", "message": HOSTILE},
            {"name": f"rule{HOSTILE}", "expression": "node.labels['none'] == pod.name"},
        ],
        "scores": [{"name": "far", "expression": f"node.name == {json.dumps(HOSTILE)} ? 1 : 0"}],
    },
}


def assert_harmless(ran: Ran) -> None:
    """Assert that nothing is written that a terminal would obey."""
    for text in (ran.out, ran.err):
        found = {char for char in text if not char.isprintable() and char not in "\n\t"}
        assert not found, f"{found} in {text!r}"


@pytest.fixture
def world(tmp_path: Path) -> dict[str, Path]:
    """Return files of a recorded cluster, a pod and a policy with hostile names and texts."""
    cluster = (DATA / "cluster.yaml").read_text()
    hostile = json.dumps(HOSTILE)
    for name in ("node2", "shop", "web-0"):
        cluster = cluster.replace(f"name: {name}\n", f"name: {hostile}\n")
    files = {
        "cluster": cluster,
        "pod": json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": HOSTILE, "namespace": "batch", "labels": {"a": HOSTILE}},
                "spec": {"containers": [{"name": HOSTILE}]},
            }
        ),
        "policy": json.dumps(POLICY),
        "broken": json.dumps({**POLICY, "spec": {HOSTILE: HOSTILE}}),
        "cases": json.dumps({HOSTILE: HOSTILE}),
    }
    paths = {name: tmp_path / f"{name}.yaml" for name in files}
    for name, text in files.items():
        paths[name].write_text(text)
    return paths


@pytest.mark.parametrize(
    "command",
    [
        "explain pod --cluster cluster",
        "explain pod --cluster cluster --policies policy",
        "explain pod --cluster cluster --policies policy -v",
        "explain pod --cluster cluster --policies policy --json",
        "explain pod --cluster cluster --policies broken",
        "explain pod --cluster broken",
        "simulate --cluster cluster --arm policy",
        "simulate --cluster cluster --arm policy --json",
        "simulate --cluster pod --arm broken",
        "eval node.name --cluster cluster",
        "eval node.name --cluster cluster --json",
        "eval node.labels[pod.name] --cluster cluster --pod pod",
        "lint policy",
        "lint policy -v",
        "lint policy --json",
        "lint broken",
        "lint cases",
        "test policy",
        "test broken",
        "import broken",
        "init broken",
    ],
)
def test_no_command_writes_control_characters(
    world: dict[str, Path], stowplan: Stowplan, command: str
) -> None:
    ran = stowplan(*(world.get(word, word) for word in command.split()))
    assert_harmless(ran)
    assert ran.out + ran.err


async def test_no_control_characters_of_what_a_cluster_holds(
    tmp_path: Path, stowplan: Stowplan
) -> None:
    policy = PolicyOutcome(policy=HOSTILE, mode="Enforce", total=SHOP)
    audited = AuditedPolicy(digest="", reason=HOSTILE)
    async with fake_api_server() as server:
        server.create(stored(msgspec.structs.replace(REPORT, policies=(policy,)), p=audited))
        server.create(deployment())
        server.create(lease(holder=HOSTILE))
        server.create(pod(HOSTILE, "stowplan.dev/hold", f"a.io/{HOSTILE}", namespace=HOSTILE))
        kubeconfig = ("--kubeconfig", server.kubeconfig(tmp_path))
        for command in (("outcome",), ("queue",), ("release", "--all", "--dry-run")):
            ran = await asyncio.to_thread(stowplan, *command, *kubeconfig)
            assert_harmless(ran)
            assert "\\u001b" in ran.out + ran.err, command


def test_arguments_are_shown_as_escapes(stowplan: Stowplan) -> None:
    for command in ("lint", "explain", "eval", "simulate", HOSTILE):
        ran = stowplan(command, f"--{HOSTILE}", HOSTILE)
        assert ran.status != 0
        assert_harmless(ran)


def test_a_hostile_name_is_still_legible(world: dict[str, Path], stowplan: Stowplan) -> None:
    ran = stowplan("eval", "node.name", "--cluster", world["cluster"])
    assert SHOWN in ran.out


def test_json_that_is_printed_can_be_read_back(world: dict[str, Path], stowplan: Stowplan) -> None:
    ran = stowplan("eval", "node.name", "--cluster", world["cluster"], "--json")
    assert HOSTILE in json.loads(ran.out)["values"]


def test_what_is_printable_stays_as_it_is() -> None:
    assert visible("größer → 5 ✓\n\tnode") == "größer → 5 ✓\n\tnode"
    assert visible(HOSTILE) == SHOWN
    assert visible("\U000e0041\ud800") == "\\udb40\\udc41\\ud800"


ANOTHER = "is it the right cluster, and in reach? `--kubeconfig` and `--context` name another"


def refusal(status: int) -> ApiError:
    return ApiError(status, "", "why")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            NO_CONTACT,
            f"no contact with the API server: why\nhint: {ANOTHER}",
        ),
        (401, "the API server does not accept our credentials: why"),
        (
            403,
            "it failed: why\nhint: `kubectl auth can-i --list` shows what is permitted",
        ),
        (500, "it failed: why"),
    ],
)
def test_each_failure_has_its_words_and_its_hint(status: int, message: str) -> None:
    assert refusal(status).explained("it failed") == message


def test_a_command_says_what_may_not_be_done_and_how_to_be_permitted() -> None:
    text = refusal(403).explained("it failed", forbidden="we may not list pods", hint="look there")
    assert text == "we may not list pods: why\nhint: look there"


GUARD = ROOT / "policies" / "gpu-guard"
WAITING = "waiting for changes; Ctrl-C ends\n"


@pytest.fixture
def guard(tmp_path: Path) -> Path:
    """Return a folder with a copy of a policy and its cases."""
    copy = tmp_path / "gpu-guard"
    shutil.copytree(GUARD, copy)
    return copy


def replace(file: Path, text: str) -> None:
    """Write a file in one step, as editors do."""
    new = file.parent.parent / "new"
    new.write_text(text)
    new.rename(file)


def until_it_waits(running: Popen[str]) -> str:
    """Return the notes up to the one that it waits."""
    assert running.stderr is not None
    notes: list[str] = []
    while not notes or notes[-1] != WAITING:
        notes.append(running.stderr.readline())
        assert notes[-1], running.communicate()
    return "".join(notes)


@pytest.mark.parametrize("command", ["lint", "test"])
def test_a_change_is_taken_up_until_ctrl_c(command: str, guard: Path) -> None:
    policy = guard / "policy.yaml"
    text = policy.read_text()
    with process(command, guard, "--watch") as running:
        until_it_waits(running)
        replace(policy, text.replace("filters:", "filtres:"))
        assert f"{policy}:" in until_it_waits(running)
        replace(policy, text)
        until_it_waits(running)
        running.send_signal(signal.SIGINT)
        out, notes = running.communicate(timeout=PATIENCE_SECONDS)
    assert (running.returncode, notes) == (130, "")
    ends = [line for line in out.splitlines() if line.endswith(("no mistakes", "failed"))]
    assert len(ends) == 2


def test_what_it_writes_itself_is_no_change(guard: Path) -> None:
    report = guard / "results.xml"
    with process("test", guard, "--watch", "--junit", report) as running:
        until_it_waits(running)
        first = report.stat().st_mtime_ns
        replace(guard / "cases.yaml", (guard / "cases.yaml").read_text() + "\n")
        until_it_waits(running)
        assert report.stat().st_mtime_ns > first
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=PATIENCE_SECONDS)
    assert out.count(" passed, 0 failed\n") == 2


def test_standard_input_does_not_change(stowplan: Stowplan) -> None:
    ran = stowplan("lint", "-", "--watch")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith("`--watch` needs files")
