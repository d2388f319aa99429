"""Filters and scores, by an expression or by a plugin: how each comes to its outcome.

A rule abstains while the part of the cluster that it reads is too old to judge by.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.cel import (
    BudgetExhaustedError,
    CelError,
    Environment,
    Program,
    Timestamp,
    ast,
    plain_value,
)
from engine.cel.values import NUMBERS, type_of
from engine.cel.vector import Column, Layout, Plan, PlannedPart, plan_condition, plan_number
from engine.errors import counted
from engine.model.label_condition import LabelCondition
from engine.model.quantity import CPU
from engine.model.rule_outcomes import (
    FilterOutcome,
    FilterResult,
    NodeThreshold,
    RuleInput,
    RuleInputs,
    ScoreOutcome,
    and_not,
    unit_of,
)
from engine.plugins import (
    FAULT,
    MAX_SCORE,
    Filter,
    Plugin,
    ReadsAllNodes,
    Score,
    ScoreAmong,
    result_of,
)
from engine.policy.context import RuleContext
from engine.policy.environment import ExpressionScope, environment, reads_owner_pods
from engine.policy.label_analysis import NO_LABELS, PLUGIN_LABELS, FilterLabels, ScoreLabels
from engine.policy.node_statistics import planned
from engine.policy.node_table import NodeLayout, domains_of
from engine.policy.schema import OnFilterError, OnScoreError
from engine.view import BoolColumn, Domain, IntColumn, extremes

_LONGEST: Final = 60
_MILLI: Final = 1000
_AMOUNTS: Final = frozenset({"allocatable", "limits", "requested", "usage"})
_DEPTH_OF_AMOUNT: Final = 3  # `node.usage.cpu`


def field_input(path: tuple[str, ...], values: Mapping[str, object], source: str) -> RuleInput:
    """Return the value at a path, such as an amount of cpu; `absent` without one.

    Maps, such as the labels of a node, are cut to the keys that the expression names.
    """
    name = ".".join(path)
    value: object = values
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return RuleInput(name, text="absent")
        value = value[key]
    if len(path) == _DEPTH_OF_AMOUNT and path[1] in _AMOUNTS and isinstance(value, float):
        resource = path[-1]
        amount = round(value * _MILLI if resource == CPU else value)
        return RuleInput(name, amount, unit_of(resource))
    if isinstance(value, Mapping):
        named = {key: item for key, item in value.items() if key in source}
        if value and not named:
            return RuleInput(name, text=f"none of its {counted(len(value), 'key')} is named")
        value = named
    if isinstance(value, int) and not isinstance(value, bool):
        return RuleInput(name, value)
    if isinstance(value, Timestamp):
        return RuleInput(name, text=str(plain_value(value)))
    text = json.dumps(plain_value(value), ensure_ascii=False)
    return RuleInput(name, text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


FALSE: Final = 1
"""The code of a node that a condition is false for; PASS and FAULT are the others."""

_ENVIRONMENT: Final = environment(ExpressionScope.SCORES)
_LAYOUT: Final = NodeLayout()
_MOST_INPUTS: Final = 8
_LONGEST_QUOTE: Final = 120  # characters of an expression that are repeated in a reason


class NodeExpression(ABC):
    """An expression that has a value for every node.

    Attributes:
        program: evaluates it for one node; the definition of its meaning.
        statistics: over nodes, which the plan takes for variables.
        plan: evaluates it for all nodes at once.
        references: the paths below `node` that it reads, in order.
        reads: the domains of the cluster that its value rests on.
    """

    def __init__(
        self, program: Program, plan: Callable[[ast.Node, Environment, Layout], Plan]
    ) -> None:
        """Take a program, and how it is planned."""
        self.program = program
        # It reads the statistics as variables, too.
        self._program_of_row, names, self.statistics = planned(program, _ENVIRONMENT)
        self.plan = plan(self._program_of_row.root, names, _LAYOUT)
        self.references = tuple(path for path in sorted(program.references) if path[0] == "node")
        of_statistics = chain.from_iterable(each.references for each in self.statistics)
        read = tuple(sorted({*self.references, *of_statistics}))
        self.reads: tuple[Domain, ...] = domains_of(read)
        self._reads_other_nodes = bool(self.statistics) or reads_owner_pods(read)
        # Its column lasts, and is cheap to compute for rows that are not needed.
        self._is_steady = (
            Domain.PODS not in self.reads
            and bool(self.references)
            and not self.statistics
            and not self.plan.benefits_from_mask
        )

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Its plan, and those of its statistics."""
        return (self.plan, *chain.from_iterable(each.plans for each in self.statistics))

    @property
    def parts(self) -> tuple[PlannedPart, ...]:
        """Each part as planned, the whole expression first, its statistics last."""
        texts = {each.text for each in self.statistics}
        own = (part for part in self.plan.parts if part.text not in texts)
        return (*own, *chain.from_iterable(each.parts for each in self.statistics))

    @property
    def cost(self) -> float:
        """Estimated microseconds for 5,000 rows when everything that is cached is current."""
        return sum(part.cost for part in self.parts)

    @abstractmethod
    def check(self, value: object) -> float:
        """Return the value of the program for a node.

        Raises:
            CelError: it is not of the type that the rule needs.
        """

    @abstractmethod
    def _array(self, column: Column) -> NDArray[Any]:
        """Return the column that the plan gives as one array; see `column`."""

    def reads_other_nodes(self, context: RuleContext) -> bool:  # noqa: ARG002 (as of plugins)
        """Return whether it reads statistics, or pods of an owner; all else is of the node."""
        return self._reads_other_nodes

    @property
    def reads_labels_alone(self) -> bool:
        """Whether nothing of the cluster decides its value but the labels of the node."""
        return not self.statistics and all(path[1:2] == ("labels",) for path in self.references)

    def column(self, context: RuleContext, mask: BoolColumn) -> NDArray[Any]:
        """Return the value for each row, shape (n,).

        Of a condition that is a code, int8: PASS where it is true, FALSE where it is false, FAULT
        where it cannot be evaluated; bools of the same meaning where there is no fault. Of a number
        it is a double, NaN where it cannot be evaluated; any that is not finite is a fault.

        It is remembered by the values that the expression computes of the request, so all pods
        that agree in those share it, unless it reads what almost every decision changes.

        Args:
            context: the request and the cluster.
            mask: the valid rows that matter, shape (n,); others get anything.
        """
        table, program, plan = context.table, self.program, self.plan
        try:
            key = context.column_key(self, program, plan) if self._is_steady else None
            if key is not None:
                return table.remembered(
                    (type(self), program.source, key),
                    self.reads,
                    lambda rows: self._array(
                        plan.column(rows, context.activation(program), context.budget)
                    ),
                    for_all_requests=not key,
                )
            activation = self._activation(context)
        except BudgetExhaustedError:
            return self._array(plan.failed(table))
        return self._array(plan.evaluate(table, activation, context.budget, mask))

    def _activation(self, context: RuleContext) -> dict[str, object]:
        """Return what the plan reads of the request, and those statistics that have a value."""
        activation = context.activation(self.program)
        if not self.statistics:
            return activation
        values = {each.text: each.evaluate(context, activation) for each in self.statistics}
        known = {text: value for text, value in values.items() if not isinstance(value, str)}
        return {**activation, **known}

    def refresh(self, context: RuleContext) -> None:
        """Let the cluster remember what the columns for all pods share.

        Args:
            context: the cluster, and any request.
        """
        if self._is_steady and self.plan.reads_rows_alone:
            self.column(context, context.view.valid)
        else:
            self.plan.refresh(context.table)

    def fault(self, context: RuleContext, row: int) -> str:
        """Return why there is no value for a row."""
        node = context.table.row(row, self.references)
        try:
            activation = {**self._activation(context), **node}
            self.check(self._program_of_row.evaluate(activation, context.budget))
        except CelError as error:
            # Statistics without a value are absent, as in the plan.
            absent = {f"no such key: `{text}`": why for text, why in context.statistics.items()}
            return str(absent.get(str(error), error))
        return "the expression could not be evaluated for all nodes together"

    def inputs(self, context: RuleContext, row: int) -> RuleInputs:
        """Return the values of the node's fields that are read, the first few."""
        # `node.usage.cpu` makes `node.usage` redundant.
        outer = {path[:end] for path in self.references for end in range(1, len(path))}
        read = [path for path in self.references if path not in outer]
        shown = read[:_MOST_INPUTS]
        node = context.table.row(row, shown)
        inputs = [field_input(path, node, self.program.source) for path in shown]
        if len(read) > len(shown):
            inputs.append(RuleInput("...", text=f"{len(read) - len(shown)} more"))
        for each in self.statistics:
            found = context.statistics.get(each.text)  # of the evaluation that is explained
            text = f"{found:.6g}" if isinstance(found, float) else "an error"
            inputs.append(RuleInput(each.text, text=text))
        return tuple(inputs)


