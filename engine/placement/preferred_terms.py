"""A ranking as preferred terms: labels where they describe the nodes, else hostnames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.errors import counted
from engine.model.decision import MOST_NODES, Decision, RankedTotals, Ranking
from engine.model.selectors import GREATEST_WEIGHT, NAME_FIELD, Operator
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import (
    NOT_LISTABLE,
    Groups,
    Hostnames,
    Rejections,
    Requirement,
    preferred_by_score,
    requirement,
)
from engine.plugins import PLUGINS, Cycle
from engine.view import ClusterView, IntColumn

# How many nodes to name: the scheduler looks at a sample of the nodes that can take a pod.
#
# Source of the sample: pkg/scheduler/schedule_one.go (numFeasibleNodesToFind). It begins where the
# last search ended, in an order of the nodes that nobody else knows: a scheduler that starts has
# read them in no order. So what is in the sample is taken to be drawn at random, without
# replacement.


_LEAST_NODES: Final = 100
_LEAST_PERCENTAGE: Final = 5
_PERCENTAGE: Final = 50
_NODES_PER_PERCENT: Final = 125

LEAST_NAMES: Final = 8
MOST_NAMES: Final = 64
_PROBABILITY: Final = 0.99


def nodes_to_find(nodes: int, percentage: int = 0) -> int:
    """Return how many feasible nodes are enough for the scheduler to choose among.

    Args:
        nodes: that there are.
        percentage: `percentageOfNodesToScore`; 0 lets the number of nodes decide.
    """
    if nodes < _LEAST_NODES:
        return nodes
    if not percentage:
        percentage = max(_PERCENTAGE - nodes // _NODES_PER_PERCENT, _LEAST_PERCENTAGE)
    return max(nodes * percentage // 100, _LEAST_NODES)


@lru_cache(maxsize=4096)
def names_needed(nodes: int, feasible: int, percentage: int = 0) -> int:
    """Return how many nodes to name so that at least two of them are in the sample.

    That holds 99 times of 100, where `LEAST_NAMES` to `MOST_NAMES` suffice for it. Of two the
    scheduler can take the one that it likes better itself. With `s` of `f` feasible nodes in the
    sample, none of `k` is in it with the probability (f-s)/f (f-s-1)/(f-1) ..., k factors, and
    exactly one is with k s / (f-k+1) times the first k - 1 of them (the hypergeometric
    distribution).

    Args:
        nodes: that there are.
        feasible: those that pass what the scheduler itself enforces.
        percentage: `percentageOfNodesToScore`; 0 lets the number of nodes decide.
    """
    sample = nodes_to_find(nodes, percentage)
    if sample >= feasible:
        return LEAST_NAMES
    none = 1.0
    for names in range(1, MOST_NAMES):
        left = feasible - names + 1
        one = names * sample / left * none
        none *= max(left - sample, 0) / left
        if names >= LEAST_NAMES and none + one <= 1 - _PROBABILITY:
            return names
    return MOST_NAMES


# A ranking as weight tiers: which of the best candidates to prefer, and the weight of each.
#
# Everything here is about positions in the ranking, never nodes. NodeAffinity gives a node the sum
# of the weights of the terms it matches and rescales so that the best feasible node has 200 points
# of the scheduler's total; only ratios between weights count. Three tiers weigh 3:2:1.
#
# Where labels describe them, the tiers are thirds of the range of the scores. Nodes that are named
# one by one cost the scheduler, so few are: see `named_tiers`.


MAX_TERMS = 3
"""The most preferred terms that we add: Karpenter tries them one by one."""

_FIRST_TIER = 4  # a quarter
_BELOW = 8
_DEALT = 32


class WeightTier(NamedTuple):
    """Positions `start` to `end` of what is preferred, each of which gets `weight`."""

    start: int
    end: int
    weight: int


def weight_budget(user_weights: int) -> int:
    """Return the sum of our terms on the best node: as much as the user's own, 100 without any.

    Equal sums blend: each side can move at most half of the 200 points. Three terms reach 300.
    """
    return min(user_weights or GREATEST_WEIGHT, MAX_TERMS * GREATEST_WEIGHT)


def candidate_cuts(
    totals: RankedTotals, max_nodes: int, some_rejected: Callable[[], bool]
) -> Iterator[int]:
    """Yield how many of the best candidates could be preferred, the widest cut first.

    First all above the worst score, then those down to the score at which `max_nodes` is reached:
    whole score groups, which a label may describe. Candidates with the worst score are never
    preferred, unless all are equal and there are rejected nodes to prefer them to.
    """
    if not totals.size:
        return
    above_worst = totals.count_from(totals.at(totals.size - 1) + 1)
    whole_groups = totals.count_from(totals.at(min(max_nodes, totals.size) - 1))
    if not above_worst and some_rejected():
        above_worst = totals.size  # all are equal
    if not above_worst:
        return
    yield above_worst
    if max_nodes <= whole_groups < above_worst:
        yield whole_groups


def score_tiers(totals: RankedTotals, cut: int, total_weight: int) -> list[WeightTier]:
    """Return at most three tiers over the first `cut` positions, best first: score thirds."""
    return _tiers(_thirds(totals, cut), total_weight)


class NamedPositions(NamedTuple):
    """Positions of nodes that are named."""

    # those to name, best first, then those that only pods which share the decision name, see
    # `turns`
    positions: IntColumn
    named: int  # how many are the former


@lru_cache(maxsize=256)
def named_positions(cut: int, names: int) -> NamedPositions:
    """Return the positions to name, of the best `cut`: the first ones, and a few below them.

    Those below are spread evenly. The samples that the scheduler takes in turn may be the same few
    parts of the cluster again and again; then the best nodes are soon all in one of them, and the
    others, too, need a node that is named.
    """
    first = min(names, cut)
    step = -(-(cut - first) // _BELOW) or 1
    named = [*range(first), *range(first, cut, step)]
    positions = np.array(list(dict.fromkeys([*named, *range(min(cut, _DEALT))])))
    positions.flags.writeable = False
    return NamedPositions(positions, len(named))


def named_tiers(totals: IntColumn, names: int, total_weight: int) -> list[WeightTier]:
    """Return at most three tiers over nodes that are named, best first.

    The first is a quarter of those of which the sample has some, the second the others of them, the
    third all below, but equal scores get the same weight.
    """
    first = min(names, totals.size)
    lasts = (-(-first // _FIRST_TIER) - 1, first - 1)
    lowers = totals[::-1].searchsorted(totals.take(lasts)).tolist()
    best, good = [totals.size - lower for lower in lowers]
    return _tiers((best, good, totals.size), total_weight)


def _tiers(ends: tuple[int, int, int], total_weight: int) -> list[WeightTier]:
    """Return a tier up to each end, without those that are empty or get no weight.

    At a total weight of 100 the tiers are disjoint, so that each name is written once: 64 names of
    44 characters take 3.3 kB. A weight above the limit of one term is reached by nested tiers,
    whose weights add up, at twice the bytes in three even tiers and three times in one.
    """
    levels = [total_weight * (MAX_TERMS - k) // MAX_TERMS for k in range(MAX_TERMS)]
    if total_weight <= GREATEST_WEIGHT:
        starts = (0, *ends)
        return [
            WeightTier(start, end, level)
            for start, end, level in zip(starts, ends, levels, strict=False)
            if start < end and level
        ]
    return _nested(ends, levels)


def _nested(ends: Sequence[int], levels: Sequence[int]) -> list[WeightTier]:
    """Return tiers that all start at the top; each covers as much as fits the weight of a term."""
    nested: list[WeightTier] = []
    for end, level, below in zip(ends, levels, (*levels[1:], 0), strict=True):
        weight = level - below
        if nested and nested[-1].end == end and nested[-1].weight + weight <= GREATEST_WEIGHT:
            nested[-1] = WeightTier(0, end, nested[-1].weight + weight)
        else:
            nested.append(WeightTier(0, end, weight))
    return nested


def _thirds(totals: RankedTotals, cut: int) -> tuple[int, int, int]:
    """Return the end of each third of the scores, between the best and the best after `cut`."""
    best, floor = totals.at(0), totals.at(min(cut, totals.size - 1))
    # Rounded up: the first is two thirds above the floor, the second is one third.
    upper = totals.count_from(floor - 2 * (floor - best) // MAX_TERMS)
    middle = totals.count_from(floor - (floor - best) // MAX_TERMS)
    return min(upper, cut), min(middle, cut), cut


# Turns of pods that share a decision: each is drawn to other nodes among the best.
#
# They get the same terms otherwise, and the first tier is narrow: so many pods on so few nodes
# would be no better for being advised. So the names of the first two terms, or of the only one, are
# others in each turn, of a ring of the best nodes: the first tier is the next few of it, the second
# those behind them.


Term: TypeAlias = dict[str, Any]
"""A preferred term as it stands in JSON."""

_MOST_DEALT: Final = 2  # terms


class _Ring(NamedTuple):
    """Nodes that are dealt, best first; those that the dealt terms list come first."""

    hostnames: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Turns:
    """What the pods that share a decision deal out among them."""

    # all preferred terms, which stand in the operations of the patch; no two of them have a name in
    # common, and the first one lists hostnames
    terms: tuple[Term, ...]
    # of the nodes to name, None where one is not dealt: first those of the terms, in their order,
    # then those that only turns name. More are dealt than the first term lists
    hostnames: Sequence[str | None]
    # of the same nodes
    rows: Sequence[int] = field(compare=False)  # replicas know the nodes in different orders
    names: Sequence[str] = field(compare=False)  # of all nodes, by row

    @property
    def count(self) -> int:
        """How many turns there are before the first comes again."""
        return -(-len(self._ring.names) // self._widths[0])

    def nodes(self, number: int) -> tuple[str, ...]:
        """Return the names of the first few nodes of the first tier in a turn, best first."""
        return self._from(self._ring.names, number)[: min(self._widths[0], MOST_NODES)]

    def listed(self, number: int) -> list[Sequence[str]]:
        """Return what the dealt terms list in a turn, counted from 0."""
        ring, (first, *others) = self._from(self._ring.hostnames, number), self._widths
        return [ring[:first], *(ring[first : first + width] for width in others[: _MOST_DEALT - 1])]

    @property
    def lists(self) -> list[list[str]]:
        """The lists of the dealt terms, as they stand in the operations of the patch."""
        return self._lists[:_MOST_DEALT]

    @cached_property
    def _lists(self) -> list[list[str]]:
        """The hostnames of each term that lists any."""
        return [
            named["values"]
            for term in self.terms
            for named in term["preference"].get("matchExpressions", ())
        ]

    @cached_property
    def _widths(self) -> list[int]:
        return list(map(len, self._lists))

    @cached_property
    def _ring(self) -> _Ring:
        """Computed for pods that share: hardly any pod does, until time is short."""
        below = {hostname for listed in self._lists[_MOST_DEALT:] for hostname in listed}
        pairs = [
            (hostname, self.names[row])
            for hostname, row in zip(self.hostnames, self.rows, strict=True)
            if hostname is not None and hostname not in below
        ]
        return _Ring(*zip(*pairs, strict=True))

    def _from(self, names: tuple[str, ...], number: int) -> tuple[str, ...]:
        """Return names from where a turn begins, and around."""
        start = number % self.count * self._widths[0]
        return names[start:] + names[:start]


_TAINTS: Final = PLUGINS["TaintToleration"]
_SOFT_TAINTS: Final = _TAINTS.default_score()
_AFFINITY: Final = PLUGINS["NodeAffinity"]
_PREFERRED: Final = _AFFINITY.default_score()
_NO_ROWS: Final = np.zeros(0, np.intp)

_Rows: TypeAlias = NDArray[np.intp]
_Described: TypeAlias = tuple[WeightTier, list[Requirement]]
"""A tier, and what labels say of it; nothing where its nodes are named."""


class _Chosen(NamedTuple):
    """Rows of what is preferred, best first, and tiers over them, each with its label if any.

    Where a label describes a tier, its rows may be missing but for those that are advised.
    Where pods that share the decision take turns, rows that only they name are at the end.
    """

    rows: _Rows
    tiers: list[_Described]
    takes_turns: bool = False


@dataclass(frozen=True, slots=True)
class PreferredTerms:
    """The preferred nodes."""

    terms: list[Term]  # preferred terms as they stand in JSON, best nodes first; three at most
    # rows of the most preferred nodes, best first; at least as many as are advised
    best_tier: _Rows
    left_out: int  # how many nodes belong into a term but cannot be listed
    # of pods that share the decision; None where their terms are the same
    turns: Turns | None = None

    @property
    def warnings(self) -> list[str]:
        """A line for the nodes left out, below the 120 characters that clients show."""
        if not self.left_out:
            return []
        one = "node is not preferred as it should be"
        several = "nodes are not preferred as they should be"
        return [f"{counted(self.left_out, one, several)}: {NOT_LISTABLE}"]


def preferred_terms(
    decision: Decision,
    view: ClusterView,
    hostnames: Hostnames,
    rejections: Rejections,
    total_weight: int,
    names: int = MOST_NAMES,
) -> PreferredTerms:
    """Return the preferred terms for a decision.

    A node that cannot be listed by hostname is listed by its name where it is a tier by itself, and
    otherwise left out: a term can require one name only.
    """
    terms: list[Term] = []
    written: list[_Rows] = []
    left_out = 0
    ranking = _preferable(decision, view)
    chosen = _chosen(decision, ranking, view, hostnames, rejections, total_weight, names)
    # The names of all tiers at once: each access to the columns costs more than the names.
    unlabelled = [tier for tier, labels in chosen.tiers if not labels]
    first, end = (unlabelled[0].start, unlabelled[-1].end) if unlabelled else (0, 0)
    texts = hostnames.of(chosen.rows[first : None if chosen.takes_turns else end])
    for tier, labels in chosen.tiers:
        rows = chosen.rows[tier.start : tier.end]
        if labels:
            term: dict[str, Any] = {"matchExpressions": labels}
        else:
            rows, term = _name_list(rows, texts[tier.start - first : tier.end - first], view)
            left_out += tier.end - tier.start - rows.size
            if not rows.size:
                break  # nodes of a worse tier would be preferred to these
        written.append(rows)
        terms.append({"weight": tier.weight, "preference": term})
    best_tier = written[0] if written else _NO_ROWS
    turns = _turns(decision, view, chosen, terms, texts) if chosen.takes_turns and terms else None
    return PreferredTerms(terms, best_tier, left_out, turns)


def _turns(
    decision: Decision,
    view: ClusterView,
    chosen: _Chosen,
    terms: Sequence[Term],
    texts: Sequence[str | None],
) -> Turns | None:
    """Return the turns of pods that share the terms, None where there is nothing to deal out.

    The first term weighs as much as all of the user's: so it is dealt no node that these prefer
    less than those of the first tier.
    """
    if "matchExpressions" not in terms[0]["preference"]:
        return None
    hostnames, cycle = texts, Cycle(decision.pod, view, decision.decided_at)
    if _AFFINITY.ranks(cycle):
        wanted = _PREFERRED.score(cycle).values.take(chosen.rows)
        is_less = (wanted < wanted[: chosen.tiers[0][0].end].min()).tolist()
        hostnames = [None if less else name for less, name in zip(is_less, texts, strict=True)]
    turns = Turns(tuple(terms), hostnames, chosen.rows.tolist(), decision.names)
    return turns if sum(map(bool, hostnames)) > len(turns.lists[0]) else None


def _preferable(decision: Decision, view: ClusterView) -> Ranking:
    """Return the candidates that terms may prefer, with their totals.

    The scheduler takes nodes without soft taints as long as one fits: their 300 points outvote the
    200 that terms can give. Terms for others would be lost, and those named instead of them, too.
    """
    ranking, cycle = decision.ranking, Cycle(decision.pod, view, decision.decided_at)
    if not _TAINTS.ranks(cycle) or not len(ranking):
        return ranking
    taints = _SOFT_TAINTS.score(cycle).values.take(ranking.rows)
    fewest = taints == taints.min()
    return ranking if fewest.all() else ranking.among(fewest)


def _chosen(
    decision: Decision,
    ranking: Ranking,
    view: ClusterView,
    hostnames: Hostnames,
    rejections: Rejections,
    total_weight: int,
    names: int,
) -> _Chosen:
    """Return the tiers of the widest cut that labels describe but for a few names, else of names.

    INVARIANT: nested tiers are chosen only if every node can be listed. A node left out of a wide
    tier but not of a narrow one, where a label describes it, would end up below worse nodes.
    """
    placement, totals = decision.placement, ranking.ranked_totals
    most, cut = min(names, placement.max_nodes), 0

    def weight_of(rows: Callable[[], _Rows]) -> int:
        if total_weight <= GREATEST_WEIGHT or hostnames.listable(rows()).all():
            return total_weight
        return GREATEST_WEIGHT

    # INVARIANT: a cut and a tier end where a total does, so ties need no order to describe them.
    groups = Groups(view, _group_labels(decision), ranking, rejections)
    exact = preferred_by_score(decision, view, rejections) if placement.group_labels else None
    for cut in candidate_cuts(totals, placement.max_nodes, lambda: bool(rejections.rejected.any())):
        weight = weight_of(partial(ranking.part, 0, cut))
        tiers = score_tiers(totals, cut, weight)
        if exact is not None and cut == totals.count_from(totals.at(0)):
            described: list[_Described] | None = [(tier, exact) for tier in tiers]
        else:
            described = _described(tiers, groups, most)
        if described is not None:
            best = ranking.rows.take(ranking.best(_last_read(described)))
            return _Chosen(best, described)
    if not cut:
        return _Chosen(_NO_ROWS, [])
    cut = min(cut, placement.max_nodes)
    positions, named = named_positions(cut, most)
    best = ranking.best(cut)
    places = best.take(positions)
    weight = weight_of(lambda: ranking.rows.take(places[:named]))
    tiers = named_tiers(ranking.given_totals.take(places[:named]), most, weight)
    end = tiers[-1].end
    if end < named:  # a small weight has fewer tiers: what they leave is named in turns alone
        places = best.take(np.concatenate([positions[:end], np.sort(positions[end:])]))
    # Nested tiers have names in common, which cannot be dealt out.
    rows = ranking.rows.take(places)
    return _Chosen(rows, [(tier, []) for tier in tiers], weight <= GREATEST_WEIGHT)


def _group_labels(decision: Decision) -> tuple[str, ...]:
    """Return the labels that may stand for nodes, those first that the scores read.

    Another label that describes the best nodes of today may describe worse ones of tomorrow.
    """
    given = decision.placement.group_labels
    read = [key for score in decision.scored if not score.reason for key in score.label_keys]
    return tuple(dict.fromkeys([*read, *given])) if given else ()


def _described(tiers: Iterable[WeightTier], groups: Groups, most: int) -> list[_Described] | None:
    """Return each tier with its label, None once those without one take too many names.

    A name counts once in nested tiers, which are in order of their ends.
    """
    described: list[_Described] = []
    names = covered = 0
    for tier in tiers:
        label = groups.describe(tier.start, tier.end)
        described.append((tier, [] if label is None else [label]))
        if label is None:
            names += tier.end - max(tier.start, covered)
            covered = tier.end
            if names > most:
                return None
    return described


def _last_read(described: Sequence[_Described]) -> int:
    """Return how many of the best nodes are read: those named, and of each label the advised."""
    return max(
        min(tier.start + MOST_NODES, tier.end) if labels else tier.end for tier, labels in described
    )


def _name_list(
    rows: _Rows, hostnames: Sequence[str | None], view: ClusterView
) -> tuple[_Rows, dict[str, Any]]:
    """Return those of `rows` that one term can list, and the term."""
    values = [name for name in hostnames if name is not None]
    if len(values) < rows.size:
        if rows.size == 1:
            name = requirement(NAME_FIELD, Operator.IN, [view.names[rows[0]]])
            return rows, {"matchFields": [name]}
        rows = rows[[name is not None for name in hostnames]]
    return rows, {"matchExpressions": [requirement(HOSTNAME_LABEL, Operator.IN, values)]}
