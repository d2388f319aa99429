"""What filters and scores say of nodes, with reasons that are computed on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.label_condition import LabelCondition
from engine.model.rule_input import RuleInputs

SCHEDULER = ""
"""The policy name of the filters that the scheduler applies itself."""

_GREATEST_COUNTED_CODE = 1 << 10

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


def greatest_code(codes: Codes) -> int:
    """Return the greatest code, in a quarter of the time of `max`."""
    return int(codes.item(codes.argmax()))


def count_codes(codes: Codes) -> dict[int, int]:
    """Return the number of rows of each code, in ascending order of codes."""
    if not codes.size:
        return {}
    least, greatest = codes.item(codes.argmin()), greatest_code(codes)
    if least == greatest:
        return {least: codes.size}
    if least >= 0 and greatest < _GREATEST_COUNTED_CODE:  # a tenth of the time that sorting takes
        by_code = np.bincount(codes)
        values = by_code.nonzero()[0]
        counts = by_code[values]
    else:
        values, counts = np.unique(codes, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


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
        label_keys: labels of nodes that it reads.
        preferred: gives the condition on labels of the nodes that score more, of a score that knows
            two numbers alone; None for any other.
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
    label_keys: tuple[str, ...] = ()
    preferred: Callable[[], LabelCondition] | None = None