class FilterExpression(NodeExpression):
    """A filter by an expression, true for the nodes that pass."""

    def __init__(self, program: Program, message: str | None = None) -> None:
        """Take a program, and why nodes are rejected; without a message the program is quoted."""
        super().__init__(program, plan_condition)
        text = " ".join(program.source.split())
        cut = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
        self._message = message or f"failed expression: {cut}"

    def check(self, value: object) -> bool:
        """Return a bool as it is."""
        return checked_bool(value)

    def _array(self, column: Column) -> NDArray[np.bool_] | NDArray[np.int8]:
        is_false: NDArray[np.bool_] = ~column.values
        if column.faults is None:
            return is_false
        codes = is_false.view(np.int8)  # PASS is 0 and FALSE is 1, as of bools
        codes[column.faults] = FAULT
        return codes

    def filter(self, context: RuleContext) -> FilterResult:
        """Return the code of each row."""
        codes = self.column(context, context.view.valid)
        if codes.dtype == np.bool_:
            return FilterResult(codes, codes.view(np.int8))
        return result_of(codes)

    def may_relent(self, context: RuleContext) -> bool:  # noqa: ARG002 (as of a plugin)
        """Return whether more pods, on any nodes, may make it pass a node that it rejects."""
        return Domain.PODS in self.reads

    def reason(self, context: RuleContext, code: int) -> str:  # noqa: ARG002 (as of a plugin)
        """Return the message."""
        return self._message


