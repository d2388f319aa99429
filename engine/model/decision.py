"""A decision for one pod: what is asked, and the answer with its reasons, ranking and time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.policy_resource import PlacementOptions
from engine.model.resources import Amounts
from engine.model.rule_outcomes import FilterOutcome, ScoreOutcome, count_codes, greatest_code
from engine.model.time import Micros

_MOST_PER_TOTAL: Final = 4
"""Counts are made of totals up to so many times the candidates: beyond, sorting is faster."""


class RankedTotals:
    """What stands at each place of a ranking, and how many totals are at least some score.

    Mostly there are few different totals of many candidates. They are counted then, in a tenth of
    the time that it takes to sort them.

    Attributes:
        size: how many there are.

    Args:
        totals: at least 0, in any order, (n,).
    """

    __slots__ = ("_by_total", "_rising", "size")

    def __init__(self, totals: NDArray[np.int64]) -> None:
        self.size = totals.size
        self._rising: list[int] = []
        self._by_total: NDArray[np.intp] | None = None
        if self.size and totals.item(totals.argmax()) < _MOST_PER_TOTAL * self.size:
            self._by_total = np.bincount(totals).cumsum()  # how many are at most each total
        else:
            self._rising = np.sort(totals).tolist()

    def at(self, place: int) -> int:
        """Return the total at a place, from 0, the best, to `size` - 1."""
        from_worst = self.size - 1 - place
        if self._by_total is None:
            return self._rising[from_worst]
        return int(self._by_total.searchsorted(from_worst, "right"))

    def count_from(self, score: int) -> int:
        """Return how many totals are at least a score."""
        if self._by_total is None:
            return self.size - bisect_left(self._rising, score)
        if score <= 0:
            return self.size
        return self.size - int(self._by_total.item(min(score, self._by_total.size) - 1))


_NO_ROWS: Final = np.zeros(0, np.intp)
_FIRST: Final = 64
"""Candidates that are put in order at least: as many as are named on a pod."""


def no_tie_breakers(rows: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the same number for all rows, which leaves them in their order."""
    return np.zeros(rows.size, np.uint64)


