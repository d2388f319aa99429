from __future__ import annotations

import pytest

from tests.bench.bench_service import Clock


class Processor:
    def __init__(self) -> None:
        self.used = 5.0

    def __call__(self) -> float:
        return self.used


def test_the_clock_of_a_whole_processor_goes_as_it_is_used() -> None:
    processor = Processor()
    clock = Clock(1.0, processor)
    began = clock()
    processor.used += 0.35
    assert clock() - began == pytest.approx(0.35)


def test_under_a_quota_the_clock_goes_on_to_the_next_period_once_it_is_used_up() -> None:
    processor = Processor()
    clock = Clock(0.5, processor)
    began = clock()
    for _ in range(410):
        processor.used += 0.0005
        clock()
    assert clock() - began == pytest.approx(0.205 + 4 * 0.05, abs=0.01)


def test_the_clock_stands_still_meanwhile_and_passes_idle_time() -> None:
    processor = Processor()
    clock = Clock(1.0, processor)
    began = clock()
    with clock.stopped():
        processor.used += 1.0
    assert clock() - began == pytest.approx(0.0)
    clock.jump_to(began + 2.0)
    clock.jump_to(began + 1.0)
    assert clock() - began == pytest.approx(2.0)
