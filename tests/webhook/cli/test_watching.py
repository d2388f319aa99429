"""`--watch`, as a process: what it prints after each change, and how it ends."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from subprocess import Popen

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.webhook.cli.running import ROOT, Stowplan, process

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