class Ranking:
    """The candidates by falling total, then by rising tie-breaker, then as they were given.

    Sorting all takes as long as a score of all nodes, and hardly anything but a full explanation
    reads beyond the best. So only those are sorted that are at least as good as the last one read,
    and totals are looked up in `ranked_totals`.

    Attributes:
        rows, given_totals: these, in the order given.

    Args:
        rows: of the candidates, ascending, (n,).
        totals: of each, at least 0, (n,).
        tie_breakers: makes a number for each of some rows.
    """

    def __init__(
        self,
        rows: NDArray[np.intp] = _NO_ROWS,
        totals: NDArray[np.int64] = _NO_ROWS,
        tie_breakers: Callable[[NDArray[np.intp]], NDArray[np.uint64]] = no_tie_breakers,
    ) -> None:
        self.rows, self.given_totals = rows, totals
        self._tie_breakers = tie_breakers
        self._first = _NO_ROWS

    def __len__(self) -> int:
        return self.rows.size

    @cached_property
    def ranked_totals(self) -> RankedTotals:
        """The totals by their places."""
        return RankedTotals(self.given_totals)

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """All totals, best first."""
        return np.sort(self.given_totals)[::-1]

    @property
    def order(self) -> NDArray[np.intp]:
        """The positions in `rows` and `given_totals` of all candidates, best first."""
        return self.best(None)

    def best(self, most: int | None) -> NDArray[np.intp]:
        """Return the positions of the best candidates, best first; see `order`."""
        end = self.rows.size if most is None else min(most, self.rows.size)
        if self._first.size < end:
            places = np.arange(self.rows.size)
            if max(end, _FIRST) < self.rows.size:
                last = self.ranked_totals.at(max(end, _FIRST) - 1)
                places = (self.given_totals >= last).nonzero()[0]
            self._first = self._in_order(places)
        return self._first[:end]

    def among(self, kept: NDArray[np.bool_]) -> Ranking:
        """Return the ranking of some candidates alone."""
        return Ranking(self.rows[kept], self.given_totals[kept], self._tie_breakers)

    def part(self, start: int, end: int) -> NDArray[np.intp]:
        """Return the rows at the places from `start` to `end`, in any order."""
        totals, ranked = self.given_totals, self.ranked_totals
        inside = totals >= ranked.at(end - 1)
        if start:
            inside &= totals <= ranked.at(start)
        return self.rows[inside]

    def _in_order(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return ascending positions, the best among them, best first.

        Sorting one packed integer per node is ten times as fast as sorting by two keys. From the
        upper bits down it holds the difference to the best total, as many bits of the tie-breaker
        as there is room for, and the place among those given.
        """
        totals = self.given_totals[places]
        best, n = totals.item(totals.argmax()), self.rows.size
        keys = self._tie_breakers(self.rows[places])
        keys &= tie_mask(best, n)
        shortfalls = (best - totals).view(np.uint64)
        shortfalls <<= tie_end(best)
        shortfalls += np.arange(places.size, dtype=np.uint64)
        keys |= shortfalls
        keys.sort()
        keys &= (1 << n.bit_length()) - 1
        return places[keys.view(np.intp)]


NOTHING_RANKED: Final = Ranking()
"""No candidates."""


def tie_mask(best: int, candidates: int) -> int:
    """Return the bits of a tie-breaker that there is room for in a key."""
    return (1 << tie_end(best)) - (1 << candidates.bit_length())


def tie_end(best: int) -> int:
    """Return the number of bits of a key below the total, where this is the best one."""
    return 64 - max(1, best.bit_length())


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


@dataclass(frozen=True, kw_only=True)
class PlacementRequest:
    """A pod about to be created, with its context."""

    pod: Pod  # the model of the pod
    raw: bytes  # the object as JSON, decoded only if an expression or the patch needs it
    # labels of its namespace, as far as they are known
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    # the fields of the admission request that expressions may read (`operation`, `userInfo`,
    # `dryRun`, ...), as plain JSON values
    request: Mapping[str, Any] = field(default_factory=dict)
    # called now and then while expressions run; True makes them err. None for no limit
    expired: Callable[[], bool] | None = None
    # where the time that rules take is noted; None for nowhere
    rule_times: RuleTimes | None = None

    @cached_property
    def object(self) -> dict[str, Any]:
        """The pod as plain JSON values."""
        return msgspec.json.decode(self.raw, type=dict[str, Any])


# The advice in an annotation of a pod: written by one replica, read by all.
#
# Anyone who may create pods can write this annotation, so nothing in it is trusted: a text that is
# too long or malformed counts as no advice.


ADVICE_ANNOTATION = "stowplan.dev/advice"
"""`Advice` as JSON."""

MOST_NODES = 5
"""The most nodes in an advice; of more, the first few count."""

_MOST_CHARACTERS = 1024


class Advice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The advice for a pod, as far as other replicas need it.

    Attributes:
        policies: names of its policies, by precedence.
        nodes: names of the first few of the best tier, best first; none without a preference.
        candidates: number of nodes that could take the pod.
        id: unique to this advice; "" where no replica waits for the pod.
        terms: number of preferred terms that were added to the pod, the last ones it has.
    """

    policies: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    candidates: int = 0
    id: str = ""
    terms: int = 0


_decode = msgspec.json.Decoder(Advice).decode


def advice_in(annotations: Mapping[str, str]) -> Advice | None:
    """Return the advice in the annotations of a pod, None if there is no readable one."""
    text = annotations.get(ADVICE_ANNOTATION)
    if text is None or len(text) > _MOST_CHARACTERS:
        return None
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


class Verdict(StrEnum):
    """The outcome for the pod."""

    PLACE = "Place"  # there is a ranking to write on the pod
    ABSTAIN = "Abstain"  # no policy, no candidate, or a pod of another scheduler
    DENY = "Deny"  # no node passes and a policy asks for denial


class RejectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The number of nodes that a filter was the first to reject, for one reason."""

    policy: str
    rule: str
    reason: str
    nodes: int


class Decision(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The outcome for one pod."""

    pod: Pod
    verdict: Verdict  # the outcome
    message_or_source: str | Callable[[Decision], str]  # the message, or a function that makes it
    # names of the policies that matched and were applied, by precedence
    policies: tuple[str, ...] = ()
    # the form of the patch, from the first of them
    placement: PlacementOptions = PlacementOptions()
    names: Sequence[str] = ()  # node name per row of the view it was decided on
    valid: NDArray[np.bool_]  # (n,), the rows that are nodes, or those of them that were looked at
    filters: tuple[FilterOutcome, ...] = ()  # the scheduler's own, then the policies', in order
    # for each filter, the nodes that it and those before it leave, (n,)
    left: tuple[NDArray[np.bool_], ...] = ()
    # outcome of each score, in policy order, its elements by row; see `scores`
    scored: tuple[ScoreOutcome, ...] = ()
    # the candidates, which are the rows that may take the pod, by their weighted sums
    ranking: Ranking = NOTHING_RANKED
    estimate: Amounts  # expected usage of the pod, base units; empty when no rule estimates
    # rules that could not be evaluated, with the reason, in policy order
    errors: tuple[str, ...] = ()
    decided_at: Micros  # the `now` it was decided with
    view_version: int  # the version of the view it was decided on
    # whole seconds since the last report of each source of that view, by name; empty for a recorded
    # cluster, and where no node was evaluated
    ages: Mapping[str, int] = {}
    # the decision that policies in Audit mode would have made, None when none matched
    audit: Decision | None = None

    @cached_property
    def message(self) -> str:
        """One line for a person; the denial's text when denied."""
        found = self.message_or_source
        return found if isinstance(found, str) else found(self)

    @cached_property
    def first_rejections(self) -> tuple[int, ...]:
        """For each filter, the number of nodes that it was the first to reject.

        The sum is the number of nodes that are no candidates.
        """
        counts: list[int] = []
        before, count = self.valid, int(np.count_nonzero(self.valid))
        for nodes in self.left:
            remaining = count if nodes is before else int(np.count_nonzero(nodes))
            counts.append(count - remaining)
            before, count = nodes, remaining
        return tuple(counts)

    @cached_property
    def candidates(self) -> NDArray[np.intp]:
        """Rows that may take the pod, all of them, best first; see `best`."""
        return self.ranking.rows[self.ranking.order]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Weighted sums, aligned with `candidates`."""
        return self.ranking.totals

    def best(self, most: int | None) -> NDArray[np.intp]:
        """Return the first rows of `candidates`."""
        return self.ranking.rows[self.ranking.best(most)]

    @property
    def best_node(self) -> str:
        """The name of the best candidate, "" where there is none."""
        best = self.best(1)
        return self.names[best[0]] if best.size else ""

    @property
    def scores(self) -> tuple[ScoreOutcome, ...]:
        """The scores, in policy order, aligned with `candidates`."""
        order = self.ranking.order
        return tuple(
            structs.replace(
                score, raw=score.raw.take(order), normalized=score.normalized.take(order)
            )
            for score in self.scored
        )

    @property
    def abstained(self) -> tuple[FilterOutcome | ScoreOutcome, ...]:
        """The rules that abstained because what they read is too old, in order."""
        rules: tuple[FilterOutcome | ScoreOutcome, ...] = (*self.filters, *self.scored)
        return tuple(rule for rule in rules if rule.abstained)

    @property
    def rejection_summaries(self) -> tuple[RejectionSummary, ...]:
        """`first_rejections` by reason."""
        summaries: list[RejectionSummary] = []
        counts = zip(self.filters, self.first_rejections, (self.valid, *self.left), strict=False)
        for outcome, rejected, left in counts:
            if not rejected:
                continue
            if not outcome.faults and greatest_code(outcome.codes) == 1:
                by_code = {1: rejected}  # most filters have a single reason
            else:
                by_code = count_codes(outcome.codes.take((left & outcome.rejects).nonzero()[0]))
            summaries += [
                RejectionSummary(
                    policy=outcome.policy,
                    rule=outcome.rule,
                    reason=outcome.explainer.reason(code),
                    nodes=nodes,
                )
                for code, nodes in by_code.items()
            ]
        return tuple(summaries)
