"""Checks of a live installation, for `stowplan doctor`.

What belongs here: checks, each an async function that yields findings; what they read
(`installation`, `held_queue`, `objects`); and their table (`checks`). What never does: printing,
which is the command line's, or a change of the cluster: the only write is a pod, as a dry run.
"""

from webhook.doctor.checks import CHECKS, run_checks
from webhook.doctor.held_pods import HeldQueue, read_held_queue
from webhook.doctor.installation import Finding, Installation, Level

__all__ = [
    "CHECKS",
    "Finding",
    "HeldQueue",
    "Installation",
    "Level",
    "read_held_queue",
    "run_checks",
]
