"""Every benchmark, each in a process of its own, one after the other.

Run as `python -m tests.bench [--nodes N --pods P]`. The defaults are small, for a look within four
minutes; the figures that are promised are for `--nodes 5000 --pods 150000`.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

from tests.bench.processor import processor

_FLAGS = ("--nodes", "--pods")


def main() -> None:
    """Run them all; stop at the first that fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1_000, help="nodes of the generated cluster")
    parser.add_argument("--pods", type=int, default=30_000, help="pods on them")
    sizes = vars(parser.parse_args())
    print(f"{processor()}, {platform.system()} {platform.release()}", flush=True)
    for file in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"\n== {file.stem}", flush=True)
        taken = [flag for flag in _FLAGS if f'"{flag}"' in file.read_text(encoding="utf-8")]
        arguments = [f"{flag}={sizes[flag.lstrip('-')]}" for flag in taken]
        module = f"tests.bench.{file.stem}"
        subprocess.run([sys.executable, "-m", module, *arguments], check=True)  # noqa: S603 (our own modules)


if __name__ == "__main__":
    main()
