"""The args of LimitAware, with upstream's names and defaults."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from engine.documents import mistake, warn
from engine.plugins.base import MAX_SCORE, Args
from engine.plugins.limit_aware.limit_ratios import (
    LIMIT_TO_ALLOCATABLE,
    MOST_PERCENT,
    is_percentage,
    read,
)

_PLAUSIBLE = 20
"""Percent: below this a number is more likely a factor."""


def _one_for_zero(weight: int) -> int:
    return weight or 1


_Weight: TypeAlias = Annotated[
    int, Field(strict=True, ge=0, le=MAX_SCORE), AfterValidator(_one_for_zero)
]


def _readable(value: object) -> object:
    """Refuse what `limit_ratios.read` cannot read; on a node it would be a fault."""
    is_whole = type(value) is int and -(2**31) <= value < 2**31
    if is_whole or (isinstance(value, str) and is_percentage(value)):
        return value
    percent = _meant(str(value))
    hint = 'such as 150 or "150%"' if percent is None else f'write {percent} or "{percent}%"'
    raise mistake("expected a whole number of percent", hint)


def _meant(text: str) -> int | None:
    """Return the percent that a text most likely stands for: `1.5` is a factor."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        return None
    is_factor = abs(number) < _PLAUSIBLE and "%" not in text
    percent = 100 * number if is_factor else number
    return round(percent) if abs(percent) <= MOST_PERCENT else None


_Ratio: TypeAlias = Annotated[int | str, BeforeValidator(_readable)]
_WEIGHTS = {"cpu": 1, "memory": 1}


def _default_weights(weights: dict[str, int]) -> dict[str, int]:
    return weights or _WEIGHTS


class LimitAwareArgs(Args):
    """LimitAwareArgs, with upstream's defaults.

    Attributes:
        scoring_resource_weights: weight of each resource's score; 0 counts as 1.
        default_limit_to_allocatable_ratio: percent of its allocatable that a node's limits may
            add up to, an integer or `"N%"`, by resource name.
        strategy: what is preferred; upstream has LeastAllocated alone. Balanced prefers nodes
            where the pod makes the share of limits most even over nodes, whatever their sizes.
    """

    scoring_resource_weights: Annotated[dict[str, _Weight], AfterValidator(_default_weights)] = (
        Field(default=_WEIGHTS)
    )
    default_limit_to_allocatable_ratio: dict[str, _Ratio] = Field(
        default_factory=dict, validate_default=True
    )

    strategy: Literal["LeastAllocated", "Balanced"] = "LeastAllocated"

    @field_validator("default_limit_to_allocatable_ratio")
    @classmethod
    def _ratios_are_plausible(
        cls, ratios: dict[str, int | str], info: ValidationInfo
    ) -> dict[str, int | str]:
        """Warn of ratios that were meant as factors, and of none at all."""
        for name, percent in read(ratios).percents.items():
            if 0 < percent < _PLAUSIBLE:
                warn(
                    info,
                    f"`defaultLimitToAllocatableRatio` of {name} is {percent} %; for {percent}"
                    f" times what a node offers write {percent * 100}",
                )
        if not ratios:
            warn(
                info,
                "without `defaultLimitToAllocatableRatio` it has an effect only on nodes with the"
                f" annotation `{LIMIT_TO_ALLOCATABLE}`",
            )
        return ratios