class ScoreExpression(NodeExpression):
    """A score by an expression, any finite number."""

    def __init__(self, program: Program) -> None:
        """Take a program."""
        super().__init__(program, plan_number)

    def check(self, value: object) -> float:
        """Return a finite number as a float."""
        return checked_number(value)

    def _array(self, column: Column) -> NDArray[np.float64]:
        if column.faults is None:
            return column.values
        return np.where(column.faults, np.nan, column.values)

    def score(self, context: RuleContext, rows: NDArray[np.intp]) -> tuple[NDArray[Any], None]:
        """Return the numbers for `rows`, not finite where there is none."""
        mask = context.mask_of(rows) if self.plan.benefits_from_mask else context.view.valid
        return self.column(context, mask)[rows], None  # `take` takes twice as long

    def normalize(self, raw: NDArray[np.int64] | NDArray[np.float64]) -> IntColumn | None:
        """Return 0 for the lowest, MAX_SCORE for the highest, the others in proportion, rounded.

        All get 0 where all are equal. None if some are not finite: the ends of NaN and others are
        NaN.
        """
        low, high = map(float, extremes(raw))
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        if low == high:
            return np.zeros(raw.size, np.int64)
        if high - low == math.inf:  # the spread of doubles may be too much, that of halves is not
            raw, low, high = raw / 2, low / 2, high / 2
        points = np.asarray(raw - low, np.float64)
        points /= high - low
        points *= MAX_SCORE
        points += 0.5
        return points.astype(np.int64)


def checked_bool(value: object) -> bool:
    if type(value) is not bool:
        raise CelError(f"the expression gave a `{type_of(value)}`, not a `bool`")
    return value


