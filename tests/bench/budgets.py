"""Whether anything has become slower: what it takes as a ratio to a floor, beside its budget.

Run as `python -m tests.bench.budgets [--load FILE ...]`, which takes a quarter of an hour; results
of `python -m tests.bench.load --json FILE` are compared where they are given, the more the better.
All ratios are measured again and again, one after the other. A budget is broken when the mean of a
ratio is beyond its limit by more than the spread, which is the standard deviation of one
measurement: then about six in seven of them are beyond it, and the machine is no excuse. The exit
code is 1 if any is.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.progress import track

from tests.bench import hostile
from tests.bench.bench_view import machine
from tests.bench.ratios import pairs, ratio

FILE: Final = Path(__file__).with_suffix(".yaml")

_UNDER_LOAD: Final = "under load, "
_SATURATED: Final = "saturated"
_TO_FLOOR: Final = "answers/s at saturation, to floor"
_TARGET_RATE, _TARGET_RATIO = 2_000, 0.3  # a second, or of the floor where a machine is slower
_NODES, _PODS = 5_000, 150_000  # what the limits are for


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What something may take.

    Attributes:
        what: its name.
        why: where the limit comes from, if not from what was measured.
        at_most: the limit of the ratio; None where more is better.
        at_least: the limit where more is better.
        measured: the mean and spread when the limit was set.
    """

    what: str
    why: str = ""
    at_most: float | None = None
    at_least: float | None = None
    measured: str = ""

    def __post_init__(self) -> None:
        if (self.at_most is None) is (self.at_least is None):
            raise ValueError(f"`{self.what}` needs one of `at_most` and `at_least`")

    @property
    def limit(self) -> str:
        """The limit as it is shown."""
        return f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"

    def is_broken(self, ratios: Sequence[float]) -> bool:
        """Return whether the mean is beyond the limit by more than the spread."""
        mean, spread = mean_and_spread(ratios)
        if self.at_most is not None:
            return mean - spread > self.at_most
        return self.at_least is not None and mean + spread < self.at_least


class _Handler(msgspec.Struct):
    quantiles: dict[str, float | None]  # milliseconds; None where nothing was handled


class _Phase(msgspec.Struct):
    name: str
    seconds: float
    answered: int
    timed_out: int
    handler: _Handler | None = None


class LoadRun(msgspec.Struct):
    """What we read of a result of the load bench.

    Attributes:
        ratios: by name.
        figures: of its phases.
        ready: seconds until it was ready.
        resident_mib: by moment.
    """

    ratios: dict[str, float]
    figures: list[_Phase]
    ready: dict[str, float]
    resident_mib: dict[str, float]


def mean_and_spread(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation, 0 of a single measurement."""
    return statistics.mean(ratios), statistics.stdev(ratios) if len(ratios) > 1 else 0.0


def read_budgets(text: str) -> list[Budget]:
    """Return the budgets of a file."""
    return msgspec.yaml.decode(text, type=list[Budget])


def load_figures(results: Iterable[LoadRun]) -> dict[str, list[float]]:
    """Return the ratios of runs of the load bench, and what its targets are set for."""
    figures: dict[str, list[float]] = {}
    for run in results:
        found = {
            **run.ratios,
            "seconds until ready": run.ready["seconds"],
            "MiB resident at most": run.resident_mib["at most"],
        }
        for phase in run.figures:
            found[f"timed out in {phase.name}"] = phase.timed_out
            if phase.name == _SATURATED:
                by_rate = phase.answered / phase.seconds / _TARGET_RATE
                by_floor = run.ratios[_TO_FLOOR] / _TARGET_RATIO
                found[f"{_SATURATED}, to its target"] = max(by_rate, by_floor)
            quantiles = phase.handler.quantiles if phase.handler else {}
            for name, ms in quantiles.items():
                if ms is not None:
                    found[f"handler {name} at {phase.name}, ms"] = ms
        for name, value in found.items():
            figures.setdefault(f"{_UNDER_LOAD}{name}", []).append(value)
    return figures


def recorded(text: str, ratios: Mapping[str, Sequence[float]]) -> str:
    """Return the text of the budgets with what was measured in the place of what was before."""
    for what, each in ratios.items():
        mean, spread = mean_and_spread(each)
        line = rf"(- what: {re.escape(what)}\n(?:  .*\n)*?  measured: ).*"
        text = re.sub(line, rf"\g<1>{mean:.3g} +- {spread:.2g}", text)
    return text


def main() -> None:
    """Measure, compare and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--load", type=Path, nargs="+", default=[], help="JSON of the load bench, compared as well"
    )
    parser.add_argument("--record", action="store_true", help=f"write what is found: {FILE.name}")
    asked = parser.parse_args()
    print(machine())
    text = FILE.read_text(encoding="utf-8")
    budgets = read_budgets(text)
    under_load = load_figures(
        msgspec.json.decode(file.read_bytes(), type=LoadRun) for file in asked.load
    )
    names = {one.what for one in budgets if one.what.startswith(_UNDER_LOAD)}
    if asked.load and not names <= under_load.keys():
        parser.error(f"not in the results: {', '.join(sorted(names - under_load.keys()))}")
    ratios = _measured(asked.repetitions) | hostile.measured() | under_load
    if asked.record:
        FILE.write_text(recorded(text, ratios), encoding="utf-8")
    sys.exit(_told(budgets, ratios))


def _measured(repetitions: int) -> dict[str, list[float]]:
    """Return the ratios of each repetition."""
    measured = pairs(_NODES, _PODS)
    ratios: dict[str, list[float]] = {what: [] for what in measured}
    for _ in track(range(repetitions), "measuring", console=Console(stderr=True)):
        for what, pair in measured.items():
            ratios[what].append(ratio(pair))
    return ratios


def _told(budgets: Sequence[Budget], ratios: Mapping[str, Sequence[float]]) -> bool:
    """Print all budgets with what was measured; return whether any is broken."""
    print(f"{'ratio to its floor':46} {'mean':>8} {'spread':>8} {'limit':>8}          when set")
    broken = 0
    for budget in budgets:
        found = ratios.get(budget.what)
        if found:
            mean, spread = mean_and_spread(found)
            figures = f"{mean:8.3g} {spread:8.2g}"
            broken += budget.is_broken(found)
            verdict = "OVER" if budget.is_broken(found) else "ok"
        else:
            figures, verdict = f"{'not measured':>17}", ""
        print(f"{budget.what:46} {figures} {budget.limit:>8} {verdict:4} {budget.measured:>16}")
    return broken > 0


if __name__ == "__main__":
    main()
