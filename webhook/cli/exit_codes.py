"""Exit statuses of the commands."""

from __future__ import annotations

from enum import IntEnum


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