def checked_number(value: object) -> float:
    """Return a number as a float."""
    if type(value) not in NUMBERS:
        raise CelError(f"the expression gave a `{type_of(value)}`, not a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # one of NUMBERS
    except OverflowError:  # JSON knows integers of any size
        number = math.inf
    if not math.isfinite(number):
        raise CelError("the expression gave a number that is not finite")
    return number


# Plugins as rules evaluate them, with the methods of `FilterExpression` and `ScoreExpression`.


_P = TypeVar("_P", bound=Filter | Score)


@dataclass(frozen=True, slots=True)
class _PluginEvaluator(Generic[_P]):
    """A plugin by its args, and the entry of the registry that it is built from."""

    plugin: _P
    entry: Plugin

    @property
    def reads(self) -> tuple[Domain, ...]:
        return self.entry.reads

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether an answer for a node rests on more than its row; see `Plugin`."""
        return self.entry.reads_other_nodes(context)

    def fault(self, context: RuleContext, row: int) -> str:
        return self.plugin.fault(context, row)

    def inputs(self, context: RuleContext, row: int) -> RuleInputs:
        return self.plugin.inputs(context, row)


class PluginFilter(_PluginEvaluator[Filter]):
    """A filter by a plugin."""

    __slots__ = ()

    def filter(self, context: RuleContext) -> FilterResult:
        """Return the code of each row."""
        return self.plugin.filter(context)

    def may_relent(self, context: RuleContext) -> bool:
        """Return whether more pods, on any nodes, may make it pass a node that it rejects."""
        return self.reads_other_nodes(context)

    def reason(self, context: RuleContext, code: int) -> str:
        """Return the plugin's texts for a code > 0, in one line."""
        return ", ".join(self.plugin.reasons(code, context))


class PluginScore(_PluginEvaluator[Score]):
    """A score by a plugin."""

    __slots__ = ()

    def reads_other_nodes(self, context: RuleContext) -> bool:
        """Return whether a score of a node rests on more than its row; see `Plugin`."""
        reads = self.entry.score_reads_other_nodes or self.entry.reads_other_nodes
        return isinstance(self.plugin, ReadsAllNodes) or reads(context)

    def score(
        self, context: RuleContext, rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], BoolColumn | None]:
        """Return raw scores of `rows`, and which of them have none; None where all have."""
        if isinstance(self.plugin, ScoreAmong):
            among = self.plugin.score_among(context, rows)
            return among.values, among.faults
        scores = self.plugin.score(context)
        faulty = None if scores.faults is None else scores.faults.take(rows)
        return scores.values[rows], None if faulty is None or not faulty.any() else faulty

    def normalize(self, raw: NDArray[np.int64] | NDArray[np.float64]) -> IntColumn:
        return self.plugin.normalize(raw.astype(np.int64, copy=False))


FilterEvaluator: TypeAlias = PluginFilter | FilterExpression
"""Gives each row a code: PASS, FAULT, or a reason > 0."""

ScoreEvaluator: TypeAlias = PluginScore | ScoreExpression
"""Gives rows raw scores, and normalizes those of all candidates to 0..MAX_SCORE."""

STATIC_PLUGINS: Final = frozenset({"NodeAffinity", "NodeUnschedulable", "TaintToleration"})
"""Plugins whose filters read labels, taints and cordons of a node, not its changing state."""

_FRESH: Final[Mapping[str, str]] = MappingProxyType({})
_NO_POINTS = "it gives no candidate any points"


