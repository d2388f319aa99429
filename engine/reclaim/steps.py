"""Work in steps, so that whoever has something else to do can do it in between."""

from __future__ import annotations

from collections.abc import Generator, Iterator, MutableSequence, Sequence
from typing import Any, Final, TypeAlias, TypeVar

_T = TypeVar("_T")

Steps: TypeAlias = Generator[None, None, _T]
"""Work that pauses after each step, which takes some milliseconds, and ends with a result."""

_AT_ONCE: Final = 2000


def completed(steps: Steps[_T]) -> _T:
    """Do work without a pause; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


def parts_of(items: Sequence[_T], size: int = _AT_ONCE) -> Iterator[Sequence[_T]]:
    """Yield parts of some things, each of which a step can look at, in order."""
    for at in range(0, len(items), size):
        yield items[at : at + size]


def emptied(items: MutableSequence[Any]) -> Steps[None]:
    """Empty a list: that the memory of very many objects is given back takes its time, too."""
    while items:
        del items[-_AT_ONCE:]
        yield
