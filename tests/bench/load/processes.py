"""What a process has used so far, as the kernel tells (Linux)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_USER_TICKS, _SYSTEM_TICKS = 11, 12  # fields of /proc/PID/stat after the name
_IDLE_TICKS = slice(3, 5)  # fields of /proc/stat: idle, and waiting for a disk
_STAT = Path("/proc/stat")
_MIB_IN_KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process has used.

    Attributes:
        cpu_seconds: since its start, user and system, to a hundredth.
        waited_seconds: its main thread, since its start, for a processor that others had.
        resident_mib: now.
        peak_mib: the most that was ever resident.
        threads: now.
        descriptors: open files and sockets now.
    """

    cpu_seconds: float
    waited_seconds: float
    resident_mib: float
    peak_mib: float
    threads: int
    descriptors: int


def usage_of(pid: int) -> Usage:
    """Return what a process has used.

    Raises:
        OSError: there is no such process.
    """
    folder = Path("/proc") / str(pid)
    ticks = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    lines = (folder / "status").read_text(encoding="utf-8").splitlines()
    status = dict(line.split(":", 1) for line in lines)
    return Usage(
        cpu_seconds=(int(ticks[_USER_TICKS]) + int(ticks[_SYSTEM_TICKS])) / _TICKS_PER_SECOND,
        waited_seconds=int((folder / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9,
        resident_mib=int(status["VmRSS"].split()[0]) / _MIB_IN_KIB,
        peak_mib=int(status["VmHWM"].split()[0]) / _MIB_IN_KIB,
        threads=int(status["Threads"]),
        descriptors=sum(1 for _ in (folder / "fd").iterdir()),
    )


def machine_cpu_seconds() -> float:
    """Return how long the processors of this machine have been busy, all together."""
    ticks = [int(one) for one in _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
    return (sum(ticks) - sum(ticks[_IDLE_TICKS])) / _TICKS_PER_SECOND
