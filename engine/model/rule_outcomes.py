"""What filters and scores say of nodes, and the values that rules were given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.label_condition import LabelCondition
from engine.model.quantity import CPU, counts_bytes


class Measure(StrEnum):
    """What is measured of a node."""

    REQUESTS = "requests"  # of its pods
    LIMITS = "limits"  # of its pods
    LOAD = "load"  # what is in use


class NodeThreshold(msgspec.Struct, frozen=True):
    """A measure in percent of the allocatable amount, above which a filter rejects nodes."""

    measure: Measure
    resource: str
    percent: int


Number: TypeAlias = int | float

_MILLI: Final = 1000
_KIBI: Final = 1024
_BYTE_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_MOST_DECIMALS: Final = 3


class Unit(StrEnum):
    """The unit of a number, the base unit of what it measures."""

    NONE = ""
    COUNT = "count"
    MILLICORES = "millicores"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    PERCENT = "percent"
    SECONDS = "seconds"  # an age


class RuleInput(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A named number with its unit, a text, or several of these."""

    name: str  # of the value, such as `cpu usage`
    value: Number | None = None  # the number, None for a text
    unit: Unit = Unit.NONE  # of `value`, `capacity`, `pod` and `deviation`
    capacity: Number | None = None  # the whole that `value` is a part of
    pod: Number | None = None  # the part of `value` that the pod adds
    deviation: Number | None = None  # the standard deviation of `value` over time
    # the highest `value` that passes, in percent of `capacity`
    allowed_percent: Number | None = None
    percent_of_nodes: Number | None = None  # the share of all nodes that have it
    text: str | None = None  # the value where it is no number: a label, taints, `none`
    # the values it consists of: amounts of several resources, or those of each container
    parts: tuple[RuleInput, ...] = ()

    def describe(self) -> str:
        """Return the value in words: `10 of 8 cores, 3.4 cores of it this pod, 65 % allowed`."""
        if self.parts:
            separator = "; " if any(part.parts for part in self.parts) else ", "
            return separator.join(f"{part.name} {part.describe()}".lstrip() for part in self.parts)
        if self.value is None:
            return self.text or ""
        words = [_quantity(self.unit, self.value, self.capacity)]
        if self.pod is not None:
            words.append(f"{_quantity(self.unit, self.pod)} of it this pod")
        if self.deviation is not None:
            words.append(f"deviation {_quantity(self.unit, self.deviation)}")
        if self.allowed_percent is not None:
            words.append(f"{self.allowed_percent} % allowed")
        if self.percent_of_nodes is not None:
            words.append(f"on {self.percent_of_nodes:.0f}% of nodes")
        return ", ".join(words)


RuleInputs: TypeAlias = tuple[RuleInput, ...]
"""The inputs of one rule for one node, in reading order."""


def unit_of(resource: str) -> Unit:
    """Return the base unit of a resource."""
    if resource == CPU:
        return Unit.MILLICORES
    return Unit.BYTES if counts_bytes(resource) else Unit.COUNT


def _quantity(unit: Unit, value: Number, whole: Number | None = None) -> str:
    """Return a number as people write it, with three decimals at most: `1.5 GiB`, `10 of 8 cores`.

    A part and its whole share the unit of the larger.
    """
    divisor, name = _scale(unit, value if whole is None else max(abs(value), abs(whole)))
    numbers = [value / divisor] if whole is None else [value / divisor, whole / divisor]
    texts = (f"{number:.{_MOST_DECIMALS}f}".rstrip("0").rstrip(".") for number in numbers)
    return f"{' of '.join(texts)} {name}".rstrip()


def _scale(unit: Unit, value: Number) -> tuple[int, str]:
    """Return the divisor of a number, and the name of its unit then."""
    match unit:
        case Unit.MILLICORES:
            return _MILLI, "core" if value == _MILLI else "cores"
        case Unit.BYTES | Unit.BYTES_PER_SECOND:
            power = 0
            while abs(value) >= _KIBI ** (power + 1) and power + 1 < len(_BYTE_UNITS):
                power += 1
            return _KIBI**power, _BYTE_UNITS[power] + ("/s" if unit is not Unit.BYTES else "")
        case Unit.PERCENT:
            return 1, "%"
        case Unit.SECONDS:
            return 1, "s old"
        case Unit.NONE | Unit.COUNT:
            return 1, ""


SCHEDULER = ""
"""The policy name of the filters that the scheduler applies itself."""

_GREATEST_COUNTED_CODE = 1 << 10

Codes: TypeAlias = NDArray[np.signedinteger[Any]]
"""A filter's code for each row, of the smallest type that holds them: caches stay small."""


class FilterResult(msgspec.Struct, eq=False):
    """Rejections of a filter by row, with codes for the reasons that are computed on demand."""

    # (n,), False where a node passes; anything for a row that is not a node
    rejects: NDArray[np.bool_]
    # the codes, or a function that computes them: few decisions are ever explained. INVARIANT: its
    # caller holds the view that was filtered
    codes_or_source: Codes | Callable[[], Codes]
    has_faults: bool = False  # whether some rows could not be evaluated

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
    """One filter over all nodes."""

    policy: str  # the policy it belongs to, SCHEDULER for the scheduler's own
    rule: str  # its name
    result: FilterResult  # rejections and codes of every row, before `onError`
    # (n,), where this filter rejects a node, after `onError`; anything for a row that is not a node
    rejects: NDArray[np.bool_]
    explainer: Explainer  # computes reasons and inputs
    dynamic: bool = True  # whether it depends on changing state rather than on node labels alone
    faults: int = 0  # the number of nodes that could not be evaluated
    # the data it reads that is too old, such as `usage`, with a text that says so; it then rejects
    # no node. Empty if it did not abstain
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
    """One scorer over the candidates, in their order."""

    policy: str
    rule: str
    weight: int  # the factor of `normalized` in the totals
    # the scores of the plugin, or of the expression as floats
    raw: NDArray[np.int64] | NDArray[np.float64]
    normalized: NDArray[np.int64]  # on 0..100 over the candidates alone
    reason: str = ""  # why it does not count (all zero), "" when it does
    faults: int = 0  # the number of candidates that could not be evaluated and scored 0
    # as in `FilterOutcome`; all candidates then get the same score
    abstained: Mapping[str, str] = {}
    # gives the values used for a row of the view, which is not an index of `raw`
    inputs: InputsByRow = no_inputs
    label_keys: tuple[str, ...] = ()  # labels of nodes that it reads
    # gives the condition on labels of the nodes that score more, of a score that knows two numbers
    # alone; None for any other
    preferred: Callable[[], LabelCondition] | None = None
