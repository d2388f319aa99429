"""A decision for people and machines: one line, or everything as plain JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from engine.model.decision import SCHEDULER, Decision, FilterOutcome, ScoreOutcome
from engine.model.quantity import amount_text
from engine.model.time import date

_NAMED_NODES = 3
_NAMED_RULES = 3
_TOLD_REASONS = 10


def summary(decision: Decision) -> str:
    """Return one line that says what was decided and why.

    `2 of 5 nodes fit, best node2, node4; left out: 2 LimitAware, 1 LoadAware`, or with the most
    common reasons where it matters: `0 of 5 nodes fit; left out: 5 LimitAware (Insufficient ...)`.
    Rules that abstained come last: `...; abstained: LoadAware (usage is 95 s old)`.
    """
    if not decision.filters:
        return decision.message  # it was settled without a look at the nodes
    return "; ".join([*_fit(decision), *_abstentions(decision)])


def _fit(decision: Decision) -> Iterator[str]:
    """Yield how many nodes fit, and what the others were left out for."""
    candidates = decision.candidates.size
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
    """Yield which rules abstained: for each set of stale things the first few of them."""
    rules: dict[str, dict[str, None]] = {}
    applied: tuple[FilterOutcome | ScoreOutcome, ...] = (*decision.filters, *decision.scored)
    for rule in applied:
        if rule.abstained:
            rules.setdefault(", ".join(rule.abstained.values()), {})[rule.rule] = None
    told = []
    for reason, names in rules.items():
        more = ["..."] if len(names) > _NAMED_RULES else []
        told.append(f"{', '.join([*islice(names, _NAMED_RULES), *more])} ({reason})")
    if told:
        yield f"abstained: {', '.join(told)}"


def explanation(
    decision: Decision, *, most_nodes: int | None = None, most_inputs: int | None = 0
) -> dict[str, Any]:
    """Return the whole decision as plain JSON values.

    Args:
        decision: what to explain.
        most_nodes: how many candidates, and how many rejected nodes (any of them), to list;
            None for all.
        most_inputs: of how many of these to tell what they were judged by. That takes some 30
            microseconds per node and rule, so there is none unless it is asked for.
    """
    told = {
        "pod": {"namespace": decision.pod.namespace, "name": decision.pod.display_name},
        "verdict": decision.verdict.value,
        "message": decision.message,
        "policies": list(decision.policies),
        "estimate": {name: amount_text(name, n) for name, n in decision.estimate.items()},
        "nodes": int(np.count_nonzero(decision.valid)),
        "candidates": int(decision.candidates.size),
        "ranking": list(_ranking(decision, most_nodes)),
        "rejected": dict(_rejected(decision, most_nodes)),
        "rejectedBy": [
            {
                "policy": out.policy or "scheduler",
                "rule": out.rule,
                "reason": out.reason,
                "nodes": out.nodes,
            }
            for out in decision.rejection_summaries
        ],
        "abstained": [
            {"policy": policy or "scheduler", "rule": rule, "reason": reason}
            for policy, rule, reason in _without_a_say(decision)
        ],
        "errors": list(decision.errors),
        "decidedAt": date(decision.decided_at).isoformat(),
        "viewVersion": decision.view_version,
        "ageSeconds": dict(decision.ages),
    }
    if most_inputs != 0:
        told["inputs"] = {
            decision.names[row]: list(_inputs(decision, row))
            for row in (
                *decision.candidates[:most_nodes][:most_inputs].tolist(),
                *_rejected_rows(decision, most_nodes)[:most_inputs],
            )
        }
    if decision.audit is not None:
        told["audit"] = explanation(decision.audit, most_nodes=most_nodes, most_inputs=most_inputs)
    return told


def _without_a_say(decision: Decision) -> Iterator[tuple[str, str, str]]:
    """Yield the policy and the name of each rule that decided nothing, and why.

    A filter and a score of one plugin read the same, so they are told once.
    """
    filters = (
        (outcome.policy, outcome.rule, ", ".join(outcome.abstained.values()))
        for outcome in decision.filters
        if outcome.abstained
    )
    scores = ((score.policy, score.rule, score.reason) for score in decision.scored if score.reason)
    yield from dict.fromkeys((*filters, *scores))


def _best_names(decision: Decision) -> list[str]:
    """Return the first few nodes that share the best score."""
    best = decision.totals[: _NAMED_NODES + 1].tolist()
    shared = best.count(best[0])
    names = [decision.names[row] for row in decision.candidates[:shared].tolist()]
    return [*names[:_NAMED_NODES], "..."] if shared > _NAMED_NODES else names


def _reasons(decision: Decision) -> Iterator[str]:
    """Yield the most common reasons for which nodes were turned away, and how many more there are.

    A cluster may have as many reasons as nodes: one taint each, say.
    """
    left_out = sorted(decision.rejection_summaries, key=lambda out: -out.nodes)
    for out in left_out[:_TOLD_REASONS]:
        yield f"{out.nodes} {out.rule} ({out.reason})"
    if len(left_out) > _TOLD_REASONS:
        yield f"{sum(out.nodes for out in left_out[_TOLD_REASONS:])} for other reasons"


def _ranking(decision: Decision, most: int | None) -> Iterator[dict[str, Any]]:
    rows, totals = decision.candidates[:most].tolist(), decision.totals[:most].tolist()
    columns = [
        (score, score.raw.tolist(), score.normalized.tolist())
        for score in decision.best_scores(most)
    ]
    for i, (row, total) in enumerate(zip(rows, totals, strict=True)):
        yield {
            "node": decision.names[row],
            "total": total,
            "scores": [
                {
                    "policy": score.policy,
                    "rule": score.rule,
                    "raw": raw[i],
                    "normalized": normalized[i],
                    "weight": score.weight,
                    "weighted": normalized[i] * score.weight,
                }
                for score, raw, normalized in columns
            ],
        }


def _rejected(decision: Decision, most: int | None) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each rejected node, by name, with every rule that turned it away."""
    for row in _rejected_rows(decision, most):
        yield (
            decision.names[row],
            [
                {
                    "policy": outcome.policy or "scheduler",
                    "rule": outcome.rule,
                    "reason": outcome.reason(row),
                }
                for outcome in decision.filters
                if outcome.rejects[row]
            ],
        )


def _rejected_rows(decision: Decision, most: int | None) -> list[int]:
    """Return the rows of rejected nodes, by name; of too many any."""
    rejected = np.zeros(decision.valid.size, np.bool_)
    for outcome in decision.filters:
        rejected |= outcome.rejects
    rows = np.flatnonzero(rejected & decision.valid)[:most].tolist()
    return sorted(rows, key=lambda row: decision.names[row])


def _inputs(decision: Decision, row: int) -> Iterator[dict[str, Any]]:
    """Yield what a node was judged by: the rules that turned it away, or else all of the policies.

    A filter and a score that were given the same are told once.
    """
    rules: list[FilterOutcome | ScoreOutcome] = []
    rules += (outcome for outcome in decision.filters if outcome.rejects[row])
    if not rules:
        rules += (outcome for outcome in decision.filters if outcome.policy != SCHEDULER)
        rules += decision.scored
    told: list[dict[str, Any]] = []
    for rule in rules:
        inputs = [msgspec.to_builtins(value) for value in rule.inputs(row)]
        one = {"policy": rule.policy or "scheduler", "rule": rule.rule, "inputs": inputs}
        if inputs and one not in told:
            told.append(one)
            yield one
