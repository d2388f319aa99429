"""Every benchmark, each in a process of its own: `python -m tests.bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

for file in sorted(Path(__file__).parent.glob("bench_*.py")):
    print(f"== {file.stem}", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{file.stem}"], check=True)  # noqa: S603 (our own modules)
