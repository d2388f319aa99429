"""A decision for people and machines: one line, or everything as plain JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from engine.model.decision import Decision, Verdict
from engine.model.quantity import amount_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED_NODES = 3


def summary(decision: Decision) -> str:
    """Return one line that says what was decided and why.

    `2 of 5 nodes fit, best node2, node4; 3 left out: 2 LimitAware (Insufficient cpu limit), ...`
    """
    nodes = np.count_nonzero(decision.valid)
    left_out = ", ".join(f"{out.nodes} {out.rule} ({out.reason})" for out in decision.left_out)
    if decision.verdict is Verdict.PLACE:
        best = ", ".join(_best_names(decision))
        line = f"{decision.candidates.size} of {nodes} nodes fit, best {best}"
    elif nodes:
        line = f"0 of {nodes} nodes fit"
    else:
        return decision.message or "no node is known"
    return f"{line}; left out: {left_out}" if left_out else line


def explanation(decision: Decision, *, most_nodes: int | None = None) -> dict[str, Any]:
    """Return the whole decision as plain JSON values.

    Args:
        decision: what to explain.
        most_nodes: how many candidates, and how many rejected nodes (any of them), to list;
            None for all.
    """
    told = {
        "pod": {"namespace": decision.pod.namespace, "name": decision.pod.display_name},
        "verdict": decision.verdict.value,
        "message": decision.message,
        "policies": list(decision.policies),
        "estimate": {name: amount_text(name, n) for name, n in decision.estimate.items()},
        "nodes": int(decision.valid.sum()),
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
            for out in decision.left_out
        ],
        "errors": list(decision.errors),
        "decidedAt": (_EPOCH + timedelta(microseconds=decision.decided_at)).isoformat(),
        "viewVersion": decision.view_version,
    }
    if decision.audit is not None:
        told["audit"] = explanation(decision.audit, most_nodes=most_nodes)
    return told


def _best_names(decision: Decision) -> list[str]:
    """Return the first few nodes that share the best score."""
    best = np.count_nonzero(decision.totals == decision.totals[0])
    rows = decision.candidates[: min(best, _NAMED_NODES)].tolist()
    names = [decision.names[row] for row in rows]
    return [*names, "..."] if best > _NAMED_NODES else names


def _ranking(decision: Decision, most: int | None) -> Iterator[dict[str, Any]]:
    for i, row in enumerate(decision.candidates[:most].tolist()):
        yield {
            "node": decision.names[row],
            "total": int(decision.totals[i]),
            "scores": [
                {
                    "policy": score.policy,
                    "rule": score.rule,
                    "raw": score.raw[i].item(),
                    "normalized": int(score.normalized[i]),
                    "weight": score.weight,
                    "weighted": int(score.normalized[i]) * score.weight,
                }
                for score in decision.scores
            ],
        }


def _rejected(decision: Decision, most: int | None) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield each rejected node, by name, with every rule that turned it away."""
    rejected = np.zeros(decision.valid.size, np.bool_)
    for outcome in decision.filters:
        rejected |= outcome.rejects
    rows = np.flatnonzero(rejected & decision.valid)[:most].tolist()
    for row in sorted(rows, key=lambda row: decision.names[row]):
        yield (
            decision.names[row],
            [
                {
                    "policy": outcome.policy or "scheduler",
                    "rule": outcome.rule,
                    "reason": outcome.reasons.get(int(outcome.codes[row]), ""),
                }
                for outcome in decision.filters
                if outcome.rejects[row]
            ],
        )
