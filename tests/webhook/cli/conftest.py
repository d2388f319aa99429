from __future__ import annotations

from pathlib import Path

import pytest

from tests.webhook.cli.running import Ran, Stowplan
from webhook.cli import main


@pytest.fixture
def stowplan(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Stowplan:
    """Return how to run a command in this process, with its output in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: str | Path) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(ended.value.code, out, err)

    return run
