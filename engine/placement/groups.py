"""Sets of nodes described by a label: exact, constant in size, and valid for future nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import cast

import numpy as np
from numpy.typing import NDArray

from engine.model.decision import Decision
from engine.model.label_condition import Exactness
from engine.model.ranking import Ranking
from engine.model.selectors import Operator
from engine.placement.affinity import Requirement, json_of, requirement
from engine.placement.exclusion import Rejections
from engine.view import MISSING, ClusterView, Domain, LabelColumn, label_column

MAX_VALUES = 8
"""The most values of a label in one requirement."""

_SAMPLE = 32
_SAMPLE_OF_ALL = 32


class Groups:
    """The parts of a ranking that a few values of one label describe exactly.

    A label may also include nodes that the scheduler itself rejects: one full or cordoned node in a
    zone does not make the zone a worse description.

    Hardly any part of a ranking is such a group, and a few nodes suffice to see it: if a node of a
    part shares a value with a node of another, that label does not describe the part.
    So all labels of a node are one value of one column, and the nodes that have a value are counted
    only for a label that the sample does not rule out.

    Args:
        view: all nodes.
        labels: the labels that may be used; of several that fit, the first is.
        ranking: nodes that are not rejected.
        rejections: of the decision that gave the ranking.
    """

    def __init__(
        self,
        view: ClusterView,
        labels: Sequence[str],
        ranking: Ranking,
        rejections: Rejections,
    ) -> None:
        self._view, self._ranking, self._rejections = view, ranking, rejections
        self._keys = keys = tuple(labels)
        column = view.dictionary_column(
            ("labels", keys),
            (Domain.NODES,),
            lambda rows: (
                None if node is None else tuple(map(node.labels.get, keys)) for node in rows.nodes
            ),
        )
        stride = len(ranking) // _SAMPLE_OF_ALL + 1
        self._codes = column.codes
        # The only None among them is the value of MISSING, and whatever is ranked is a node.
        self._values = cast("Sequence[tuple[str | None, ...]]", column.values)
        self._sampled_codes = column.codes.take(ranking.rows[::stride]).tolist()
        self._sampled_totals = ranking.given_totals[::stride].tolist()
        self._labels: dict[str, _Label] = {}

    def describe(self, start: int, end: int) -> Requirement | None:
        """Return the requirement that exactly the nodes at positions `start` to `end` meet, if any.

        Args:
            start: the first place in the ranking, as in `Ranking.part`.
            end: the one past the last.
        """
        totals = self._ranking.ranked_totals
        best, worst = totals.at(start), totals.at(end - 1)
        inside, others = set[int](), set[int]()
        for total, code in zip(self._sampled_totals, self._sampled_codes, strict=True):
            (inside if worst <= total <= best else others).add(code)
        if not inside.isdisjoint(others):
            return None  # nodes that are alike in every label
        of_inside = self._by_label(inside or {self._code_of_one(worst)})
        of_others = self._by_label(others) if others else repeat(())
        for key, found, known in zip(self._keys, of_inside, of_others, strict=False):
            if None in found or not set(found).isdisjoint(known):
                continue
            values = self._label(key).exactly(self._ranking.part(start, end))
            if values:
                return requirement(key, Operator.IN, values)
        return None

    def _by_label(self, codes: Iterable[int]) -> Iterator[tuple[str | None, ...]]:
        """Yield for each label the values that belong to codes, of which there is one at least."""
        return zip(*[self._values[code] for code in codes], strict=True)

    def _code_of_one(self, total: int) -> int:
        """Return the labels of a node that has a total."""
        place = (self._ranking.given_totals == total).argmax()
        return int(self._codes[self._ranking.rows[place]])

    def _label(self, key: str) -> _Label:
        label = self._labels.get(key)
        if label is None:
            column = label_column(self._view, key)
            label = self._labels[key] = _Label(column, self._others)
        return label

    @cached_property
    def _others(self) -> NDArray[np.intp]:
        """Rows of nodes that a label may also include."""
        return np.flatnonzero(self._rejections.unreachable & self._view.valid)


def preferred_by_score(
    decision: Decision, view: ClusterView, rejections: Rejections
) -> list[Requirement] | None:
    """Return the requirements of the one score that gives points, if labels express it.

    Unlike a label that describes the best nodes of today, they hold for nodes to come, too. None
    where a node that policies reject, and no label tells, meets them as well.

    Args:
        decision: a decision to place.
        view: all nodes.
        rejections: of the decision.
    """
    scores = [score for score in decision.scored if not score.reason]
    if not len(decision.ranking) or len(scores) != 1 or scores[0].preferred is None:
        return None
    condition = scores[0].preferred()
    if condition.exactness is not Exactness.EXACT or len(condition.terms) != 1:
        return None
    (term,) = condition.terms
    matching = view.valid
    for each in term:
        column = label_column(view, each.key)
        matches = np.array([each.matches(value) for value in column.values], np.bool_)
        matching = matching & matches[column.codes]
    totals = decision.ranking.ranked_totals
    best = decision.ranking.part(0, totals.count_from(totals.at(0)))
    if int(np.count_nonzero(matching & ~rejections.unreachable)) != best.size:
        return None
    return [*map(json_of, term)] if term and matching[best].all() else None


@dataclass(frozen=True)
class _Label:
    """A label of all nodes.

    Attributes:
        column: its values.
        others: rows of nodes that it may also include.
    """

    column: LabelColumn
    others: NDArray[np.intp]

    @cached_property
    def _counts(self) -> NDArray[np.int64]:
        """How many nodes have each value, apart from `others`."""
        counts = self.column.counts
        if not self.others.size:
            return counts
        return counts - np.bincount(self.column.codes[self.others], minlength=counts.size)

    def exactly(self, rows: NDArray[np.intp]) -> list[str]:
        """Return the few values that all of `rows` have and no other node, or none.

        Most sets that are no group are ruled out by their first node, most others by a few.
        """
        codes, first = self.column.codes, self.column.codes[rows[0]]
        if first == MISSING or self._counts[first] > rows.size:
            return []
        for part in (rows[:_SAMPLE], rows):
            found = np.flatnonzero(np.bincount(codes[part]))
            if (
                found[0] == MISSING
                or found.size > MAX_VALUES
                or self._counts[found].sum() > rows.size  # never less over all of `rows`
            ):
                return []
        return sorted(self.column.values[code] or "" for code in found.tolist())
