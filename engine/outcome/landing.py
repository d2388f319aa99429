"""The judgement of one pod that was bound: its rank, its points, and what others would have got.

It is decided again, on the cluster as it is at its binding but without it. So nothing has to be
kept of the decision at its admission, whichever replica made it, and what that decision could not
know yet counts as well: advice ages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
import numpy as np

from engine.model.advice import advice_in
from engine.model.decision import Decision, Verdict
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.model.resource_names import CPU, MEMORY
from engine.model.time import Micros
from engine.pipeline import Scope, decide
from engine.plugins.load_aware.usage import capacity
from engine.policy import PolicySet
from engine.report import POINT
from engine.view import ClusterView, Freshness, PodEntry, WhatIf

StockChoice: TypeAlias = Callable[[PlacementRequest, ClusterView, Micros], str]
"""The node that a model of the stock scheduler takes for a pod, "" for none."""

_MEASURED: Final = (CPU, MEMORY)


class BoundPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was bound.

    Attributes:
        request: the pod as it was submitted.
        node_name: the node that it is bound to.
        entries: how it counts there, by `namespace/name`, and whoever was bound after it; none for
            those that do not count any more.
    """

    request: PlacementRequest
    node_name: str
    entries: Sequence[tuple[str, PodEntry]]


class PolicyLanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pod landed, as a policy sees it; points in hundredths, see `OutcomeFigures`.

    Attributes:
        policy: its name.
        mode: Enforce or Audit.
        rank: 1 for a node that shares the best total; 0 where it is no candidate.
        is_denied: whether the policies would have denied the pod.
        rules: names of its filters that reject the node.
        points: of the node; None where its scores give no node any.
        best: of the node that was ranked first.
        stock: of the node that the model of the stock scheduler takes; None without one.
        moved: whether that is another node.
        hot: whether the node, and that of the model, is above the threshold of usage; None where
            the usage of either is unknown.
    """

    policy: str
    mode: str
    rank: int
    is_denied: bool = False
    rules: tuple[str, ...] = ()
    points: int | None = None
    best: int = 0
    stock: int | None = None
    moved: bool = False
    hot: tuple[bool, bool] | None = None


def meant_nodes(pod: Pod) -> tuple[str, ...]:
    """Return the nodes that a bound pod was meant for; none where it was not advised or nominated.

    Anyone who may create a pod can write what this is read from, and so lie about it.
    """
    released = pod.annotations.get(RELEASED_ANNOTATION, "")
    advice = advice_in(pod.annotations)
    if released:
        return () if " " in released else (released,)  # else a reason why there is no node
    return () if advice is None else advice.nodes


class Judge:
    """Judges bound pods.

    Args:
        scope: the pods that policies place.
        stock: what a model of the stock scheduler takes; it obeys what filters promise, as that is
            in the required affinity of the pod.
        hot_percent: of the CPU or memory that a node has before amplification, as LoadAware
            compares it; a node that uses more is hot.
    """

    def __init__(self, scope: Scope, stock: StockChoice | None, *, hot_percent: int) -> None:
        self._scope = scope
        self._stock = stock
        self._hot_percent = hot_percent

    def judge(
        self,
        bound: BoundPod,
        policies: PolicySet,
        view: ClusterView,
        now: Micros,
        freshness: Freshness,
    ) -> list[PolicyLanding]:
        """Return where a pod landed as each policy sees it that applies to it.

        Args:
            bound: the pod, which counts in the view.
            policies: those in force.
            view: the cluster with it.
            now: the moment at which ages of measurements are judged.
            freshness: the domains of the view that are too old.
        """
        without = _without(bound, view)
        decision = decide(
            bound.request, policies, without, now, scope=self._scope, freshness=freshness
        )
        row = without.rows.get(bound.node_name)
        if row is None:
            return []
        stock_row = None
        if decision.policies and self._stock is not None:
            stock_row = without.rows.get(self._stock(bound.request, without, now))
        return self._landings(decision, decision.audit, policies, without, (row, stock_row))

    def judge_binding(
        self,
        decision: Decision | None,
        audit: Decision | None,
        policies: PolicySet,
        view: ClusterView,
        *,
        node_name: str,
        scheduler_node: str,
    ) -> list[PolicyLanding]:
        """Return where a pod lands that is decided at its binding, as each policy sees it.

        Nothing is decided again, and no model is asked: the scheduler has said what it takes.

        Args:
            decision: by the policies in Enforce mode, None where they decide nothing.
            audit: by those in Audit mode, likewise.
            policies: those in force.
            view: the cluster without the pod.
            node_name: the node that it gets.
            scheduler_node: the node that the scheduler took.
        """
        row = view.rows.get(node_name)
        if row is None:
            return []
        rows = row, view.rows.get(scheduler_node)
        return self._landings(decision, audit, policies, view, rows)

    def _landings(
        self,
        decision: Decision | None,
        audit: Decision | None,
        policies: PolicySet,
        view: ClusterView,
        rows: tuple[int, int | None],
    ) -> list[PolicyLanding]:
        """Return where a pod landed; the rows are that of its node and that of the scheduler's."""
        row, stock_row = rows
        hot = None if stock_row is None else self._hot(view, row, stock_row)
        modes = {policy.name: str(policy.mode) for policy in policies}
        landings = []
        for made, stock_took in ((decision, stock_row), (audit, None)):
            if made is not None:
                seen = _Seen(made, row, stock_took)
                landings += [seen.by(policy, modes[policy], hot) for policy in made.policies]
        return landings

    def _hot(self, view: ClusterView, row: int, stock_row: int) -> tuple[bool, bool] | None:
        """Return whether two nodes are above the threshold, None where one is not measured."""
        both = self._is_hot(view, row), self._is_hot(view, stock_row)
        return None if both[0] is None or both[1] is None else (both[0], both[1])

    def _is_hot(self, view: ClusterView, row: int) -> bool | None:
        report = view.usages[row]
        if report is None or report.usage is None:
            return None
        usage = report.usage
        offered = capacity(view, _MEASURED)[:, row].tolist()
        return any(
            100 * usage.get(name, 0) > self._hot_percent * amount
            for name, amount in zip(_MEASURED, offered, strict=True)
        )


