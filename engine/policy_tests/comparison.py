"""The comparison of a decision with what a case expects, in words."""

from __future__ import annotations

from collections.abc import Iterator

from engine.model.count_text import counted
from engine.model.decision import Decision
from engine.policy_tests.cases import Expectation

_MOST_NAMED = 8  # of candidates in a line


def failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    """Yield a line for each expectation that a decision does not meet."""
    if expect.verdict is not None and decision.verdict is not expect.verdict:
        yield f"verdict: expected {expect.verdict}, got {decision.verdict} ({decision.message})"
    if expect.message is not None and expect.message not in decision.message:
        yield f"message: expected `{expect.message}` in `{decision.message}`"
    yield from _ranking_failures(expect, decision)
    yield from _rejection_failures(expect, decision)
    yield from _score_failures(expect, decision)
    for text in expect.errors:
        if not any(text in error for error in decision.errors):
            got = "; ".join(decision.errors) or "no error"
            yield f"errors: expected `{text}`, got {got}"


def causes(expect: Expectation, decision: Decision) -> Iterator[str]:
    """Yield what may explain that a decision does not meet an expectation, a line each.

    That is what could not be evaluated, why an expected node is not a candidate, and why a score
    does not count.
    """
    yield from decision.errors
    scored = (node for points in expect.scores.values() for node in points)
    candidates = _names(decision)
    for node in dict.fromkeys((*expect.best, *expect.order, *scored)):
        if node not in candidates:
            yield f"{node} is not a candidate: {_absence(node, decision)}"
    for score in decision.scores:
        if score.reason and not score.faults:
            yield f"{score.rule} has no effect: {score.reason}"


def _ranking_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    totals = dict(zip(_names(decision), decision.totals.tolist(), strict=True))
    best = {name for name, total in totals.items() if total == max(totals.values())}
    if expect.best and best != set(expect.best):
        yield f"best: expected {', '.join(expect.best)}, got {_ranking(totals)}"
    ranked = [totals.get(name, -1) for name in expect.order]
    if -1 in ranked or ranked != sorted(set(ranked), reverse=True):
        yield f"order: expected {', '.join(expect.order)}, got {_ranking(totals)}"


def _ranking(totals: dict[str, int]) -> str:
    """Return candidates with their points; those that share the most together."""
    if not totals:
        return "no candidate"
    most = max(totals.values())
    best = [name for name, total in totals.items() if total == most]
    others = [f"{name} {total}" for name, total in totals.items() if total != most]
    each = " each" if len(best) > 1 else ""
    first = f"{' and '.join(_some(best))} with {counted(most, 'point')}{each}"
    return ", ".join([first, *_some(others)])


def _some(names: list[str]) -> list[str]:
    more = len(names) - _MOST_NAMED
    return [*names[:_MOST_NAMED], f"{more} more"] if more > 0 else names


def _rejection_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    for node, text in expect.rejected.items():
        reasons = _rejections(node, decision)
        if not any(text in reason for reason in reasons):
            got = "; ".join(reasons) or (
                "no rejection" if node in decision.names else "no such node"
            )
            yield f"rejected: expected `{text}` for {node}, got {got}"


def _rejections(node: str, decision: Decision) -> list[str]:
    """Return why a node was rejected, by each filter that did."""
    if node not in decision.names:
        return []
    row = decision.names.index(node)
    return [
        f"{outcome.rule}: {outcome.reason(row)}"
        for outcome in decision.filters
        if outcome.rejects[row]
    ]


def _absence(node: str, decision: Decision) -> str:
    """Return why a node is not a candidate."""
    if node not in decision.names:
        return "the cluster has no such node"
    return "; ".join(_rejections(node, decision)) or decision.message


def _score_failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    scores = {score.rule: score for score in decision.scores}
    names = _names(decision)
    for rule, wanted in expect.scores.items():
        if rule not in scores:
            known = ", ".join(scores) or "none"
            yield f"scores: there is no score {rule} (those that apply: {known})"
            continue
        got = dict(zip(names, scores[rule].normalized.tolist(), strict=True))
        for node, points in wanted.items():
            if got.get(node) != points:
                expected = counted(points, "point")
                what = counted(got[node], "point") if node in got else "none: it is not a candidate"
                yield f"scores: expected {rule} to give {node} {expected}, got {what}"


def _names(decision: Decision) -> list[str]:
    """Return the candidates, best first."""
    return [decision.names[row] for row in decision.candidates.tolist()]
