"""The fewest of some things that are enough, where the first are preferred.

Source: Junker, "QuickXplain: Preferred Explanations and Relaxations for Over-Constrained Problems",
AAAI 2004.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from engine.reclaim.steps import Steps

_T = TypeVar("_T")


class TooManySetsError(Exception):
    """The bound on the number of sets is reached, and nothing is found."""


class BoundedTest(Generic[_T]):
    """Asks whether a set is enough, a limited number of times.

    Args:
        is_enough: whether a set is.
        most: number of sets.
    """

    def __init__(self, is_enough: Callable[[Sequence[_T]], bool], most: int) -> None:
        self._is_enough = is_enough
        self._left = most

    def __call__(self, chosen: Sequence[_T]) -> bool:
        """Return whether a set is enough.

        Raises:
            TooManySetsError: none may be asked about any more.
        """
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

    Args:
        ordered: the preferred ones first.
        is_enough: whether a set is.
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
    """Return what is needed of some beside those given, which together are enough.

    Args:
        given: those that are part of every set.
        ordered: the others, at least one.
        is_enough: whether a set is.
        is_grown: whether more were given since it was last asked.
    """
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
