"""Work in steps, with pauses for other work, and the search for a smallest set in steps.

Source of the latter: Junker, "QuickXplain: Preferred Explanations and Relaxations for
Over-Constrained Problems", AAAI 2004.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, MutableSequence, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

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


class TooManySetsError(Exception):
    """The bound on the number of sets is reached, and nothing is found."""


class BoundedTest(Generic[_T]):
    """Asks whether a set is enough, a limited number of times."""

    def __init__(self, is_enough: Callable[[Sequence[_T]], bool], most: int) -> None:
        self._is_enough = is_enough
        self._left = most

    def __call__(self, chosen: Sequence[_T]) -> bool:
        """Return whether a set is enough."""
        if not self._left:
            raise TooManySetsError
        self._left -= 1
        return self._is_enough(chosen)


def fewest_enough(
    ordered: Sequence[_T], is_enough: Callable[[Sequence[_T]], bool]
) -> Steps[list[_T] | None]:
    """Return a set that is enough, none of which can be spared; None if even all are not.

    A later one is part of it only where those before it are not enough. It asks for about
    `2k * log2(n / k) + 2k` sets, where k of n are needed, one in each step.

    INVARIANT: a set that is enough stays so with more of them.
    """
    if not is_enough(ordered):
        return None
    yield
    if is_enough(()):
        return []
    return (yield from _needed((), ordered, is_enough, is_grown=False))


def _needed(
    given: Sequence[_T],
    ordered: Sequence[_T],
    is_enough: Callable[[Sequence[_T]], bool],
    *,
    is_grown: bool,
) -> Steps[list[_T]]:
    """Return what is needed of some in addition to those given, which together are enough."""
    yield
    if is_grown and is_enough(given):
        return []
    if len(ordered) == 1:
        return list(ordered)
    half = len(ordered) // 2
    first, last = ordered[:half], ordered[half:]
    of_last = yield from _needed([*given, *first], last, is_enough, is_grown=True)
    of_first = yield from _needed([*given, *of_last], first, is_enough, is_grown=bool(of_last))
    return [*of_first, *of_last]
