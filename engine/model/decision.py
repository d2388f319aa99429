"""What was decided for one pod, with every reason: explaining it is only printing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.model.label_condition import LabelCondition
from engine.model.pod import Pod
from engine.model.resources import Amounts
from engine.model.rule_input import RuleInputs
from engine.model.time import Micros
from engine.model.well_known import INSTANCE_TYPE_LABEL, ZONE_LABEL

SCHEDULER = ""
"""The policy name of the filters that the scheduler applies by itself."""

_MOST_COUNTED = 1 << 10
_NO_ORDER: Final[NDArray[np.intp]] = np.zeros(0, np.intp)


class Verdict(StrEnum):
    """What becomes of the pod."""

    PLACE = "Place"  # there is a ranking to write on the pod
    ABSTAIN = "Abstain"  # nothing to say: no policy, no candidate, or not ours to place
    DENY = "Deny"  # no node passes and a policy asks for denial


class DynamicFilters(StrEnum):
    """How filters over changing state are written on the pod."""

    PREFERRED = "Preferred"  # rejected nodes are left out of the preferred ones
    REQUIRED = "Required"  # rejected nodes are also excluded with `NotIn`


class WhenNoneFits(StrEnum):
    """What happens to a pod that the policies' filters leave no node for."""

    ALLOW = "Allow"
    DENY = "Deny"


