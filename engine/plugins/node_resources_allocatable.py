"""NodeResourcesAllocatable: prefer small nodes, or large ones.

Source: scheduler-plugins, pkg/noderesources/{allocatable,resource_allocation}.go. Only the size of
nodes counts, neither the pod nor what already runs. The allocatable amounts are weighted, cpu in
millicores and everything else in whole units; with the default weights a millicore is worth a MiB
of memory.

Differences from upstream:

- **Large sums** are exact. Upstream's wrap around beyond int64.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from engine.documents import warn
from engine.model.quantity import CPU, MEMORY, NATIVE, is_scalar
from engine.model.rule_outcomes import RuleInput, RuleInputs, unit_of
from engine.plugins.base import Args, Cycle, Plugin, ResourceName, Score, Scores
from engine.plugins.lib.arithmetic import minmax_normalize
from engine.view import ClusterView, Domain, IntColumn

_NODES = (Domain.NODES,)


class WeighedResource(Args):
    """A resource that counts, and how much a unit of it does."""

    name: ResourceName
    weight: Annotated[int, Field(strict=True)]

    @field_validator("weight")
    @classmethod
    def _is_positive(cls, weight: int, info: ValidationInfo) -> int:
        if weight <= 0:
            name = info.data.get("name")
            raise ValueError(f"resource weight of {name} should be a positive value, got :{weight}")
        return weight


_FEWEST_BYTES: Final = 1000  # that a millicore counts as much as
_DEFAULT: Final = (WeighedResource(name=CPU, weight=2**20), WeighedResource(name=MEMORY, weight=1))


class NodeResourcesAllocatableArgs(Args):
    """NodeResourcesAllocatableArgs, with upstream's defaults.

    Attributes:
        mode: `Least` prefers the smallest nodes, `Most` the largest.
        resources: of two entries for one resource the last one counts; none means the default.
    """

    mode: Literal["Least", "Most"] = "Least"
    resources: tuple[WeighedResource, ...] = _DEFAULT

    @field_validator("resources")
    @classmethod
    def _or_default(
        cls, resources: tuple[WeighedResource, ...], info: ValidationInfo
    ) -> tuple[WeighedResource, ...]:
        weights = {each.name: each.weight for each in resources}
        if MEMORY in weights and 0 < weights.get(CPU, 0) < _FEWEST_BYTES * weights[MEMORY]:
            what = (
                "it counts cpu in millicores and memory in bytes: by these weights memory decides"
            )
            warn(info, what, f"for cpu write `weight: {2**20 * weights[MEMORY]}`")
        return resources or _DEFAULT


class NodeResourcesAllocatableScore(Score):
    """Scores nodes by what they offer in all."""

    def __init__(self, args: NodeResourcesAllocatableArgs) -> None:
        self._weights = {resource.name: resource.weight for resource in args.resources}
        self._total = sum(self._weights.values())
        self._sign = 1 if args.mode == "Most" else -1

    def score(self, cycle: Cycle) -> Scores:
        """Return the weighted mean of what nodes offer, truncated; below 0 in mode `Least`."""
        return Scores(cycle.view.node_column(self, _NODES, self._means))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return the scores stretched over the scale, 0 if they are equal."""
        return minmax_normalize(scores)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return tuple(
            RuleInput(
                name, int(cycle.view.amount(cycle.view.allocatable, name)[row]), unit_of(name)
            )
            for name in self._weights
        )

    def _means(self, rows: ClusterView) -> IntColumn:
        """Return the mean of each row, in Python's integers: weights may be of any size."""
        total = np.zeros(len(rows), object)
        for name, weight in self._weights.items():
            if name in NATIVE or is_scalar(name):
                total += np.maximum(rows.amount(rows.allocatable, name), 0).astype(object) * weight
        means: IntColumn = (total // self._total).astype(np.int64)
        return self._sign * means


PLUGIN = Plugin(
    args=NodeResourcesAllocatableArgs, score=NodeResourcesAllocatableScore, reads=_NODES
)
