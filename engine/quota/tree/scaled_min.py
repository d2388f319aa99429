"""Guarantees of the children of a quota, reduced where their sum is more than there is.

Source: koordinator, core/scale_minquota_when_over_root_res.go. The division is upstream's, in
float64, so that the same bytes come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.model.resources import Amounts
from engine.quota.bounds import sum_of


@dataclass(frozen=True, slots=True)
class ChildMin:
    """The guarantee of one child.

    Attributes:
        name: of the quota.
        min: as its object says, base units.
        scales: whether it may be reduced; those that may not come first.
    """

    name: str
    min: Amounts
    scales: bool = True


def scaled_mins(total: Amounts, children: Sequence[ChildMin]) -> dict[str, Amounts]:
    """Return the guarantee of each child, by name.

    In a resource of which all guarantees come to more than the total, each child that scales gets
    its part of what is left by those that do not. Resources that the total does not name stay.
    """
    fixed = sum_of(child.min for child in children if not child.scales)
    scaling = sum_of(child.min for child in children if child.scales)
    short = {
        name: amount - fixed.get(name, 0)
        for name, amount in total.items()
        if amount < fixed.get(name, 0) + scaling.get(name, 0)
    }
    return {
        child.name: _scaled(child.min, short, scaling) if child.scales else child.min
        for child in children
    }


def _scaled(guaranteed: Amounts, left: Mapping[str, int], scaling: Amounts) -> Amounts:
    """Return a guarantee with its part of what is left of each resource that is short."""
    if not left:
        return guaranteed
    parts = {
        name: _part(amount, guaranteed.get(name, 0), scaling.get(name, 0))
        for name, amount in left.items()
    }
    return {**guaranteed, **parts}


def _part(left: int, own: int, all_of_them: int) -> int:
    if left <= 0 or all_of_them <= 0:
        return 0
    return int(float(left) * float(own) / float(all_of_them))