DEFAULT_GROUP_LABELS = (
    ZONE_LABEL,
    INSTANCE_TYPE_LABEL,
    "karpenter.sh/capacity-type",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementOptions:
    """How a ranking is written on the pod (`spec.placement` of a policy).

    Attributes:
        max_nodes: the most node names written in preferred terms, and in `NotIn`.
        group_labels: labels that may stand for a set of nodes where they describe it exactly.
    """

    dynamic_filters: DynamicFilters = DynamicFilters.PREFERRED
    when_none_fits: WhenNoneFits = WhenNoneFits.ALLOW
    max_nodes: int = 64
    group_labels: tuple[str, ...] = DEFAULT_GROUP_LABELS


Codes: TypeAlias = NDArray[np.signedinteger[Any]]
"""What a filter says of each row, in as few bytes as will do: caches are small."""


def and_not(these: NDArray[np.bool_], those: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return `these & ~those` in one pass: `>` orders False before True."""
    return these > those


class FilterResult:
    """What a filter says of each row: whether it turns it away, and why as soon as someone asks.

    Args:
        rejects: (n,), False where a node passes; anything for a row that is not a node.
        codes: (n,), 0 where a node passes, or what gives them: few decisions are ever explained.
            INVARIANT: whoever asks for them holds the view that was judged.
        has_faults: whether some rows could not be evaluated.
    """

    __slots__ = ("_codes", "has_faults", "rejects")

    def __init__(
        self,
        rejects: NDArray[np.bool_],
        codes: Codes | Callable[[], Codes],
        *,
        has_faults: bool = False,
    ) -> None:
        self.rejects = rejects
        self.has_faults = has_faults
        self._codes = codes

    @classmethod
    def passing(cls, rows: int) -> FilterResult:
        """Return that each of so many rows passes."""
        nowhere = np.zeros(rows, np.bool_)
        return cls(nowhere, nowhere.view(np.int8))

    @property
    def codes(self) -> Codes:
        """A code for each row, (n,)."""
        if not isinstance(self._codes, np.ndarray):
            self._codes = self._codes()
        return self._codes


InputsByRow: TypeAlias = Callable[[int], RuleInputs]
"""Gives the inputs of a rule for a row; holds the view until then."""


def no_inputs(_: int) -> RuleInputs:
    """Return no inputs: the rule did not evaluate any node."""
    return ()


class Explainer(Protocol):
    """Puts what a filter did into words when someone asks; until then a hold on the view."""

    @property
    def labels(self) -> LabelCondition:
        """What the filter says of node labels, which also holds for nodes to come."""

    def reason(self, code: int) -> str:
        """Return the text of a code that is not 0, `Insufficient cpu limit` for one."""

    def inputs(self, row: int) -> RuleInputs:
        """Return the values that the filter used for a row."""


class FilterOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One filter over all nodes.

    Attributes:
        policy: the policy it belongs to, SCHEDULER for the scheduler's own.
        rule: its name.
        judged: what it says of every row.
        rejects: (n,), where this filter turns a node away (`onError` taken into account); anything
            for a row that is not a node.
        teller: knows the rest.
        dynamic: whether it speaks of changing state rather than of node labels alone.
        faults: how many nodes could not be evaluated.
        abstained: what it reads of the cluster and is too old, `usage` for one, with a text that
            says so; it then rejects nobody. Empty if it did not abstain.
    """

    policy: str
    rule: str
    judged: FilterResult
    rejects: NDArray[np.bool_]
    teller: Explainer
    dynamic: bool = True
    faults: int = 0
    abstained: Mapping[str, str] = {}

    @property
    def codes(self) -> Codes:
        """(n,), 0 where a node passes; anything for a row that is not a node."""
        return self.judged.codes

    @property
    def labels(self) -> LabelCondition:
        """What it says of node labels, even if it abstained."""
        return self.teller.labels

    def reason(self, row: int) -> str:
        """Return why it turned a node away; "" if it says nothing of it."""
        code = int(self.codes[row])
        return self.teller.reason(code) if code else ""

    def inputs(self, row: int) -> RuleInputs:
        """Return the values that it used for a node; none if it abstained."""
        return () if self.abstained else self.teller.inputs(row)


def tally(codes: Codes) -> dict[int, int]:
    """Return how many times each code occurs, in ascending order."""
    if not codes.size:
        return {}
    least, greatest = int(codes.min()), int(codes.max())
    if least == greatest:
        return {least: codes.size}
    if least >= 0 and greatest < _MOST_COUNTED:  # a tenth of the time that sorting takes
        by_code = np.bincount(codes)
        values = by_code.nonzero()[0]
        counts = by_code[values]
    else:
        values, counts = np.unique(codes, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


class RejectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes a filter was the first to turn away, for one reason."""

    policy: str
    rule: str
    reason: str
    nodes: int


class ScoreOutcome(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One scorer over the candidates: those it was asked for, in their order.

    Attributes:
        raw: as the plugin or expression gave it, an expression as floats.
        normalized: on 0..100 over the candidates alone.
        weight: what it is multiplied by.
        reason: why it has no say (all zero), "" when it has one.
        faults: how many candidates could not be evaluated and scored 0.
        abstained: as of a filter; it then gives all the same.
        inputs: what it scored a row of the view by, which is not an element of `raw`.
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


class Decision(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outcome for one pod.

    Attributes:
        verdict: what to do.
        message: one line for a person; the denial's text when denied.
        policies: names of the policies that matched and were applied, by precedence.
        placement: how to write it, from the first of them.
        names: node name per row of the view it was decided on.
        valid: (n,), the rows that are nodes.
        filters: the scheduler's own, then the policies', in order.
        stopped: how many nodes each filter was the first to turn away; adds up to the nodes that
            are no candidates.
        scored: what each score gave, in policy order, its elements by row; see `scores`.
        candidates: rows that may take the pod, best first.
        order: where `candidates` stand among the same rows in ascending order; aligned with them.
        totals: weighted sums, aligned with `candidates`.
        estimate: expected usage of the pod, base units; empty when no rule estimates.
        errors: rules that could not be evaluated, with the reason, in policy order.
        decided_at: the `now` it was decided with.
        view_version: the version of the view it was decided on.
        ages: whole seconds since each source of that view had been heard, by name; empty for a
            recorded cluster, and where no node was looked at.
        audit: what the policies in Audit mode would have decided, None when none matched.
    """

    pod: Pod
    verdict: Verdict
    message: str
    policies: tuple[str, ...] = ()
    placement: PlacementOptions = PlacementOptions()
    names: Sequence[str] = ()
    valid: NDArray[np.bool_]
    filters: tuple[FilterOutcome, ...] = ()
    stopped: tuple[int, ...] = ()
    scored: tuple[ScoreOutcome, ...] = ()
    candidates: NDArray[np.intp]
    order: NDArray[np.intp] = _NO_ORDER
    totals: NDArray[np.int64]
    estimate: Amounts
    errors: tuple[str, ...] = ()
    decided_at: Micros
    view_version: int
    ages: Mapping[str, int] = {}
    audit: Decision | None = None

    def best_scores(self, most: int | None = None) -> tuple[ScoreOutcome, ...]:
        """Return the scores, in policy order, of the best candidates, best first.

        Few ask, and for a few candidates: bringing all into order takes longer than a score.

        Args:
            most: of how many candidates, None for all.
        """
        order = self.order[:most]
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
    def left_out(self) -> tuple[RejectionSummary, ...]:
        """What `stopped` adds up, by reason."""
        left_out: list[RejectionSummary] = []
        left = self.valid
        for outcome, stopped in zip(self.filters, self.stopped, strict=True):
            if not stopped:
                continue
            if outcome.codes.max() == 1 and not outcome.faults:
                counts = {1: stopped}  # most filters have one thing to say
            else:
                counts = tally(outcome.codes.take((left & outcome.rejects).nonzero()[0]))
            left = and_not(left, outcome.rejects)
            left_out += [
                RejectionSummary(
                    policy=outcome.policy,
                    rule=outcome.rule,
                    reason=outcome.teller.reason(code),
                    nodes=nodes,
                )
                for code, nodes in counts.items()
            ]
        return tuple(left_out)