class _Seen:
    """A decision for a pod, and the rows of the nodes that are compared.

    Args:
        decision: by policies that apply to it.
        row: of the node that it landed on.
        stock_row: of the one that the model of the stock scheduler takes, None for none.
    """

    def __init__(self, decision: Decision, row: int, stock_row: int | None) -> None:
        self._decision = decision
        self._row = row
        self._stock_row = stock_row

    def by(self, policy: str, mode: str, hot: tuple[bool, bool] | None) -> PolicyLanding:
        """Return where the pod landed as a policy sees it."""
        decision, row, stock_row = self._decision, self._row, self._stock_row
        points = self._points(policy, (row, *([] if stock_row is None else [stock_row])))
        best = self._points(policy, decision.best(1).tolist())
        return PolicyLanding(
            policy=policy,
            mode=mode,
            rank=self._rank(),
            is_denied=decision.verdict is Verdict.DENY,
            rules=tuple(
                [
                    outcome.rule
                    for outcome in decision.filters
                    if outcome.policy == policy and outcome.rejects[row]
                ]
            ),
            points=points[0] if points else None,
            best=best[0] if best else 0,
            stock=points[1] if points and stock_row is not None else None,
            moved=stock_row is not None and stock_row != row,
            hot=hot if stock_row is not None else None,
        )

    def _rank(self) -> int:
        """Return 1 more than the number of nodes with a better total; 0 for no candidate."""
        at = _position(self._decision, self._row)
        if at is None:
            return 0
        totals = self._decision.ranking.given_totals
        return 1 + int(np.count_nonzero(totals > totals[at]))

    def _points(self, policy: str, rows: Iterable[int]) -> Sequence[int]:
        """Return the points of rows by the scores of a policy; none where these give no node any.

        Each is the sum of points by weight over the sum of weights, rounded down.
        """
        scores = [
            score for score in self._decision.scored if score.policy == policy and not score.reason
        ]
        weights = sum(score.weight for score in scores)
        if not weights or not len(self._decision.ranking):
            return ()
        points = []
        for row in rows:
            at = _position(self._decision, row)
            total = 0 if at is None else sum(s.weight * int(s.normalized[at]) for s in scores)
            points.append(total * POINT // weights)
        return points


def _position(decision: Decision, row: int) -> int | None:
    """Return where a row stands among the candidates, None if it is not among them."""
    found = (decision.ranking.rows == row).nonzero()[0]
    return int(found[0]) if found.size else None


def _without(bound: BoundPod, view: ClusterView) -> ClusterView:
    """Return the cluster as it was before the pod was bound."""
    what_if = WhatIf(view)
    what_if.remove(bound.entries)
    return what_if.view
