"""The processor that figures were measured on: no host's name belongs into them."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """Return the name of the processor (Linux), or what Python knows of it."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
