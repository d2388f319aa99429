"""A trial: whether all of some pods have a node, each beside those before it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.batch.batch import Batch
from engine.batch.judge import DEFAULT_SCOPE, JudgeOfAll
from engine.batch.outcome import BatchOutcome
from engine.batch.templates import template_keys
from engine.model.decision import Decision
from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import FRESH, BoolColumn, ClusterView, Freshness


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of pods that must be placed together.

    Attributes:
        outcomes: of each pod, in order; up to the first that is not placed.
        failed: the position of that pod, None where all are placed.
        message: why it is not, in one line; "" where all are.
    """

    outcomes: Sequence[BatchOutcome]
    failed: int | None = None
    message: str = ""

    @property
    def nodes(self) -> list[str]:
        """The name of the node of each pod, in order; empty unless all are placed."""
        return [] if self.failed is not None else [outcome.node for outcome in self.outcomes]


def place_all(
    requests: Sequence[PlacementRequest],
    policies: PolicySet,
    view: ClusterView,
    now: Micros,
    *,
    rows: NDArray[np.intp] | None = None,
    scope: Scope = DEFAULT_SCOPE,
    freshness: Freshness = FRESH,
) -> Trial:
    """Find a node for every pod, in order: each sees those before it on their nodes.

    A pod goes where `decide_batch` would place it. One that no policy places goes where the
    scheduler would, as far as its filters and scores are known here. A pod also fails where the
    scheduler's own filters cannot be judged, for what they read is too old.

    Args:
        requests: the pods, none of which counts on a node of the view, and their contexts.
        policies: the loaded policies.
        view: the observed cluster; must keep the sums of `policies.sum_profiles`.
        now: the moment.
        rows: of the nodes that may take them; None for all. Those beside them still count where
            a rule looks at other nodes.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old; rules that read one abstain.
    """
    judge = JudgeOfAll(policies=policies, now=now, scope=scope, freshness=freshness)
    return trial_of(requests, judge, view, template_keys(requests, policies, view), rows=rows)


def trial_of(
    requests: Sequence[PlacementRequest],
    judge: JudgeOfAll,
    view: ClusterView,
    keys: Sequence[Hashable | None],
    *,
    rows: NDArray[np.intp] | None,
) -> Trial:
    """Find a node for every pod, in order; see `place_all`.

    Args:
        requests: the pods.
        judge: decides for one pod, among any nodes.
        view: the cluster without them.
        keys: their `template_keys`.
        rows: of the nodes that may take them; None for all.
    """
    if rows is not None:
        judge = replace(judge, nodes=_among(view, rows))
    outcomes: list[BatchOutcome] = []
    latest: Decision | None = None
    for position, outcome in enumerate(Batch(requests, judge, view, keys)):
        outcomes.append(outcome)
        message = outcome.message
        if outcome.decision is not latest:  # pods of a template share one
            latest = outcome.decision
            message = message or _stale_filters(latest)
        if message:
            return Trial(outcomes=outcomes, failed=position, message=message)
    return Trial(outcomes=outcomes)


def _among(view: ClusterView, rows: NDArray[np.intp]) -> BoolColumn:
    nodes = np.zeros(len(view), np.bool_)
    nodes[rows] = True
    return nodes & view.valid


def _stale_filters(decision: Decision) -> str:
    """Return what the scheduler's own filters read and is too old, "" for nothing."""
    abstained = (each.abstained for each in decision.filters if each.policy == SCHEDULER)
    return ", ".join({text: None for texts in abstained for text in texts.values()})
