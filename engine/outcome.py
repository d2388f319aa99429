"""What became of decisions: where pods were bound, as the policies see it that had a say.

What belongs here: what a decision at a binding says of the node, and of the scheduler's; whether
advice was followed; the figures of policies in a window of time; and whether a policy makes things
worse. What never does: how bindings are seen, where figures are stored, what follows from them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from engine.errors import counted
from engine.model.decision import Advice, Decision
from engine.model.policy_resource import WhenNoneFits
from engine.model.quantity import CPU, MEMORY
from engine.model.time import SECOND, Micros, date
from engine.plugins.load_aware.estimation import capacity
from engine.policy import CompiledPolicy, Mode, PolicySet
from engine.report import (
    POINT,
    RANK_BOUNDS,
    AuditedPolicy,
    NamespaceOutcome,
    OutcomeFigures,
    OutcomeReport,
    PolicyOutcome,
    RuleOutcome,
)
from engine.view import ClusterView

# Where one pod was bound, as each policy sees it that had a say.
#
# A pod that is decided at its binding is compared exactly: the scheduler's own choice is known, and
# the decision ranks both nodes. Of a pod that was advised only its advice is known, and so whether
# it was followed.


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


MOST_SERIES: Final = 200
"""Policies in a mode times namespaces; tenants may create namespaces. The rest counts for ""."""

_REST: Final = ""

_AMOUNTS: Final = tuple([name for name in OutcomeFigures.__struct_fields__ if name != "ranks"])


class Series(NamedTuple):
    """The pods that are counted together."""

    policy: str
    mode: str
    namespace: str


class RuleSeries(NamedTuple):
    """The pods that landed on a node which a filter rejects."""

    policy: str
    mode: str
    rule: str


class OutcomeCounts:
    """Figures that only grow."""

    def __init__(self) -> None:
        self.figures: dict[Series, OutcomeFigures] = {}
        self.rules: dict[RuleSeries, int] = {}

    def add(self, namespace: str, landings: Iterable[PolicyLanding]) -> None:
        """Count one pod of a namespace, as each policy sees where it landed."""
        for landing in landings:
            figures = self._figures(Series(landing.policy, landing.mode, namespace))
            figures.pods += 1
            figures.landed += landing.landed
            judgement = landing.judgement
            if judgement is None:
                continue
            _count(figures, judgement)
            for rule in judgement.rules:
                key = RuleSeries(landing.policy, landing.mode, rule)
                self.rules[key] = self.rules.get(key, 0) + 1

    def merge(
        self, figures: Mapping[Series, OutcomeFigures], rules: Mapping[RuleSeries, int]
    ) -> None:
        """Add the figures of others."""
        for series, more in figures.items():
            _merge(self._figures(series), more)
        for key, pods in rules.items():
            self.rules[key] = self.rules.get(key, 0) + pods

    def _figures(self, series: Series) -> OutcomeFigures:
        known = self.figures.get(series)
        if known is None:
            if len(self.figures) >= MOST_SERIES:
                series = series._replace(namespace=_REST)
            known = self.figures.setdefault(series, OutcomeFigures())
        return known


def total_of(figures: Iterable[OutcomeFigures]) -> OutcomeFigures:
    """Return the sum of figures."""
    total = OutcomeFigures()
    for more in figures:
        _merge(total, more)
    return total


def _count(figures: OutcomeFigures, judgement: LandingJudgement) -> None:
    figures.decided += 1
    figures.denied += judgement.is_denied
    figures.moved += judgement.moved
    if judgement.rank:
        figures.rank_total += judgement.rank
        band = bisect_left(RANK_BOUNDS, judgement.rank)
        figures.ranks = tuple(count + (at == band) for at, count in enumerate(figures.ranks))
    else:
        figures.rejected += 1
    if judgement.hot is not None:
        figures.measured += 1
        figures.hot += judgement.hot[0]
        figures.stock_hot += judgement.hot[1]
    if judgement.points is not None:
        figures.scored += 1
        figures.points += judgement.points
        figures.best += judgement.best
    if judgement.chosen is not None and judgement.stock is not None:
        figures.compared += 1
        figures.compared_points += judgement.chosen
        figures.stock_points += judgement.stock


def _merge(figures: OutcomeFigures, more: OutcomeFigures) -> None:
    for name in _AMOUNTS:
        setattr(figures, name, getattr(figures, name) + getattr(more, name))
    figures.ranks = tuple(a + b for a, b in zip(figures.ranks, more.ranks, strict=True))


class WorseRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a policy makes things worse.

    Attributes:
        least_pods: that must have been decided at their binding and compared; fewer say nothing.
        margin: points by its own scores that its pods have less, or percent of its pods that are
            more on hot nodes, than with the stock scheduler.
    """

    least_pods: int
    margin: int


def why_worse(figures: OutcomeFigures, rules: WorseRules) -> str:
    """Return why a policy makes things worse, "" if it does not.

    Args:
        figures: of its pods in Enforce mode.
        rules: when it does.
    """
    gained, more = figures.mean_gained, figures.hot_percent_more
    if figures.compared >= rules.least_pods and gained is not None and gained <= -rules.margin:
        return (
            f"its pods landed on nodes with {-gained:.1f} points less by its own scores than those"
            f" of the stock scheduler, over {counted(figures.compared, 'pod')}"
        )
    if figures.measured >= rules.least_pods and more is not None and more >= rules.margin:
        return (
            f"{more:.1f} % more of its pods landed on hot nodes than with the stock scheduler, over"
            f" {counted(figures.measured, 'pod')}"
        )
    return ""


