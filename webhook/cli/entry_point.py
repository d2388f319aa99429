"""The process of a command: its exit status, and Ctrl-C, which ends it without a traceback."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn


class Exit(IntEnum):
    """Exit statuses, the same for every command."""

    OK = 0  # allowed, all cases passed, nothing to report
    FAILED = 1  # the command could not be run: an argument or a setting is wrong
    DENIED = 2  # the pod is denied, a case failed, or an installation is not well
    INVALID = 3  # a policy, or another file that was given, has mistakes
    INTERRUPTED = 130  # by Ctrl-C


EXIT_CODES = (
    "Exit status: 0 allowed or all well, 1 could not run, 2 denied, a case failed or something was"
    " found, 3 a bad file."
)
"""The same, as `--help` shows it."""


def main() -> NoReturn:
    """Run the command line with the arguments of the process."""
    signal.signal(signal.SIGINT, _end)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # or it looks through all packages
    gc.disable()  # imports leave nothing to collect, and a lot to look at
    from webhook.cli.app import run  # noqa: PLC0415 - imports take long enough to be interrupted

    sys.exit(run(during=_command))


@contextmanager
def _command() -> Iterator[None]:
    """Collect garbage from here on, and let Ctrl-C raise KeyboardInterrupt."""
    gc.freeze()
    gc.enable()
    with interruptible():
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, for a command that may have to clean up.

    Elsewhere, in imports and in the shutdown of the interpreter, Python may print the exception or
    lose it, and there is nothing to clean up: the process ends at once. So it does where the
    exception occurs in a finalizer, which cannot pass it on.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    report = sys.unraisablehook
    sys.unraisablehook = _end_if_interrupted
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _end)
        sys.unraisablehook = report


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


def _end(*_: object) -> NoReturn:
    os._exit(Exit.INTERRUPTED)
