"""Where one pod was bound, as each policy sees it that had a say.

A pod that is decided at its binding is compared exactly: the scheduler's own choice is known, and
the decision ranks both nodes. Of a pod that was advised only its advice is known, and so whether it
was followed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from engine.model.advice import Advice
from engine.model.decision import Decision
from engine.model.resource_names import CPU, MEMORY
from engine.plugins.load_aware.usage import capacity
from engine.policy import Mode
from engine.report import POINT
from engine.view import ClusterView

_MEASURED: Final = (CPU, MEMORY)


class LandingJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision on a binding says of the nodes, by one policy.

    Attributes:
        rank: of the node that the pod landed on, 1 where it shares the best total; 0 where it is no
            candidate.
        rules: names of the filters that reject it.
        points: of that node; None where the scores of the policy give no node any.
        best: of the node that was ranked first.
        is_denied: whether the binding would have been denied, so that the pod waits.
        chosen: points of the node that the policies give the pod, or would have; None without any.
        stock: of the node that the scheduler took, likewise.
        moved: whether that is another node.
        hot: whether the chosen node, and the scheduler's, is above the threshold of usage; None
            where the usage of either is unknown.
    """

    rank: int
    rules: tuple[str, ...] = ()
    points: int | None = None
    best: int = 0
    is_denied: bool = False
    chosen: int | None = None
    stock: int | None = None
    moved: bool = False
    hot: tuple[bool, bool] | None = None


class PolicyLanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod landed, as a policy sees it; points in hundredths, see `OutcomeFigures`.

    Attributes:
        policy: its name.
        mode: Enforce or Audit.
        landed: whether it landed on a node that the policy meant it for, or would have.
        judgement: what a decision at its binding says of the node; None where there was none.
    """

    policy: str
    mode: str
    landed: bool
    judgement: LandingJudgement | None = None


def advised_landings(advice: Advice, node_name: str, acting: Container[str]) -> list[PolicyLanding]:
    """Return where a pod landed that was advised when it was created.

    Anyone who may create a pod can write its advice, and so lie about it.

    Args:
        advice: of the pod; the nodes named in it are those that the pod was meant for.
        node_name: the node that it is bound to.
        acting: names of the policies in Enforce mode; others are left out.
    """
    landed = node_name in advice.nodes
    return [
        PolicyLanding(policy=name, mode=Mode.ENFORCE.value, landed=landed)
        for name in dict.fromkeys(advice.policies)
        if name in acting
    ]


def binding_landings(
    decision: Decision,
    mode: Mode,
    view: ClusterView,
    *,
    node_name: str,
    chosen: str,
    scheduler_node: str,
    hot_percent: int,
) -> list[PolicyLanding]:
    """Return where a pod lands that is decided at its binding, as each of the policies sees it.

    Args:
        decision: of policies in one mode.
        mode: that mode.
        view: the cluster without the pod.
        node_name: the node that the pod gets.
        chosen: the one that these policies give it, or would have; "" where they would have denied
            its binding.
        scheduler_node: the node that the scheduler took.
        hot_percent: of the CPU or memory that a node has before amplification, as LoadAware
            compares it; a node that uses more is hot.
    """
    row = view.rows.get(node_name)
    if row is None:
        return []
    compared = None
    if chosen in view.rows and scheduler_node in view.rows:
        compared = view.rows[chosen], view.rows[scheduler_node]
    hot = None if compared is None else _hot(view, compared, hot_percent)
    rank = _rank(decision, row)
    landings = []
    for policy in decision.policies:
        points = _points(decision, policy, (row, *decision.best(1).tolist(), *(compared or ())))
        judgement = LandingJudgement(
            rank=rank,
            rules=tuple(
                [
                    outcome.rule
                    for outcome in decision.filters
                    if outcome.policy == policy and outcome.rejects[row]
                ]
            ),
            points=points[0] if points else None,
            best=points[1] if points else 0,
            is_denied=not chosen,
            chosen=points[2] if points and compared else None,
            stock=points[3] if points and compared else None,
            moved=compared is not None and compared[0] != compared[1],
            hot=hot,
        )
        landings.append(
            PolicyLanding(
                policy=policy, mode=mode.value, landed=chosen == node_name, judgement=judgement
            )
        )
    return landings


def _hot(view: ClusterView, rows: Iterable[int], hot_percent: int) -> tuple[bool, bool] | None:
    """Return whether two nodes are above the threshold, None where one is not measured."""
    chosen, stock = (_is_hot(view, row, hot_percent) for row in rows)
    return None if chosen is None or stock is None else (chosen, stock)


def _is_hot(view: ClusterView, row: int, hot_percent: int) -> bool | None:
    report = view.usages[row]
    if report is None or report.usage is None:
        return None
    usage = report.usage
    offered = capacity(view, _MEASURED)[:, row].tolist()
    return any(
        100 * usage.get(name, 0) > hot_percent * amount
        for name, amount in zip(_MEASURED, offered, strict=True)
    )


def _rank(decision: Decision, row: int) -> int:
    """Return 1 more than the number of nodes with a better total; 0 for no candidate."""
    at = _position(decision, row)
    if at is None:
        return 0
    totals = decision.ranking.given_totals
    return 1 + int(np.count_nonzero(totals > totals[at]))


def _points(decision: Decision, policy: str, rows: Iterable[int]) -> Sequence[int]:
    """Return the points of rows by the scores of a policy; none where these give no node any.

    Each is the sum of points by weight over the sum of weights, rounded down.
    """
    scores = [score for score in decision.scored if score.policy == policy and not score.reason]
    weights = sum(score.weight for score in scores)
    if not weights or not len(decision.ranking):
        return ()
    points = []
    for row in rows:
        at = _position(decision, row)
        total = 0 if at is None else sum(s.weight * int(s.normalized[at]) for s in scores)
        points.append(total * POINT // weights)
    return points


def _position(decision: Decision, row: int) -> int | None:
    """Return where a row stands among the candidates, None if it is not among them."""
    found = (decision.ranking.rows == row).nonzero()[0]
    return int(found[0]) if found.size else None
