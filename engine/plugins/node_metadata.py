"""NodeMetadata: prefer nodes by a number or a time in one of their labels or annotations.

Source: scheduler-plugins, pkg/nodemetadata. Numbers are cut to whole ones.

No difference from upstream is known.
"""

# Times in the layouts of Go's `time` package, in which an example stands for the format.
#
# Source: pkg/time, Layout and Parse. A layout is the moment "Mon Jan 2 15:04:05 MST 2006" written
# as times will be, so "2006-01-02" reads 2026-11-20. `strptime` cannot read them all: it knows
# neither widths of numbers, nor fractions of any length, nor foreign zones.

from __future__ import annotations

import math
import re
from calendar import day_abbr, day_name, month_abbr, month_name
from datetime import datetime, timedelta, timezone
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, model_validator

from engine.model.node import Node
from engine.model.quantity import INT64_MIN
from engine.model.rule_outcomes import RuleInput, RuleInputs
from engine.model.time import SECOND, Micros, micros
from engine.plugins.base import MAX_SCORE, Args, Cycle, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import minmax_normalize, trunc_div
from engine.view import Domain, IntColumn

RFC3339: Final = "2006-01-02T15:04:05Z07:00"

_HALF_A_DAY: Final = 12  # hours
_MICRO_DIGITS: Final = 6
_FIRST_OF_1900S: Final = 69
"""Years of two digits from here on belong to the 20th century."""

_DIGIT: Final = r"\\d"
_ELEMENTS: Final = {
    "January": rf"(?P<month_name>{'|'.join(month_name[1:])})",
    "Jan": rf"(?P<month_name>{'|'.join(month_abbr[1:])})",
    "Monday": rf"(?:{'|'.join(day_name)})",
    "Mon": rf"(?:{'|'.join(day_abbr)})",
    "MST": r"(?P<zone>[A-Z]{3,4})",
    "2006": r"(?P<year>\d{4})",
    "002": r"(?P<day_of_year>\d{3})",
    "01": r"(?P<month>\d\d)",
    "02": r"(?P<day>\d\d)",
    "03": r"(?P<hour12>\d\d)",
    "04": r"(?P<minute>\d\d)",
    "05": r"(?P<second>\d\d)(?P<fraction>[.,]\d+)?",
    "06": r"(?P<year2>\d\d)",
    "15": r"(?P<hour>\d\d?)",
    "_2": r"(?P<day> ?\d\d?)",
    "PM": r"(?P<half>AM|PM)",
    "pm": r"(?P<half>am|pm)",
    "1": r"(?P<month>\d\d?)",
    "2": r"(?P<day>\d\d?)",
    "3": r"(?P<hour12>\d\d?)",
    "4": r"(?P<minute>\d\d?)",
    "5": r"(?P<second>\d\d?)(?P<fraction>[.,]\d+)?",
    **{
        f"{sign}{digits}": rf"(?P<offset>{zulu}[+-]{re.sub('[0-9]', _DIGIT, digits)})"
        for sign, zulu in (("-", ""), ("Z", "Z|"))
        for digits in ("07:00:00", "07:00", "070000", "0700", "07")
    },
}
"""The pattern of each element of a layout; a fraction may follow any second, as in Go."""

_FRACTION: Final = r"(?:[.,](?:0+|9+)(?!\d))?"  # of a layout: it is read with or without
_AFTER: Final = {"05": _FRACTION, "5": _FRACTION, "_2": "(?!006)"}
_SPLIT: Final = re.compile(
    "|".join(
        f"({re.escape(element)}){_AFTER.get(element, '')}"
        for element in sorted(_ELEMENTS, key=len, reverse=True)
    )
)


class GoLayout:
    """Reads times of one layout."""

    def __init__(self, layout: str) -> None:
        pattern, end = "", 0
        for found in _SPLIT.finditer(layout):
            literal = re.escape(layout[end : found.start()])
            pattern += literal + _ELEMENTS[found[found.lastindex or 0]]
            end = found.end()
        try:
            self._pattern = re.compile(pattern + re.escape(layout[end:]), re.ASCII)
        except re.error:
            raise ValueError(f"layout `{layout}` names a part of the time twice") from None
        if not self._pattern.groups:
            raise ValueError(f"layout `{layout}` names no part of a time, as `2006-01-02` does")

    def read(self, text: str) -> Micros | None:
        """Return the moment of a text, in UTC without a zone; None if it is none."""
        match = self._pattern.fullmatch(text)
        if match is None:
            return None
        parts = {name: part for name, part in match.groupdict().items() if part is not None}
        try:
            return micros(_moment(parts))
        except (ValueError, OverflowError):
            return None