def may_be_audited(policy: CompiledPolicy) -> bool:
    """Return whether nothing is lost but preferences if a policy stops acting.

    A filter on node labels is a promise, and so is a denial: who may lift it is not ours to say.
    """
    denies = policy.placement.when_none_fits is WhenNoneFits.DENY
    return not denies and all(rule.dynamic for rule in policy.filters)


STEPS: Final = 6
"""Of which a window consists; it ends up to one of them early."""


class StepState(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of one step, by policy, mode and namespace, or rule."""

    start: int  # microseconds since the epoch
    figures: list[tuple[Series, OutcomeFigures]] = []
    rules: list[tuple[RuleSeries, int]] = []


class WindowState(msgspec.Struct, frozen=True):
    """A window as it is stored, for whoever counts next."""

    steps: list[StepState] = []


class _Step:
    def __init__(self, start: Micros) -> None:
        self.start = start
        self.counts = OutcomeCounts()


class OutcomeWindow:
    """Figures of the last `seconds`.

    Args:
        seconds: the length of the window.
        state: what another replica has counted, if there was one.
    """

    def __init__(self, seconds: int, state: WindowState | None = None) -> None:
        self._seconds = seconds
        self._steps = [_restored(step) for step in (state.steps[-STEPS:] if state else ())]
        self._until = Micros(0)

    def add(self, namespace: str, landings: Iterable[PolicyLanding], now: Micros) -> None:
        """Count one pod; see `OutcomeCounts.add`."""
        self._step(now).counts.add(namespace, landings)

    def forget(self, policy: str) -> None:
        """Forget what a policy did: it is about to act otherwise."""
        for step in self._steps:
            counts = step.counts
            for series in [key for key in counts.figures if key.policy == policy]:
                del counts.figures[series]
            for rule in [key for key in counts.rules if key.policy == policy]:
                del counts.rules[rule]

    def state(self) -> WindowState:
        """Return what is to be stored."""
        return WindowState(
            [
                StepState(
                    step.start,
                    [(key, replace(each)) for key, each in step.counts.figures.items()],
                    list(step.counts.rules.items()),
                )
                for step in self._steps
            ]
        )

    def report(
        self,
        now: Micros,
        policies: PolicySet,
        rules: WorseRules,
        audited: Mapping[str, AuditedPolicy] = MappingProxyType({}),
    ) -> OutcomeReport:
        """Return the figures of the window.

        Args:
            now: the moment.
            policies: those in force; others are left out.
            rules: when a policy makes things worse.
            audited: policies that are in Audit mode for what they did, by name.
        """
        self._expire(now)
        total = OutcomeCounts()
        for step in self._steps:
            total.merge(step.counts.figures, step.counts.rules)
        names = {policy.name for policy in policies}
        seen = {(key.mode != _ENFORCE, key.policy, key.mode) for key in total.figures}
        return OutcomeReport(
            since=_text(self._steps[0].start) if self._steps else "",
            until=_text(self._until) if self._steps and self._until else "",
            window_seconds=self._seconds,
            policies=tuple(
                [
                    _outcome(name, mode, total, policies, rules)
                    for _, name, mode in sorted(seen)
                    if name in names
                ]
            ),
            audited=audited,
        )

    def _step(self, now: Micros) -> _Step:
        """Return the step of a moment, the latest there is if the clock was set back."""
        self._expire(now)
        length = self._seconds * SECOND // STEPS
        start = Micros(now - now % length)
        if not self._steps or start > self._steps[-1].start:
            self._steps.append(_Step(start))
        self._until = now
        return self._steps[-1]

    def _expire(self, now: Micros) -> None:
        oldest = now - self._seconds * SECOND
        self._steps = [step for step in self._steps if oldest <= step.start <= now]


_ENFORCE: Final = Mode.ENFORCE.value


def _restored(state: StepState) -> _Step:
    step = _Step(Micros(state.start))
    step.counts.merge(dict(state.figures), dict(state.rules))
    return step


def _outcome(
    name: str,
    mode: str,
    counts: OutcomeCounts,
    policies: PolicySet,
    rules: WorseRules,
) -> PolicyOutcome:
    figures = {
        series.namespace: each
        for series, each in counts.figures.items()
        if (series.policy, series.mode) == (name, mode)
    }
    filters = next(policy.filters for policy in policies if policy.name == name)
    pods = [(rule.name, counts.rules.get(RuleSeries(name, mode, rule.name), 0)) for rule in filters]
    total = total_of(figures.values())
    return PolicyOutcome(
        policy=name,
        mode=mode,
        total=total,
        namespaces=tuple(
            [NamespaceOutcome(namespace=key, figures=figures[key]) for key in sorted(figures)]
        ),
        rules=tuple([RuleOutcome(rule=rule, pods=count) for rule, count in pods if count]),
        worse=why_worse(total, rules) if mode == _ENFORCE else "",
    )


def _text(moment: Micros) -> str:
    return f"{date(moment):%Y-%m-%dT%H:%M:%SZ}"
