from __future__ import annotations

from pathlib import Path

import pytest

from tests.webhook.cli.running import Ran, Stowplan
from webhook.cli.app import run as run_command


@pytest.fixture
def stowplan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Stowplan:
    """Return how to run a command in this process, with its output in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str | Path) -> Ran:
        status = run_command([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return run