class _RuleExplainer(msgspec.Struct, eq=False):
    """Explains the outcome of a filter on demand: few decisions are ever explained."""

    rule: FilterRule  # the filter
    context: RuleContext  # what it was evaluated in
    fault: str = ""  # why the first node that could not be evaluated could not
    reasons: dict[int, str] = {}  # texts by code, once read

    @property
    def labels(self) -> LabelCondition:
        return self.rule.labels.condition(self.context)

    def reason(self, code: int) -> str:
        if code == FAULT:
            return self.fault
        text = self.reasons.get(code)
        if text is None:
            text = self.reasons[code] = self.rule.evaluator.reason(self.context, code)
        return text

    def inputs(self, row: int) -> RuleInputs:
        return self.rule.evaluator.inputs(self.context, row)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRule:
    """A filter.

    Attributes:
        policy: the name of its policy, SCHEDULER where it has none.
        name: its own.
        dynamic: whether it reads changing state rather than node labels alone.
        on_error: the fate of a node that it cannot be evaluated for.
        evaluator: the plugin or expression.
        labels: its requirements on node labels.
        thresholds: what it allows on nodes that do not say otherwise, for people.
    """

    policy: str
    name: str
    dynamic: bool
    on_error: OnFilterError = OnFilterError.REJECT_NODE
    evaluator: FilterEvaluator
    labels: FilterLabels = PLUGIN_LABELS
    thresholds: tuple[NodeThreshold, ...] = ()

    def outcome(self, context: RuleContext) -> FilterOutcome:
        """Return the outcome for every node; all pass if it abstains."""
        view, evaluator = context.view, self.evaluator
        stale = context.stale_among(evaluator.reads) if context.is_stale else _FRESH
        times = context.request.rule_times
        begun = 0 if times is None else times.clock()
        result = FilterResult.passing(len(view)) if stale else evaluator.filter(context)
        if times is not None and not stale:
            times.note(self.policy, self.name, begun)
        explainer = _RuleExplainer(self, context)
        rejects, faults = result.rejects, 0
        if result.has_faults:
            faulty = view.valid & (result.codes == FAULT)
            faults = int(np.count_nonzero(faulty))
        if faults:
            explainer.fault = evaluator.fault(context, int(faulty.argmax()))
            context.errors.append(_fault_line(self.policy, self.name, explainer.fault, faults))
            if self.on_error is OnFilterError.IGNORE_RULE:
                rejects = and_not(rejects, faulty)
        return FilterOutcome(
            policy=self.policy,
            rule=self.name,
            result=result,
            rejects=rejects,
            explainer=explainer,
            dynamic=self.dynamic,
            faults=faults,
            abstained=stale,
        )

    def rejects(self, context: RuleContext) -> BoolColumn:
        """Return the rejected nodes for a request, without reasons; it must not abstain."""
        result = self.evaluator.filter(context)
        return self.outcome(context).rejects if result.has_faults else result.rejects


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRule:
    """A score.

    Attributes:
        policy: the name of its policy.
        name: its own.
        weight: the factor of its points.
        on_error: the consequence when a candidate cannot be scored.
        evaluator: the plugin or expression.
        labels: the labels of nodes that it reads.
    """

    policy: str
    name: str
    weight: int = 1
    on_error: OnScoreError = OnScoreError.ZERO_SCORE
    evaluator: ScoreEvaluator
    labels: ScoreLabels = NO_LABELS

    def raw(self, context: RuleContext, candidates: BoolColumn) -> NDArray[Any] | None:
        """Return the scores before `normalize` of candidates, (n,), anything for other nodes.

        None if some could not be evaluated. It must not abstain.
        """
        raw, faulty = self.evaluator.score(context, candidates.nonzero()[0])
        if faulty is not None or (raw.dtype.kind == "f" and not np.isfinite(raw).all()):
            return None
        scores = np.zeros(candidates.size, raw.dtype)
        scores[candidates] = raw
        return scores

    def outcome(self, context: RuleContext, candidates: NDArray[np.intp]) -> ScoreOutcome:
        """Return the scores of the candidates, in their order; no other node affects them.

        All get nothing if it abstains.
        """
        if context.is_stale:
            stale = context.stale_among(self.evaluator.reads)
            if stale:
                return self._abstention(candidates.size, stale)
        times = context.request.rule_times
        begun = 0 if times is None else times.clock()
        raw, faulty = self.evaluator.score(context, candidates)
        normalized = None if faulty is not None else self._normalized(raw)
        if times is not None:
            times.note(self.policy, self.name, begun)
        faults, reason = 0, _NO_POINTS if raw.size else ""
        if normalized is None:
            faulty = ~np.isfinite(raw) if faulty is None else faulty
            raw, normalized = np.where(faulty, 0, raw), self._normalized_but(faulty, raw)
            faults = int(np.count_nonzero(faulty))
            reason = self.evaluator.fault(context, int(candidates[faulty.argmax()]))
            context.errors.append(_fault_line(self.policy, self.name, reason, faults))
        # The first most often has points; else both ends: a fraction of the time of `any`.
        if normalized.size and (normalized.item(0) or any(extremes(normalized))):
            reason = ""
        return ScoreOutcome(
            policy=self.policy,
            rule=self.name,
            weight=self.weight,
            raw=raw,
            normalized=normalized,
            reason=reason,
            faults=faults,
            inputs=lambda row: self.evaluator.inputs(context, row),
            label_keys=self.labels.keys,
            preferred=self._preferred(context),
        )

    def _preferred(self, context: RuleContext) -> Callable[[], LabelCondition] | None:
        labels = self.labels.preferred
        return None if labels is None else lambda: labels.condition(context)

    def _normalized(self, raw: NDArray[Any]) -> IntColumn | None:
        return self.evaluator.normalize(raw) if raw.size else np.zeros(0, np.int64)

    def _normalized_but(self, faulty: BoolColumn, raw: NDArray[Any]) -> IntColumn:
        """Return the normalized scores; candidates at fault have 0 and do not affect others."""
        normalized = np.zeros(raw.size, np.int64)
        if self.on_error is not OnScoreError.IGNORE_RULE:
            sound = self._normalized(raw[~faulty])
            assert sound is not None  # noqa: S101 - INVARIANT: all of these are finite
            normalized[~faulty] = sound
        return normalized

    def _abstention(self, candidates: int, stale: Mapping[str, str]) -> ScoreOutcome:
        nothing = np.zeros(candidates, np.int64)
        return ScoreOutcome(
            policy=self.policy,
            rule=self.name,
            weight=self.weight,
            raw=nothing,
            normalized=nothing,
            reason=", ".join(stale.values()),
            abstained=stale,
        )


def _fault_line(policy: str, rule: str, reason: str, count: int) -> str:
    where = f"{policy}: " if policy else ""
    return f"{where}{rule} could not be evaluated for {counted(count, 'node')}: {reason}"
