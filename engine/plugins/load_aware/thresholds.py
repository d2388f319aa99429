"""Usage thresholds of nodes for LoadAware's filter: its arguments, overlaid by an annotation.

Source: Koordinator, pkg/scheduler/plugins/loadaware (helper.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model.duration import DurationError, parse_duration
from engine.model.quantity import INT64_MAX, INT64_MIN
from engine.plugins.lib.annotations import annotation_column, read_annotation
from engine.plugins.lib.arithmetic import percent_bounds
from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.usage import WHOLE_NODE, UsageSource, capacity
from engine.view import MISSING, BoolColumn, ClusterView

USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
"""A node's own thresholds, in JSON."""

_OVERLAYS_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """A usage and its thresholds.

    Attributes:
        source: the usage.
        thresholds: percent by known resource, in their order; 0 for no threshold.
    """

    source: UsageSource
    thresholds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Checks:
    """The three checks that may apply to a node, depending on the pod.

    Attributes:
        usage: for every pod, unless one of the next two applies.
        production: for production pods, once it has a threshold other than 0.
        aggregated: for all other pods, if there is one, even one without any threshold.
    """

    usage: Check
    production: Check
    aggregated: Check | None

    def of(self, *, is_prod: bool) -> Check:
        """Return the check that applies to a pod; they neither merge nor fall through."""
        if is_prod and any(self.production.thresholds):
            return self.production
        return self.aggregated or self.usage


class NodeChecks:
    """The checks of each node, by the arguments and its annotation."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self._known = args.known
        aggregated = args.aggregated
        self._of_cluster = Checks(
            Check(WHOLE_NODE, _on(self._known, args.usage_thresholds)),
            Check(args.production_source, _on(self._known, args.prod_usage_thresholds)),
            _aggregated(
                self._known,
                aggregated.usage_thresholds,
                aggregated.usage_aggregation_type,
                aggregated.usage_aggregated_duration,
            ),
        )

    def source_of_all(self, view: ClusterView, *, is_prod: bool) -> UsageSource | None:
        """Return the usage that a pod is checked against if no node says otherwise, else None."""
        column = annotation_column(view.whole, USAGE_THRESHOLDS)
        is_annotated = column.counts[MISSING + 1 :].any()
        return None if is_annotated else self._of(None, is_prod=is_prod).source

    def sources(self, view: ClusterView, *, is_prod: bool) -> list[UsageSource]:
        """Return the usage of each node that a pod is checked against."""
        column = annotation_column(view, USAGE_THRESHOLDS)
        present = np.flatnonzero(column.counts).tolist()
        sources = {
            number: self._of(column.values[number], is_prod=is_prod).source for number in present
        }
        return [sources[number] for number in column.codes.tolist()]

    def limits(self, view: ClusterView, *, is_prod: bool) -> Limits:
        """Return the limits of each node for a pod."""

        def read(text: str | None) -> tuple[int, ...]:
            check = self._of(text, is_prod=is_prod)
            return (*check.thresholds, bool(check.source.aggregation))

        width = len(self._known) + 1
        *by_resource, is_aggregated = read_annotation(view, USAGE_THRESHOLDS, width, read)
        thresholds, totals = np.stack(by_resource), capacity(view, self._known)
        bounds = percent_bounds(thresholds)
        bounds[(thresholds == 0) | (totals <= 0)] = np.inf
        has_threshold = thresholds.any(axis=0)
        return Limits(np.vstack([bounds, np.maximum(totals, 1), has_threshold, is_aggregated]))

    def _of(self, text: str | None, *, is_prod: bool) -> Check:
        """Return the check of a pod on a node with this annotation."""
        checks = self._of_cluster
        if text is not None:
            checks = _overlaid(checks, self._known, text)
        return checks.of(is_prod=is_prod)


@dataclass(frozen=True, slots=True)
class Limits:
    """The least usage that is too much on each node.

    Attributes:
        table: (2 * n_known + 2, n), one array so that it can be remembered: the least percentage
            of each known resource that is too much, infinity where it is not checked or the node
            has none; the capacity it is a percentage of, never 0; and two flags.
    """

    table: NDArray[np.float64]

    @property
    def by_resource(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The bounds and the totals, (n_known, n) each."""
        n_known = len(self.table) // 2 - 1
        return self.table[:n_known], self.table[n_known:-2]

    @property
    def has_threshold(self) -> BoolColumn:
        """Nodes with any threshold, even for a resource that the node lacks, (n,)."""
        flags: BoolColumn = self.table[-2] != 0
        return flags

    @property
    def is_aggregated(self) -> BoolColumn:
        """Nodes whose thresholds apply to a percentile, (n,)."""
        flags: BoolColumn = self.table[-1] != 0
        return flags


_Thresholds: TypeAlias = (
    dict[str, Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)] | None] | None
)


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _lower(name: str) -> str:
    return name.replace("_", "")


class _Aggregated(msgspec.Struct, rename=_lower):
    usage_thresholds: _Thresholds = None
    usage_aggregation_type: str | None = None
    usage_aggregated_duration: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class _Annotation(msgspec.Struct, rename=_lower):
    usage_thresholds: _Thresholds = None
    prod_usage_thresholds: _Thresholds = None
    aggregated_usage: msgspec.Raw = msgspec.Raw(b"null")


@lru_cache(maxsize=_OVERLAYS_REMEMBERED)
def _overlaid(checks: Checks, known: tuple[str, ...], text: str) -> Checks:
    """Return `checks` with those parts replaced that an annotation gives.

    A part that is given replaces the cluster's as a whole. A malformed annotation is ignored.
    """
    try:
        own = _read(text, _Annotation)
        usage = _read(own.aggregated_usage, _Aggregated)
        aggregated = _aggregated(
            known,
            usage.usage_thresholds,
            usage.usage_aggregation_type,
            usage.usage_aggregated_duration,
        )
    except (msgspec.DecodeError, DurationError, RecursionError):
        return checks
    if own.usage_thresholds:
        checks = replace(checks, usage=Check(WHOLE_NODE, _on(known, own.usage_thresholds)))
    if own.prod_usage_thresholds:
        production = Check(checks.production.source, _on(known, own.prod_usage_thresholds))
        checks = replace(checks, production=production)
    if aggregated:
        checks = replace(checks, aggregated=aggregated)
    return checks


def _read(text: str | msgspec.Raw, kind: type[_Struct]) -> _Struct:
    """Return a JSON object, in whose keys case does not matter, as Go reads them; null is empty.

    Of a key that is given twice the last value counts, where Go would merge the maps of both.

    Raises:
        msgspec.DecodeError: the text is not JSON, or of another shape.
    """
    fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | None) or {}
    by_name = {name.casefold(): value for name, value in fields.items()}
    return msgspec.json.decode(msgspec.json.encode(by_name), type=kind)


def _aggregated(
    known: tuple[str, ...],
    thresholds: Mapping[str, int | None] | None,
    aggregation: str | None,
    duration: str | None,
) -> Check | None:
    """Return a check on a percentile, None unless both thresholds and a type are given.

    Raises:
        DurationError: the duration is malformed.
    """
    duration_ns = parse_duration(duration or "")
    if not thresholds or not aggregation:
        return None
    source = UsageSource(aggregation=aggregation, duration_ns=duration_ns)
    return Check(source, _on(known, thresholds))


def _on(known: tuple[str, ...], thresholds: Mapping[str, int | None]) -> tuple[int, ...]:
    """Return thresholds by known resource; unknown ones are dropped."""
    return tuple(thresholds.get(name) or 0 for name in known)