def _moment(parts: dict[str, str]) -> datetime:
    """Return the moment of named parts; the others are the least possible."""
    year = int(parts.get("year2", 1))
    if "year2" in parts:
        year += 1900 if year >= _FIRST_OF_1900S else 2000
    year = int(parts.get("year", year))
    month = int(parts.get("month", 1))
    if "month_name" in parts:
        month = list(month_abbr).index(parts["month_name"][:3])
    hour = int(parts.get("hour", 0))
    if "hour12" in parts:
        hour = int(parts["hour12"])
        if hour > _HALF_A_DAY:
            raise ValueError("no such hour")
        if "half" in parts:
            hour = hour % _HALF_A_DAY + _HALF_A_DAY * (parts["half"].upper() == "PM")
    fraction = parts.get("fraction", ".0")[1 : _MICRO_DIGITS + 1].ljust(_MICRO_DIGITS, "0")
    moment = datetime(
        year,
        month,
        int(parts.get("day", 1)),
        hour,
        int(parts.get("minute", 0)),
        int(parts.get("second", 0)),
        int(fraction),
        timezone(_offset(parts.get("offset", "Z"))),
    )
    if "day_of_year" in parts:
        moment = moment.replace(month=1, day=1) + timedelta(days=int(parts["day_of_year"]) - 1)
        if moment.year != year:
            raise ValueError("no such day of the year")
    return moment


def _offset(text: str) -> timedelta:
    """Return the distance east of UTC of an offset such as `+02:00`, `-0730` or `Z`."""
    digits = text[1:].replace(":", "").ljust(6, "0")
    east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:4]), seconds=int(digits[4:]))
    return -east if text[0] == "-" else east


_NODES = (Domain.NODES,)
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NOT_THERE = INT64_MIN
"""The raw score of a node without a readable value; less than any other."""

_FARTHEST = 2**62
_BY_TYPE: Final = {"Number": ("Highest", "Lowest"), "Timestamp": ("Newest", "Oldest")}
_REVERSED: Final = ("Lowest", "Newest")


def _key(text: str) -> str:
    if not text:
        raise ValueError("metadataKey cannot be empty")
    return text


def _layout(text: str) -> str:
    GoLayout(text or RFC3339)
    return text or RFC3339


class NodeMetadataArgs(Args):
    """NodeMetadataArgs; all but `timestampFormat` must be given.

    Attributes:
        metadata_key: the name of the label or annotation.
        metadata_source: which of the two it is.
        metadata_type: what it holds.
        scoring_strategy: which nodes are preferred: `Highest` and `Lowest` of numbers, `Newest` and
            `Oldest` of timestamps.
        timestamp_format: how timestamps are written, as Go's `time` package has it; RFC 3339 if
            empty.
    """

    metadata_key: Annotated[str, AfterValidator(_key)]
    metadata_source: Literal["Label", "Annotation"]
    metadata_type: Literal["Number", "Timestamp"]
    scoring_strategy: Literal["Highest", "Lowest", "Newest", "Oldest"]
    timestamp_format: Annotated[str, AfterValidator(_layout)] = RFC3339

    @model_validator(mode="after")
    def _has_a_strategy_of_its_type(self) -> Self:
        for kind, (first, second) in _BY_TYPE.items():
            if kind != self.metadata_type and self.scoring_strategy in (first, second):
                raise ValueError(
                    f"`scoringStrategy` `{first}` and `{second}` are only valid for `metadataType`"
                    f" `{kind}`"
                )
        return self


class NodeMetadataScore(Score):
    """Scores nodes by a label or annotation, 0 without it."""

    def __init__(self, args: NodeMetadataArgs) -> None:
        self._key = args.metadata_key
        self._in_labels = args.metadata_source == "Label"
        self._layout = (
            GoLayout(args.timestamp_format) if args.metadata_type == "Timestamp" else None
        )
        self._sign = -1 if args.scoring_strategy in _REVERSED else 1

    def score(self, cycle: Cycle) -> Scores:
        """Return the number, or the age in whole seconds; below 0 where less is better."""
        values = cycle.view.node_column(
            self, _NODES, lambda rows: np.array([*map(self._value, rows.nodes)], np.int64)
        )
        is_there = values != _NOT_THERE
        raw = np.where(is_there, values, 0)
        if self._layout is not None:
            raw = trunc_div(cycle.now - raw, SECOND)
        return Scores(np.where(is_there, self._sign * raw, _NOT_THERE))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return 1 for the lowest up to MAX_SCORE for the highest; all get 1 if they are equal."""
        is_there = scores != _NOT_THERE
        points = np.zeros(scores.size, np.int64)
        points[is_there] = 1 + minmax_normalize(scores[is_there], MAX_SCORE - 1)
        return points

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        node, source = cycle.view.nodes[row], "label" if self._in_labels else "annotation"
        texts = (node.labels if self._in_labels else node.annotations) if node else {}
        return (RuleInput(f"{source} {self._key}", text=texts.get(self._key, "absent")),)

    def _value(self, node: Node | None) -> int:
        """Return a node's number, or its time in microseconds since the epoch."""
        texts = (node.labels if self._in_labels else node.annotations) if node else {}
        text = texts.get(self._key)
        if text is None:
            return _NOT_THERE
        if self._layout is None:
            return _number(text)
        moment = self._layout.read(text)
        return _NOT_THERE if moment is None else moment


def _number(text: str) -> int:
    """Return the number in a text, without its fraction."""
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    if not math.isfinite(number):
        return _NOT_THERE
    return max(-_FARTHEST, min(int(number), _FARTHEST))


PLUGIN = Plugin(args=NodeMetadataArgs, score=NodeMetadataScore, reads=_NODES)
