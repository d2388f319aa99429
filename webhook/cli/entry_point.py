"""The process of a command: its exit status, and Ctrl-C, which ends it without a traceback."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from webhook.cli.exit_codes import Exit


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
