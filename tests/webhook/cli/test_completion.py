from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.webhook.cli.running import PROGRAM, Stowplan
from webhook.cli.completion import complete_for_kubectl

FOR_KUBECTL = PROGRAM.with_name("kubectl_complete-stowplan")


ForKubectl: TypeAlias = Callable[..., tuple[list[str], str]]


@pytest.fixture
def for_kubectl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> ForKubectl:
    """Return how to ask for the candidates for the last word, and the directive after them."""

    def ask(*words: str) -> tuple[list[str], str]:
        monkeypatch.setattr("sys.argv", [FOR_KUBECTL.name, *words])
        complete_for_kubectl()
        return answer_of(capsys.readouterr().out)

    return ask


def answer_of(printed: str) -> tuple[list[str], str]:
    """Return candidates without their descriptions, and the directive."""
    *candidates, directive = printed.splitlines()
    return [line.partition("\t")[0] for line in candidates], directive


def test_bash_completes_commands_and_options(stowplan: Stowplan, tmp_path: Path) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(stowplan("completion", "bash").out)
    ask = f"""
    source {script}
    for words in "stowplan li" "stowplan lint --sa"; do
      COMP_WORDS=($words); COMP_CWORD=$(({{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
      _stowplan; echo "${{COMPREPLY[@]}}"
    done
    """.replace("{#COMP_WORDS", "${#COMP_WORDS")
    ran = subprocess.run(  # noqa: S603 - the script is ours
        ["/bin/bash", "-c", ask],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.defpath}"},
    )
    assert (ran.stdout.split(), ran.stderr) == (["lint", "--sarif"], "")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_scripts(shell: str, stowplan: Stowplan) -> None:
    script = stowplan("completion", shell).out
    assert "stowplan" in script
    if program := shutil.which(shell):
        subprocess.run([program, "--no-execute"], input=script, text=True, check=True)  # noqa: S603


def test_an_unknown_shell_is_refused(stowplan: Stowplan) -> None:
    ran = stowplan("completion", "tcsh")
    assert (ran.status, ran.out) == (1, "")


def test_kubectl_completes_commands(for_kubectl: ForKubectl) -> None:
    ran = subprocess.run([FOR_KUBECTL, "li"], check=True, capture_output=True, text=True)  # noqa: S603
    assert (answer_of(ran.stdout), ran.stderr) == ((["lint"], ":4"), "")
    assert "explain" in for_kubectl("")[0]


def test_kubectl_completes_options_and_files(for_kubectl: ForKubectl) -> None:
    assert for_kubectl("test", "policies", "--ju") == (["--junit"], ":4")
    assert for_kubectl("lint", "") == ([], ":0")
