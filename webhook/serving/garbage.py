"""The collector of garbage, kept away from what stays: it would look at millions of objects."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 50)
"""Reviews leave no cycles, so collections are for what changes rarely. A collection takes some 10
ms, however few objects are new: it traverses large young objects each time.
"""


def freeze_objects() -> None:
    """Exclude all existing objects from later collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def freezing_survivors() -> Iterator[None]:
    """Exclude what a collection leaves from later ones, until the block is left.

    For the lists of a start, of which nearly everything stays: each object is looked at once, where
    a collection of all takes 300 ms with 50,000 nodes. Not for longer: an object of a cycle that
    was in use during a collection is never freed.
    """

    def freeze(phase: str, _: Mapping[str, int]) -> None:
        if phase == "stop":
            gc.freeze()

    gc.callbacks.append(freeze)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze)
