"""The time that rules take, by policy and rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


class RuleTimes:
    """Time and number of the evaluations of each rule, for operators.

    An evaluation counts as a whole, also where it finds columns that others computed. A filter and
    a score of one name count together. Where many pods of a template are decided in one batch, the
    decision for the first one counts.

    Args:
        clock: nanoseconds.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._spent: dict[tuple[str, str], list[int]] = {}  # nanoseconds, and evaluations

    def __iter__(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield policy, rule, nanoseconds and evaluations."""
        for (policy, rule), (nanoseconds, evaluations) in self._spent.items():
            yield policy, rule, nanoseconds, evaluations

    def note(self, policy: str, rule: str, begun: int) -> None:
        """Count an evaluation that ends now.

        Args:
            policy: of the rule, SCHEDULER for the scheduler's own.
            rule: its name.
            begun: what the clock said when it began.
        """
        spent = self._spent.get((policy, rule))
        if spent is None:
            spent = self._spent[policy, rule] = [0, 0]
        spent[0] += self.clock() - begun
        spent[1] += 1

    def keep(self, rules: Iterable[tuple[str, str]]) -> None:
        """Forget all rules but these; those that are new begin at 0."""
        self._spent = {key: self._spent.get(key) or [0, 0] for key in rules}
