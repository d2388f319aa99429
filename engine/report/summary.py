"""One line on a decision: for the pod's annotation, the denial and the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from engine.model.decision import Decision
from engine.model.rule_outcomes import FilterOutcome, ScoreOutcome

_MOST_NODES = 3
_MOST_RULES = 3
_MOST_REASONS = 10


def summary(decision: Decision) -> str:
    """Return the decision in one line, with its reasons.

    `2 of 5 nodes fit, best node2, node4; left out: 2 LimitAware, 1 LoadAware`, or with the most
    common reasons if no node fits: `0 of 5 nodes fit; left out: 5 LimitAware (Insufficient ...)`.
    Rules that abstained come last: `...; abstained: LoadAware (usage is 95 s old)`.
    """
    return "; ".join([*_fit(decision), *_abstentions(decision)])


def _fit(decision: Decision) -> Iterator[str]:
    """Yield the number of nodes that fit, and the rules that rejected the others."""
    candidates = len(decision.ranking)
    nodes = candidates + sum(decision.first_rejections)
    if not nodes:
        yield "no node is known"
        return
    fit = f"{candidates} of {nodes} nodes fit"
    if candidates:
        fit += f", best {', '.join(_best_names(decision))}"
        counts = zip(decision.filters, decision.first_rejections, strict=True)
        left_out = [f"{nodes} {outcome.rule}" for outcome, nodes in counts if nodes]
    else:
        left_out = list(_reasons(decision))
    yield fit
    if left_out:
        yield f"left out: {', '.join(left_out)}"


def _abstentions(decision: Decision) -> Iterator[str]:
    """Yield the rules that abstained: for each set of stale sources the first few of them."""
    rules: dict[str, dict[str, None]] = {}
    applied: tuple[FilterOutcome | ScoreOutcome, ...] = (*decision.filters, *decision.scored)
    for rule in applied:
        if rule.abstained:
            rules.setdefault(", ".join(rule.abstained.values()), {})[rule.rule] = None
    abstentions = []
    for reason, names in rules.items():
        more = ["..."] if len(names) > _MOST_RULES else []
        abstentions.append(f"{', '.join([*islice(names, _MOST_RULES), *more])} ({reason})")
    if abstentions:
        yield f"abstained: {', '.join(abstentions)}"


def _best_names(decision: Decision) -> list[str]:
    """Return the first few nodes that share the best score."""
    ranking = decision.ranking
    best = ranking.given_totals.take(ranking.best(_MOST_NODES + 1)).tolist()
    shared = best.count(best[0])
    names = [decision.names[row] for row in decision.best(min(shared, _MOST_NODES)).tolist()]
    return [*names, "..."] if shared > _MOST_NODES else names


def _reasons(decision: Decision) -> Iterator[str]:
    """Yield the most common reasons for rejecting nodes, and the number of nodes with others.

    A cluster may have as many reasons as nodes, such as one taint each.
    """
    left_out = sorted(decision.rejection_summaries, key=lambda out: -out.nodes)
    for out in left_out[:_MOST_REASONS]:
        yield f"{out.nodes} {out.rule} ({out.reason})"
    if len(left_out) > _MOST_REASONS:
        yield f"{sum(out.nodes for out in left_out[_MOST_REASONS:])} for other reasons"
