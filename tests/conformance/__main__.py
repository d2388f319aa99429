"""Run files of conformance cases: `python -m tests.conformance FILE...`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.conformance.runner import Verdict, outcome_of, read_cases


def main(arguments: list[str] | None = None) -> int:
    """Print a line per case that does not pass and the totals; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    counts: Counter[Verdict] = Counter()
    for path in parser.parse_args(arguments).files:
        try:
            cases = list(read_cases(path))
        except (OSError, ValueError) as error:
            counts["failed"] += 1
            print(f"failed: {path}: {error}")
            continue
        for case in cases:
            outcome = outcome_of(case)
            counts[outcome.verdict] += 1
            if outcome.verdict not in {"passed", "unsupported"}:
                print(f"{outcome.verdict}: {path.name}: {case.label}: {outcome.text}")
    if counts["expected failure"]:
        print(f"{counts['expected failure']} expected failures")
    if counts["unsupported"]:
        print(f"{counts['unsupported']} not supported")
    print(f"{counts['passed']} passed, {counts['failed']} failed")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
