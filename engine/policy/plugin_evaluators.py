"""Plugins as rules evaluate them: `PluginFilter` and `PluginScore`.

They have the same methods as `engine.policy.expressions.FilterExpression` and `ScoreExpression`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.rule_input import RuleInputs
from engine.model.rule_outcomes import FilterResult
from engine.plugins import (
    BoolMatrix,
    Filter,
    Plugin,
    ReadsAllNodes,
    Score,
    ScoreAmong,
    StackingFilter,
    StackingScore,
)
from engine.policy.context import RuleContext
from engine.view import BoolColumn, ClusterView, Domain, IntColumn

_P = TypeVar("_P", bound=Filter | Score)


@dataclass(frozen=True, slots=True)
class _PluginEvaluator(Generic[_P]):
    """A plugin by its args, and the entry of the registry that it is built from."""

    plugin: _P
    entry: Plugin

    @property
    def reads(self) -> tuple[Domain, ...]:
        """The domains of the cluster that its answers rest on."""
        return self.entry.reads

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether an answer for a node rests on more than its row; see `Plugin`."""
        return self.entry.reads_other_nodes(context.pod, context.view)

    def fault(self, context: RuleContext, row: int) -> str:
        """Return why a row could not be evaluated."""
        return self.plugin.fault(context.pod, context.view, row)

    def inputs(self, context: RuleContext, row: int) -> RuleInputs:
        """Return the values that the formula used for a row."""
        return self.plugin.inputs(context.pod, context.view, row, context.now)


class PluginFilter(_PluginEvaluator[Filter]):
    """A filter by a plugin."""

    __slots__ = ()

    def filter(self, context: RuleContext) -> FilterResult:
        """Return the code of each row."""
        return self.plugin.filter(context.pod, context.view, context.now)

    def rejects_for(
        self, contexts: Sequence[RuleContext]
    ) -> Callable[[ClusterView], BoolMatrix | None] | None:
        """Prepare the nodes that it rejects for each of several pods, of one view after the other.

        None if that is not possible at once.

        Args:
            contexts: of one moment.

        Returns:
            Gives them, (len(contexts), n); None if some node cannot be judged.
        """
        plugin, now = self.plugin, contexts[0].now
        if not isinstance(plugin, StackingFilter):
            return None
        alike = [(pods[0], plugin.amounts(pods), at) for pods, at in _alike(plugin.alike, contexts)]

        def rejects(view: ClusterView) -> BoolMatrix | None:
            found = np.zeros((len(contexts), len(view)), np.bool_)
            for pod, amounts, at in alike:
                rejected = plugin.rejects_each(pod, amounts, view, now)
                if rejected is None:
                    return None
                found[at] = rejected
            return found

        return rejects

    def may_relent(self, context: RuleContext) -> bool:
        """Return whether more pods, on any nodes, may make it pass a node that it rejects."""
        return self.reads_other_nodes(context)

    def reason(self, context: RuleContext, code: int) -> str:
        """Return the plugin's texts for a code > 0, in one line."""
        return ", ".join(self.plugin.reasons(code, context.pod, context.view))


class PluginScore(_PluginEvaluator[Score]):
    """A score by a plugin."""

    __slots__ = ()

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether a score of a node rests on more than its row; see `Plugin`."""
        reads = self.entry.score_reads_other_nodes or self.entry.reads_other_nodes
        return isinstance(self.plugin, ReadsAllNodes) or reads(context.pod, context.view)

    def score(
        self, context: RuleContext, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], BoolColumn | None]:
        """Return raw scores of `rows`, and which of them have none; None where all have."""
        pod, view, now = context.pod, context.view, context.now
        if isinstance(self.plugin, ScoreAmong):
            among = self.plugin.score_among(pod, view, now, rows)
            return among.values, among.faults
        scores = self.plugin.score(pod, view, now)
        faulty = None if scores.faults is None else scores.faults.take(rows)
        return scores.values[rows], None if faulty is None or not faulty.any() else faulty

    def scores_for(
        self, contexts: Sequence[RuleContext]
    ) -> Callable[[ClusterView], NDArray[Any] | None] | None:
        """Prepare the raw scores for each of several pods, of one view after the other.

        None if that is not possible at once.

        Args:
            contexts: of one moment.

        Returns:
            Gives them, (len(contexts), n); None if some node has none.
        """
        plugin, now = self.plugin, contexts[0].now
        if not isinstance(plugin, StackingScore):
            return None
        alike = [(pods[0], plugin.amounts(pods), at) for pods, at in _alike(plugin.alike, contexts)]

        def scores(view: ClusterView) -> NDArray[Any] | None:
            found = np.zeros((len(contexts), len(view)), np.int64)
            for pod, amounts, at in alike:
                scored = plugin.score_each(pod, amounts, view, now)
                if scored.faults is not None:
                    return None
                found[at] = scored.values
            return found

        return scores

    def normalize(self, raw: NDArray[np.int64] | NDArray[np.float64]) -> IntColumn:
        """Return the scores on 0..MAX_SCORE by the plugin's own rule."""
        return self.plugin.normalize(raw.astype(np.int64, copy=False))

    def normalize_each(
        self, raw: NDArray[np.int64], least: IntColumn, greatest: IntColumn
    ) -> IntColumn:
        """Return what `normalize` gives for each row of a matrix of scores between two ends.

        Args:
            raw: the scores.
            least: the lower end of each row, (n_rows, 1).
            greatest: the upper end.
        """
        plugin = self.plugin
        if isinstance(plugin, StackingScore):
            return plugin.normalize_each(raw, least, greatest)
        rows = np.concatenate([raw, least, greatest], axis=1)
        return np.stack([plugin.normalize(row) for row in rows])[:, :-2]


def _alike(
    key: Callable[[Pod], Hashable], contexts: Sequence[RuleContext]
) -> Iterable[tuple[list[Pod], list[int]]]:
    """Return the pods of each key, and the positions of their contexts."""
    found: dict[Hashable, tuple[list[Pod], list[int]]] = {}
    for at, context in enumerate(contexts):
        pod = context.pod
        pods, places = found.setdefault(key(pod), ([], []))
        pods.append(pod)
        places.append(at)
    return found.values()
