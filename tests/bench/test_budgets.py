from __future__ import annotations

import msgspec
import pytest

from tests.bench import bench_start
from tests.bench.budgets import FILE, Budget, LoadRun, load_figures, read_budgets, recorded
from tests.bench.hostile import WHAT
from tests.bench.ratios import pairs, ratio


def test_noise_breaks_no_budget() -> None:
    # mean 1.1, standard deviation sqrt((0.04 + 0.04) / 2) = 0.2: 1.1 - 0.2 is still below 1
    assert not Budget(what="x", at_most=1.0).is_broken([0.9, 1.1, 1.3])
    assert not Budget(what="x", at_least=1.2).is_broken([0.9, 1.1, 1.3])


def test_what_is_slower_breaks_its_budget() -> None:
    # mean 1.2, standard deviation 0.1
    assert Budget(what="x", at_most=1.0).is_broken([1.1, 1.2, 1.3])
    assert Budget(what="x", at_least=1.4).is_broken([1.1, 1.2, 1.3])
    assert Budget(what="x", at_most=1.0).is_broken([1.1])


def test_a_budget_has_one_limit() -> None:
    with pytest.raises(ValueError, match="needs one of"):
        Budget(what="x")
    with pytest.raises(ValueError, match="needs one of"):
        Budget(what="x", at_most=1.0, at_least=1.0)


def test_what_was_measured_is_recorded_beside_its_limit() -> None:
    text = """\
- what: a
  at_most: 1.0
  measured: ""
- what: a b
  at_most: 1.0
  why: a reason
  measured: 3 +- 1
"""
    first, second = read_budgets(recorded(text, {"a b": [1.0, 2.0, 3.0]}))

    assert first == Budget(what="a", at_most=1.0)
    assert second == Budget(what="a b", at_most=1.0, why="a reason", measured="2 +- 1")


def test_runs_of_the_load_bench_are_taken_together() -> None:
    text = b"""{
      "machine": "any",
      "ratios": {"answers/s at saturation, to floor": 0.2},
      "ready": {"seconds": 11.0, "processor seconds": 10.5},
      "resident_mib": {"when ready": 220.0, "at most": 240.0},
      "figures": [
        {"name": "saturated", "seconds": 10, "answered": 18000, "timed_out": 0, "handler": null},
        {
          "name": "500/s", "seconds": 10, "answered": 5000, "timed_out": 1,
          "handler": {"mean": 2.0, "quantiles": {"p50": 1.5, "p99": 4.0}}
        }
      ]
    }"""
    run = msgspec.json.decode(text, type=LoadRun)

    assert load_figures([run, run]) == {
        "under load, answers/s at saturation, to floor": [0.2, 0.2],
        "under load, seconds until ready": [11.0, 11.0],
        "under load, MiB resident at most": [240.0, 240.0],
        "under load, timed out in saturated": [0, 0],
        # 1,800/s of 2,000/s are 0.9, 0.2 of the floor are 0.67 of the 0.3 that would do
        "under load, saturated, to its target": [0.9, 0.9],
        "under load, timed out in 500/s": [1, 1],
        "under load, handler p50 at 500/s, ms": [1.5, 1.5],
        "under load, handler p99 at 500/s, ms": [4.0, 4.0],
    }


def test_there_is_a_budget_for_all_that_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_start, "_RUNS", 1)
    names = [one.what for one in read_budgets(FILE.read_text(encoding="utf-8"))]
    measured = pairs(nodes=20, pods=600, gangs=2)

    here = [name for name in names if not name.startswith("under load, ")]
    assert here == [*measured, WHAT]
    assert all(ratio(pair, turns=1) > 0 for pair in measured.values())
