"""The args of NodeResourcesFit, as `NodeResourcesFitArgs` of kubescheduler.config.k8s.io/v1."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from engine.model.resource_names import CPU, MEMORY
from engine.model.selectors import is_label_key
from engine.plugins.base import MAX_SCORE, Args

_RATIO: Final = "RequestedToCapacityRatio"

GREATEST_SHAPE_SCORE: Final = 10
"""What a point of a shape may be worth at most."""


def _resource_name(name: str) -> str:
    if not is_label_key(name):
        raise ValueError(f"`{name}` is not the name of a resource")
    return name


def _resource_group(group: str) -> str:
    if "/" in group:
        raise ValueError("resource group name can't contain '/'")
    return _resource_name(group)


_Integer: TypeAlias = Annotated[int, Field(strict=True)]


def _from_zero_to(greatest: int) -> AfterValidator:
    def check(value: int) -> int:
        if not 0 <= value <= greatest:
            raise ValueError(f"not in valid range [0, {greatest}]")
        return value

    return AfterValidator(check)


class ResourceSpec(Args):
    """A resource that counts, and how much."""

    name: str
    weight: _Integer = 1

    @field_validator("weight")
    @classmethod
    def _in_range(cls, weight: int, info: ValidationInfo) -> int:
        if not 0 < weight <= MAX_SCORE:
            name = info.data.get("name")
            raise ValueError(f"resource weight of {name} not in valid range (0, {MAX_SCORE}]")
        return weight


class ShapePoint(Args):
    """The score, of 10, of a node with a utilization in percent."""

    utilization: Annotated[_Integer, _from_zero_to(100)]
    score: Annotated[_Integer, _from_zero_to(GREATEST_SHAPE_SCORE)]


class RatioArgs(Args):
    """The points between which RequestedToCapacityRatio draws straight lines."""

    shape: tuple[ShapePoint, ...]

    @field_validator("shape")
    @classmethod
    def _increases(cls, shape: tuple[ShapePoint, ...]) -> tuple[ShapePoint, ...]:
        if not shape:
            raise ValueError("at least one point must be specified")
        at = [point.utilization for point in shape]
        if any(left >= right for left, right in pairwise(at)):
            raise ValueError("utilization values must be sorted in increasing order")
        return shape


class ScoringStrategy(Args):
    """The preferred utilization of nodes, and the resources that count.

    Attributes:
        type: the scheduler's, or Balanced: where the pod makes the share of requests most even over
            nodes, whatever their sizes.
        resources: that count.
        requested_to_capacity_ratio: for the type of that name.
    """

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio", "Balanced"] = (
        "LeastAllocated"
    )
    resources: tuple[ResourceSpec, ...] = (ResourceSpec(name=CPU), ResourceSpec(name=MEMORY))
    requested_to_capacity_ratio: RatioArgs | None = None

    @model_validator(mode="after")
    def _has_a_shape_for_the_ratio_alone(self) -> Self:
        if self.type == _RATIO and self.requested_to_capacity_ratio is None:
            raise ValueError(f"`requestedToCapacityRatio` is required for type {_RATIO}")
        if self.type != _RATIO and self.requested_to_capacity_ratio is not None:
            raise ValueError(f"`requestedToCapacityRatio` is only for type {_RATIO}")
        return self


class NodeResourcesFitArgs(Args):
    """NodeResourcesFitArgs; the first two concern the filter alone.

    Attributes:
        ignored_resources: extended resources that are not looked at.
        ignored_resource_groups: the same by the part of their name before the slash.
        scoring_strategy: how full a node should be, judged by which resources.
    """

    ignored_resources: tuple[Annotated[str, AfterValidator(_resource_name)], ...] = ()
    ignored_resource_groups: tuple[Annotated[str, AfterValidator(_resource_group)], ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy()
