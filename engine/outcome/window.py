"""The latest part of the figures: a window of time that moves on in steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from engine.model.time import SECOND, Micros, date
from engine.outcome.figures import OutcomeCounts, RuleSeries, Series, total_of
from engine.outcome.landing import PolicyLanding
from engine.outcome.verdict import WorseRules, why_worse
from engine.policy import Mode, PolicySet
from engine.report import (
    AuditedPolicy,
    NamespaceOutcome,
    OutcomeFigures,
    OutcomeReport,
    PolicyOutcome,
    RuleOutcome,
)

STEPS: Final = 6
"""Of which a window consists; it ends up to one of them early."""


class StepState(msgspec.Struct, frozen=True, rename="camel"):
    """The figures of one step, by policy, mode and namespace, or rule.

    Attributes:
        start: microseconds since the epoch.
    """

    start: int
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
