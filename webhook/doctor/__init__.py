"""Checks of a live installation, for `stowplan doctor`.

What belongs here: checks, each a function that yields findings of an installation; what they read
(`installation`, `held_queue`, `objects`), each of it once; and their table (`checks`). What never
does: printing, which is the command line's, or a change of the cluster: the only writes are dry
runs.
"""

from webhook.doctor.checks import CHECKS, run_checks
from webhook.doctor.findings import Finding, Level
from webhook.doctor.held_queue import HeldQueue, read_held_queue
from webhook.doctor.installation import Installation

__all__ = [
    "CHECKS",
    "Finding",
    "HeldQueue",
    "Installation",
    "Level",
    "read_held_queue",
    "run_checks",
]
