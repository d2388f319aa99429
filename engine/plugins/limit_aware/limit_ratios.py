"""Koordinator's limit ratios: the sum of limits that a node allows, in percent of allocatable.

Source: Koordinator pull request 1486, apis/extension/limitaware.go and
pkg/scheduler/plugins/limitaware/util.go. A ratio is a number of percent, written as an integer or
as `"N%"`. A node's annotation replaces the cluster's ratios as a whole, an empty one with none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, TypeAlias

import msgspec
import numpy as np

from engine.model.node import Node
from engine.model.resource_names import NATIVE, is_scalar
from engine.plugins.lib.annotations import annotation_column, read_annotation
from engine.plugins.lib.arithmetic import percent_of
from engine.view import BoolColumn, ClusterView, IntColumn

LIMIT_TO_ALLOCATABLE = "node.koordinator.sh/limit-to-allocatable"
"""A node's own ratios, in JSON."""

MOST_PERCENT = 2_000_000
"""The greatest ratio; more than this counts as this."""

MOST_CAPACITY = 2**53
"""The greatest capacity, 9 PB; a hundred times what is free of it fits int64."""

_ANNOTATIONS_REMEMBERED = 4096
_PERCENTAGE = re.compile(r"([+-]?[0-9]{1,18})%", re.ASCII)

Written: TypeAlias = Mapping[str, int | str]
"""Ratios as they are written, by resource name."""


@dataclass(frozen=True, slots=True)
class Ratios:
    """Ratios that were read, good or not.

    Attributes:
        percents: by resource name, those that could be read.
        faults: by resource name, why one could not be read.
        fault: why none could be read at all, empty if they could.
    """

    percents: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether all of them could be read."""
        return not (self.fault or self.faults)

    def fault_on(self, node: Node) -> str:
        """Return why a node cannot be judged by these ratios, empty if it can.

        Upstream reads those of NATIVE always, and others only for nodes that offer the resource.
        """
        scalars = sorted(name for name in node.allocatable if is_scalar(name))
        unread = (self.faults[name] for name in (*NATIVE, *scalars) if name in self.faults)
        return self.fault or next(unread, "")


class NodeRatios:
    """The ratios of each node: its own, or else the cluster's."""

    def __init__(self, of_cluster: Written) -> None:
        self._of_cluster = read(of_cluster)

    def named(self, view: ClusterView) -> set[str]:
        """Return every resource that some node has a ratio for."""
        column = annotation_column(view, LIMIT_TO_ALLOCATABLE)
        present = np.flatnonzero(column.counts).tolist()
        return set().union(*(self._of(column.values[number]).percents for number in present))

    def capacity(self, view: ClusterView, name: str) -> tuple[BoolColumn, IntColumn]:
        """Return where a resource has a ratio, and what limits of it may add up to, (n,) each.

        That is all of what a node offers where there is no ratio.
        """

        def percent(text: str | None) -> tuple[int, int]:
            percents = self._of(text).percents
            return name in percents, percents.get(name, 100)

        covered, percents = read_annotation(view, LIMIT_TO_ALLOCATABLE, 2, percent)
        amounts = percent_of(view.amount(view.allocatable, name), percents)
        return covered != 0, np.clip(amounts, -MOST_CAPACITY, MOST_CAPACITY)

    def faulty(self, view: ClusterView) -> BoolColumn:
        """Return which nodes cannot be judged by their ratios, shape (n,)."""
        (is_sound,) = read_annotation(
            view, LIMIT_TO_ALLOCATABLE, 1, lambda text: [self._of(text).is_sound]
        )
        faulty: BoolColumn = is_sound == 0
        for row in np.flatnonzero(faulty).tolist():
            faulty[row] = bool(self.fault_of(view.nodes[row]))
        return faulty

    def fault_of(self, node: Node | None) -> str:
        """Return why a node cannot be judged by its ratios, empty if it can."""
        if node is None:
            return ""
        return self._of(node.annotations.get(LIMIT_TO_ALLOCATABLE)).fault_on(node)

    def _of(self, text: str | None) -> Ratios:
        return self._of_cluster if text is None else _annotated(text)


def is_percentage(text: str) -> bool:
    """Return whether a text is a whole number of percent, such as `150%`."""
    return _PERCENTAGE.fullmatch(text) is not None


def read(written: Written) -> Ratios:
    """Return ratios as they are meant."""
    percents: dict[str, int] = {}
    faults: dict[str, str] = {}
    for name, value in written.items():
        match = None if isinstance(value, int) else _PERCENTAGE.fullmatch(value)
        if isinstance(value, int) or match:
            percent = int(match[1] if match else value)
            percents[name] = max(-MOST_PERCENT, min(percent, MOST_PERCENT))
        else:
            faults[name] = f"the ratio of {name}, `{value}`, is neither an integer nor a percentage"
    return Ratios(percents, faults)


_Annotation: TypeAlias = (
    dict[str, Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)] | str | None] | None
)


@lru_cache(maxsize=_ANNOTATIONS_REMEMBERED)
def _annotated(text: str) -> Ratios:
    try:
        ratios = msgspec.json.decode(text, type=_Annotation) or {}
    except (msgspec.DecodeError, RecursionError):
        return Ratios(fault=f"annotation `{LIMIT_TO_ALLOCATABLE}` is not a JSON map of ratios")
    return read({name: 0 if value is None else value for name, value in ratios.items()})
