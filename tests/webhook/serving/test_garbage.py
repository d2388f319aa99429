from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from webhook.serving.garbage import freeze_objects, freezing_survivors


@pytest.fixture(autouse=True)
def _own_thresholds() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class _Object:
    def __init__(self) -> None:
        self.itself: _Object | None = None


def test_objects_that_stay_are_looked_at_once() -> None:
    # Of 35,000 objects three times 10,000 are collected, and none of them a second time.
    freeze_objects()
    gc.set_threshold(10_000, 1, 1)
    gc.disable()  # what the test itself allocates must not count
    frozen = gc.get_freeze_count()
    looked_at: list[int] = []
    gc.callbacks.append(lambda phase, _: looked_at.append(_young()) if phase == "start" else None)
    try:
        gc.enable()
        with freezing_survivors():
            kept = [_Object() for _ in range(35_000)]
    finally:
        gc.callbacks.pop()
    assert len(looked_at) == 3
    assert max(looked_at) < 11_000
    assert 29_900 < gc.get_freeze_count() - frozen < 31_000
    assert len(kept) == 35_000


def _young() -> int:
    return len(gc.get_objects())


def test_cycles_that_end_meanwhile_are_freed() -> None:
    freeze_objects()
    with freezing_survivors():
        cycle = _Object()
        cycle.itself = cycle
        end = weakref.ref(cycle)
        del cycle
        gc.collect(0)
    assert end() is None


def test_afterwards_cycles_are_freed_that_outlived_a_collection() -> None:
    freeze_objects()
    with freezing_survivors():
        pass
    cycle = _Object()
    cycle.itself = cycle
    end = weakref.ref(cycle)
    gc.collect(0)
    del cycle
    gc.collect()
    assert end() is None
