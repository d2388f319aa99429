"""Coverage-guided fuzzing: `make fuzz SECONDS=60`, or `python -m tests.fuzz reviews --seconds 60`.

Atheris makes inputs out of a corpus, keeps those that reach new code, and stops at the first one
that breaks a promise. What it keeps stays in `.fuzz/`, so that the next run goes on from there.
A failing input belongs in `tests/fuzz/corpus`, where `make test` replays it, once it is fixed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from random import Random
from typing import Final

import atheris

with atheris.instrument_imports(include=["engine", "webhook"]):
    from tests.fuzz.corpora import recorded
    from tests.fuzz.mutation import mutated
    from tests.fuzz.targets import NAMES, Name, target

_WORK: Final = Path(".fuzz")
_LONGEST: Final = 64 * 1024  # bytes of an input
_SLOWEST_SECONDS: Final = 5  # for one input, on a busy machine
_MOST_MIB: Final = 2048
_RAW_SHARE: Final = 0.1  # of the reviews: changed as bytes, not as JSON


def main() -> None:
    """Fuzz one target, or replay inputs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("inputs", nargs="*", type=Path, help="replay these files, and end")
    parser.add_argument("--seconds", type=int, default=0, help="stop after so long; 0 for never")
    args = parser.parse_args()
    logging.disable(logging.ERROR)  # what is refused is logged, input by input
    if args.inputs:
        replay(args.target, args.inputs)
    else:
        fuzz(args.target, args.seconds)


def replay(name: Name, inputs: list[Path]) -> None:
    """Check some inputs once."""
    with target(name) as fuzzed:
        for path in inputs:
            fuzzed.check(path.read_bytes())
            print(f"{path}: passes")


def fuzz(name: Name, seconds: int) -> None:
    """Check inputs for a time; ends the process, with status 77 if one failed."""
    kept, failing = _WORK / name, _WORK / f"failing-{name}-"
    kept.mkdir(parents=True, exist_ok=True)
    with target(name) as fuzzed:
        for seed in fuzzed.seeds:
            (kept / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)

        def check(text: bytes) -> None:
            try:
                fuzzed.check(text)
            except BaseException:
                path = Path(f"{failing}{hashlib.sha1(text, usedforsecurity=False).hexdigest()}")
                path.write_bytes(text)
                command = f"{os.path.relpath(sys.executable)} -m tests.fuzz {name} {path}"
                print(f"\nthis input fails: {path}\nreplay it: {command}\n", file=sys.stderr)
                raise

        options = [
            f"-max_total_time={seconds}",
            f"-max_len={_LONGEST}",
            f"-timeout={_SLOWEST_SECONDS}",
            f"-rss_limit_mb={_MOST_MIB}",
            f"-artifact_prefix={failing}",
            "-print_final_stats=1",
        ]
        mutator = {"custom_mutator": _mutated} if name == "reviews" else {}
        atheris.Setup([sys.argv[0], *options, str(kept)], check, **mutator)
        atheris.Fuzz()


_RECORDED: Final = recorded()


def _mutated(data: bytes, most: int, seed: int) -> bytes:
    """Return another body: made of the JSON in this one, or of its bytes."""
    random = Random(seed)
    if random.random() < _RAW_SHARE:
        return bytes(atheris.Mutate(data, most))
    try:
        review = json.loads(data)
    except (ValueError, RecursionError):
        return bytes(atheris.Mutate(data, most))
    body = mutated(review, random, _RECORDED)
    return body if len(body) <= most else data


if __name__ == "__main__":
    main()
