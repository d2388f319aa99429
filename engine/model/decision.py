"""A decision for one pod with its reasons and scores, ready to be explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.elastic_quota import ReclaimMode
from engine.model.label_condition import LabelCondition
from engine.model.pod import Pod
from engine.model.ranking import NOTHING_RANKED, Ranking
from engine.model.resources import Amounts
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros

SCHEDULER = ""
"""The policy name of the filters that the scheduler applies itself."""

_GREATEST_COUNTED_CODE = 1 << 10


class Verdict(StrEnum):
    """The outcome for the pod."""

    PLACE = "Place"  # there is a ranking to write on the pod
    ABSTAIN = "Abstain"  # no policy, no candidate, or a pod of another scheduler
    DENY = "Deny"  # no node passes and a policy asks for denial


class DynamicFilters(StrEnum):
    """The way filters over changing state are written on the pod."""

    PREFERRED = "Preferred"  # rejected nodes are left out of the preferred ones
    REQUIRED = "Required"  # rejected nodes are also excluded with `NotIn`
    MARKED = "Marked"  # rejected nodes carry a label that the pod refuses


class PlacementAt(StrEnum):
    """The moment of the decision for a pod."""

    ADMISSION = "Admission"  # advice, written when the pod is created
    RELEASE = "Release"  # the pod is held, and decided when it is released


class WhenNoneFits(StrEnum):
    """The verdict on a pod that the policies' filters leave no node for."""

    ALLOW = "Allow"
    DENY = "Deny"


