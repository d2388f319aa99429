"""A ranking as preferred terms: labels where they describe the nodes, else hostnames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.model.advice import MOST_NODES
from engine.model.count_text import counted
from engine.model.decision import Decision
from engine.model.ranking import Ranking
from engine.model.selectors import GREATEST_WEIGHT, NAME_FIELD, Operator
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.affinity import Requirement, requirement
from engine.placement.exclusion import Rejections
from engine.placement.groups import Groups, preferred_by_score
from engine.placement.hostnames import NOT_LISTABLE, Hostnames
from engine.placement.scheduler_sample import MOST_NAMES
from engine.placement.turns import Term, Turns
from engine.placement.weight_tiers import (
    WeightTier,
    candidate_cuts,
    named_positions,
    named_tiers,
    score_tiers,
)
from engine.plugins import PLUGINS, Score
from engine.view import ClusterView

_TAINTS: Final = PLUGINS["TaintToleration"]
assert _TAINTS.score is not None  # noqa: S101 - it is one
_SOFT_TAINTS: Final[Score] = _TAINTS.score(_TAINTS.args())
_AFFINITY: Final = PLUGINS["NodeAffinity"]
assert _AFFINITY.score is not None  # noqa: S101 - it is one
_PREFERRED: Final[Score] = _AFFINITY.score(_AFFINITY.args())
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
    """The preferred nodes.

    Attributes:
        terms: preferred terms as they stand in JSON, best nodes first; three at most.
        best_tier: rows of the most preferred nodes, best first; at least as many as are advised.
        left_out: how many nodes belong into a term but cannot be listed.
        turns: of pods that share the decision; None where their terms are the same.
    """

    terms: list[Term]
    best_tier: _Rows
    left_out: int
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

    Args:
        decision: a decision to place.
        view: the view it was decided on.
        hostnames: those of the view.
        rejections: those of the decision.
        total_weight: the sum of the weights on the best node.
        names: how many of the best to name where no label describes them; some more are named
            below them, `maxNodes` of the policy in all.
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
    hostnames, at = texts, decision.decided_at
    if _AFFINITY.ranks(decision.pod, view):
        wanted = _PREFERRED.score(decision.pod, view, at).values.take(chosen.rows)
        is_less = (wanted < wanted[: chosen.tiers[0][0].end].min()).tolist()
        hostnames = [None if less else name for less, name in zip(is_less, texts, strict=True)]
    turns = Turns(tuple(terms), hostnames, chosen.rows.tolist(), decision.names)
    return turns if sum(map(bool, hostnames)) > len(turns.lists[0]) else None


def _preferable(decision: Decision, view: ClusterView) -> Ranking:
    """Return the candidates that terms may prefer, with their totals.

    The scheduler takes nodes without soft taints as long as one fits: their 300 points outvote the
    200 that terms can give. Terms for others would be lost, and those named instead of them, too.
    """
    ranking = decision.ranking
    if not _TAINTS.ranks(decision.pod, view) or not len(ranking):
        return ranking
    taints = _SOFT_TAINTS.score(decision.pod, view, decision.decided_at).values.take(ranking.rows)
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
