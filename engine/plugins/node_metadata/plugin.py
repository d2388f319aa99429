"""NodeMetadata: prefer nodes by a number or a time in one of their labels or annotations.

Source: scheduler-plugins, pkg/nodemetadata. Numbers are cut to whole ones, as upstream cuts them.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, model_validator

from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.quantity import INT64_MIN
from engine.model.rule_input import RuleInput, RuleInputs
from engine.model.time import SECOND, Micros
from engine.plugins.base import MAX_SCORE, Args, NeverFaults, Plugin, Scores
from engine.plugins.lib.arithmetic import minmax_normalize, trunc_div
from engine.plugins.node_metadata.go_layout import RFC3339, GoLayout
from engine.view import ClusterView, Domain, IntColumn

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


class NodeMetadataScore(NeverFaults):
    """Scores nodes by a label or annotation, 0 without it."""

    def __init__(self, args: NodeMetadataArgs) -> None:
        self._key = args.metadata_key
        self._in_labels = args.metadata_source == "Label"
        self._layout = (
            GoLayout(args.timestamp_format) if args.metadata_type == "Timestamp" else None
        )
        self._sign = -1 if args.scoring_strategy in _REVERSED else 1

    def score(self, pod: Pod, view: ClusterView, now: Micros) -> Scores:  # noqa: ARG002 (protocol)
        """Return the number, or the age in whole seconds; below 0 where less is better."""
        values = view.node_column(
            self, _NODES, lambda rows: np.array([*map(self._value, rows.nodes)], np.int64)
        )
        is_there = values != _NOT_THERE
        raw = np.where(is_there, values, 0)
        if self._layout is not None:
            raw = trunc_div(now - raw, SECOND)
        return Scores(np.where(is_there, self._sign * raw, _NOT_THERE))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return 1 for the lowest up to MAX_SCORE for the highest; all get 1 if they are equal."""
        is_there = scores != _NOT_THERE
        points = np.zeros(scores.size, np.int64)
        points[is_there] = 1 + minmax_normalize(scores[is_there], MAX_SCORE - 1)
        return points

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the label or annotation."""
        node, source = view.nodes[row], "label" if self._in_labels else "annotation"
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