DEFAULT_GROUP_LABELS = (
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """The form in which a ranking is written on the pod (`spec.placement` of a policy).

    Attributes:
        at: when pods are decided.
        preemption: what is done for a held pod that no node takes: whether pods of lower priority
            are evicted for it.
        max_nodes: the most node names written in preferred terms, and in `NotIn`.
        group_labels: labels that may stand for a set of nodes where they describe it exactly.
    """

    at: PlacementAt = PlacementAt.ADMISSION
    dynamic_filters: DynamicFilters = DynamicFilters.PREFERRED
    when_none_fits: WhenNoneFits = WhenNoneFits.ALLOW
    preemption: ReclaimMode = ReclaimMode.OFF
    max_nodes: int = 64
    group_labels: tuple[str, ...] = DEFAULT_GROUP_LABELS


Codes: TypeAlias = NDArray[np.signedinteger[Any]]
"""A filter's code for each row, of the smallest type that holds them: caches stay small."""


class FilterResult(msgspec.Struct, eq=False):
    """Rejections of a filter by row, with codes for the reasons that are computed on demand.

    Attributes:
        rejects: (n,), False where a node passes; anything for a row that is not a node.
        codes_or_source: the codes, or a function that computes them: few decisions are ever
            explained. INVARIANT: its caller holds the view that was filtered.
        has_faults: whether some rows could not be evaluated.
    """

    rejects: NDArray[np.bool_]
    codes_or_source: Codes | Callable[[], Codes]
    has_faults: bool = False

    @classmethod
    def passing(cls, rows: int) -> FilterResult:
        """Return the result in which every row passes."""
        nowhere = np.zeros(rows, np.bool_)
        return cls(nowhere, nowhere.view(np.int8))

    @property
    def codes(self) -> Codes:
        """A code for each row, (n,), 0 where a node passes."""
        codes = self.codes_or_source
        if not isinstance(codes, np.ndarray):
            codes = self.codes_or_source = codes()
        return codes


def and_not(nodes: NDArray[np.bool_], rejects: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `nodes & ~rejects` in one operation: of bools, only True is greater than False."""
    remaining: NDArray[np.bool_] = nodes > rejects
    return remaining


InputsByRow: TypeAlias = Callable[[int], RuleInputs]
"""Gives the inputs of a rule for a row; holds the view until then."""


def no_inputs(_: int) -> RuleInputs:
    """Return no inputs: the rule did not evaluate any node."""
    return ()


class Explainer(Protocol):
    """Computes reasons and inputs of a filter on demand; holds the view until then."""

    @property
    def labels(self) -> LabelCondition:
        """The condition on node labels that the filter implies, also for nodes to come."""

    def reason(self, code: int) -> str:
        """Return the text of a code that is not 0, such as `Insufficient cpu limit`."""

    def inputs(self, row: int) -> RuleInputs:
        """Return the values that the filter used for a row."""


class FilterOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One filter over all nodes.

    Attributes:
        policy: the policy it belongs to, SCHEDULER for the scheduler's own.
        rule: its name.
        result: rejections and codes of every row, before `onError`.
        rejects: (n,), where this filter rejects a node, after `onError`; anything for a row that
            is not a node.
        explainer: computes reasons and inputs.
        dynamic: whether it depends on changing state rather than on node labels alone.
        faults: the number of nodes that could not be evaluated.
        abstained: the data it reads that is too old, such as `usage`, with a text that says so; it
            then rejects no node. Empty if it did not abstain.
    """

    policy: str
    rule: str
    result: FilterResult
    rejects: NDArray[np.bool_]
    explainer: Explainer
    dynamic: bool = True
    faults: int = 0
    abstained: Mapping[str, str] = {}

    @property
    def codes(self) -> Codes:
        """(n,), 0 where a node passes; anything for a row that is not a node."""
        return self.result.codes

    @property
    def labels(self) -> LabelCondition:
        """The condition on node labels that it implies, even if it abstained."""
        return self.explainer.labels

    def reason(self, row: int) -> str:
        """Return why it rejected a node; "" if it did not."""
        code = int(self.codes[row])
        return self.explainer.reason(code) if code else ""

    def inputs(self, row: int) -> RuleInputs:
        """Return the values that it used for a node; none if it abstained."""
        return () if self.abstained else self.explainer.inputs(row)


def _greatest(codes: Codes) -> int:
    """Return the greatest code, in a quarter of the time of `max`."""
    return int(codes.item(codes.argmax()))


def count_codes(codes: Codes) -> dict[int, int]:
    """Return the number of rows of each code, in ascending order of codes."""
    if not codes.size:
        return {}
    least, greatest = codes.item(codes.argmin()), _greatest(codes)
    if least == greatest:
        return {least: codes.size}
    if least >= 0 and greatest < _GREATEST_COUNTED_CODE:  # a tenth of the time that sorting takes
        by_code = np.bincount(codes)
        values = by_code.nonzero()[0]
        counts = by_code[values]
    else:
        values, counts = np.unique(codes, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


class RejectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The number of nodes that a filter was the first to reject, for one reason."""

    policy: str
    rule: str
    reason: str
    nodes: int


class ScoreOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One scorer over the candidates, in their order.

    Attributes:
        raw: the scores of the plugin, or of the expression as floats.
        normalized: on 0..100 over the candidates alone.
        weight: the factor of `normalized` in the totals.
        reason: why it does not count (all zero), "" when it does.
        faults: the number of candidates that could not be evaluated and scored 0.
        abstained: as in `FilterOutcome`; all candidates then get the same score.
        inputs: gives the values used for a row of the view, which is not an index of `raw`.
    """

    policy: str
    rule: str
    weight: int
    raw: NDArray[np.int64] | NDArray[np.float64]
    normalized: NDArray[np.int64]
    reason: str = ""
    faults: int = 0
    abstained: Mapping[str, str] = {}
    inputs: InputsByRow = no_inputs


class Decision(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The outcome for one pod.

    Attributes:
        verdict: the outcome.
        message_or_source: the message, or a function that makes it.
        policies: names of the policies that matched and were applied, by precedence.
        placement: the form of the patch, from the first of them.
        names: node name per row of the view it was decided on.
        valid: (n,), the rows that are nodes, or those of them that were looked at.
        filters: the scheduler's own, then the policies', in order.
        left: for each filter, the nodes that it and those before it leave, (n,).
        scored: outcome of each score, in policy order, its elements by row; see `scores`.
        ranking: the candidates, which are the rows that may take the pod, by their weighted sums.
        estimate: expected usage of the pod, base units; empty when no rule estimates.
        errors: rules that could not be evaluated, with the reason, in policy order.
        decided_at: the `now` it was decided with.
        view_version: the version of the view it was decided on.
        ages: whole seconds since the last report of each source of that view, by name; empty for
            a recorded cluster, and where no node was evaluated.
        audit: the decision that policies in Audit mode would have made, None when none matched.
    """

    pod: Pod
    verdict: Verdict
    message_or_source: str | Callable[[Decision], str]
    policies: tuple[str, ...] = ()
    placement: PlacementOptions = PlacementOptions()
    names: Sequence[str] = ()
    valid: NDArray[np.bool_]
    filters: tuple[FilterOutcome, ...] = ()
    left: tuple[NDArray[np.bool_], ...] = ()
    scored: tuple[ScoreOutcome, ...] = ()
    ranking: Ranking = NOTHING_RANKED
    estimate: Amounts
    errors: tuple[str, ...] = ()
    decided_at: Micros
    view_version: int
    ages: Mapping[str, int] = {}
    audit: Decision | None = None

    @cached_property
    def message(self) -> str:
        """One line for a person; the denial's text when denied."""
        found = self.message_or_source
        return found if isinstance(found, str) else found(self)

    @cached_property
    def first_rejections(self) -> tuple[int, ...]:
        """For each filter, the number of nodes that it was the first to reject.

        The sum is the number of nodes that are no candidates.
        """
        counts: list[int] = []
        before, count = self.valid, int(np.count_nonzero(self.valid))
        for nodes in self.left:
            remaining = count if nodes is before else int(np.count_nonzero(nodes))
            counts.append(count - remaining)
            before, count = nodes, remaining
        return tuple(counts)

    @cached_property
    def candidates(self) -> NDArray[np.intp]:
        """Rows that may take the pod, all of them, best first; see `best`."""
        return self.ranking.rows[self.ranking.order]

    @property
    def totals(self) -> NDArray[np.int64]:
        """Weighted sums, aligned with `candidates`."""
        return self.ranking.totals

    def best(self, most: int | None) -> NDArray[np.intp]:
        """Return the first rows of `candidates`.

        Args:
            most: how many, None for all.
        """
        return self.ranking.rows[self.ranking.best(most)]

    @property
    def best_node(self) -> str:
        """The name of the best candidate, "" where there is none."""
        best = self.best(1)
        return self.names[best[0]] if best.size else ""

    def best_scores(self, most: int | None = None) -> tuple[ScoreOutcome, ...]:
        """Return the scores, in policy order, of the best candidates, best first.

        Args:
            most: the number of candidates, None for all.
        """
        order = self.ranking.best(most)
        return tuple(
            structs.replace(
                score, raw=score.raw.take(order), normalized=score.normalized.take(order)
            )
            for score in self.scored
        )

    @property
    def scores(self) -> tuple[ScoreOutcome, ...]:
        """The scores, in policy order, aligned with `candidates`."""
        return self.best_scores()

    @property
    def abstained(self) -> tuple[FilterOutcome | ScoreOutcome, ...]:
        """The rules that abstained because what they read is too old, in order."""
        rules: tuple[FilterOutcome | ScoreOutcome, ...] = (*self.filters, *self.scored)
        return tuple(rule for rule in rules if rule.abstained)

    @property
    def rejection_summaries(self) -> tuple[RejectionSummary, ...]:
        """`first_rejections` by reason."""
        summaries: list[RejectionSummary] = []
        counts = zip(self.filters, self.first_rejections, (self.valid, *self.left), strict=False)
        for outcome, rejected, left in counts:
            if not rejected:
                continue
            if not outcome.faults and _greatest(outcome.codes) == 1:
                by_code = {1: rejected}  # most filters have a single reason
            else:
                by_code = count_codes(outcome.codes.take((left & outcome.rejects).nonzero()[0]))
            summaries += [
                RejectionSummary(
                    policy=outcome.policy,
                    rule=outcome.rule,
                    reason=outcome.explainer.reason(code),
                    nodes=nodes,
                )
                for code, nodes in by_code.items()
            ]
        return tuple(summaries)
