"""Completion in shells: `stowplan completion SHELL`, and what kubectl asks of a plugin."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Final, Literal

from webhook.cli.app import app
from webhook.cli.exit_codes import Exit

_WORDS: Final = "CYCLOPTS_COMPLETION_WORDS"
_SEPARATOR: Final = "\x1f"  # ends each word, and begins each line that is no candidate
_FILES: Final = f"{_SEPARATOR}files"
_PREFIX: Final = f"{_SEPARATOR}prefix\t"
_WITH_FILES, _WITHOUT_FILES = 0, 4  # ShellCompDirective of https://github.com/spf13/cobra


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion script of a shell.

    Args:
        shell: which one.
    """
    sys.stdout.write(app.generate_completion(shell=shell))
    return Exit.OK


def complete_for_kubectl() -> None:
    """Print the candidates for the last argument of the process, as kubectl asks plugins to.

    It runs `kubectl_complete-stowplan` with the words after `kubectl stowplan`. A line is a
    candidate and a description with a tab between, the last one says whether files will do.
    """
    words = sys.argv[1:] or [""]
    candidates, takes_files = _candidates(words)
    lines = [line for line in candidates if line.startswith(words[-1])]
    directive = _WITH_FILES if takes_files else _WITHOUT_FILES
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, f":{directive}")))


def _candidates(words: list[str]) -> tuple[list[str], bool]:
    """Return candidates for the last word, and whether it may be a file."""
    os.environ[_WORDS] = "".join(f"{word}{_SEPARATOR}" for word in words)
    answer = StringIO()
    with redirect_stdout(answer):
        app(["__complete"], exit_on_error=False, print_error=False, result_action="return_value")
    _, _, stream = answer.getvalue().partition(f"{_SEPARATOR}begin\n")
    lines = stream.splitlines()
    prefix = next((line.removeprefix(_PREFIX) for line in lines if line.startswith(_PREFIX)), "")
    candidates = [f"{prefix}{line}" for line in lines if not line.startswith(_SEPARATOR)]
    return candidates, _FILES in lines
