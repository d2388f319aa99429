"""The distinct combinations of values in dictionary columns, each to be evaluated once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engine.cel.vector.columns import Bools, DictColumn, MissingPath, Path

FEW: Final = 32
"""Evaluations that take no longer than a lookup in the cache."""

_DENSE: Final = 65_536  # combinations of codes up to which counting them beats sorting them


def sizes_of(columns: Sequence[DictColumn]) -> tuple[int, ...]:
    """Return how many values each column has."""
    return tuple(len(column.values) for column in columns)


def combinations_of(
    columns: Sequence[DictColumn], mask: Bools | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the combinations of codes that occur within the mask, and the index of each row's.

    The combinations are of shape (columns, m). The index of other rows is arbitrary.
    """
    sizes = sizes_of(columns)
    total = math.prod(sizes)
    if len(sizes) == 1:
        joint = columns[0].codes.astype(np.intp)
        if total <= FEW:
            return np.arange(total)[np.newaxis], joint
    else:
        joint = np.ravel_multi_index([column.codes for column in columns], sizes)
    masked = joint if mask is None else joint[mask]
    if total <= _DENSE:
        present = np.flatnonzero(np.bincount(masked, minlength=total))
        index = positions_of(present, total).take(joint)
    else:
        present = np.unique(masked)
        index = np.searchsorted(present, joint).clip(max=max(len(present) - 1, 0))
    if len(sizes) == 1:
        return present[np.newaxis], index
    return np.array(np.unravel_index(present, sizes)), index


def positions_of(numbers: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """Return the inverse of `numbers`: the position of each number below `size`, 0 for others."""
    positions = np.zeros(size, np.intp)
    positions[numbers] = np.arange(len(numbers))
    return positions


def rows_of(
    paths: Sequence[Path], columns: Sequence[DictColumn], combinations: NDArray[np.intp]
) -> Iterator[Mapping[str, object]]:
    """Return the variables of a row for each combination of codes; see `_row_of`."""
    if len(paths) > 1:
        for codes in combinations.T.tolist():
            yield _row_of(paths, columns, codes)
        return
    outward, values = paths[0][::-1], columns[0].values
    for code in combinations[0].tolist():
        value = values[code]
        if not code or type(value) is MissingPath:
            yield _row_of(paths, columns, [code])
        else:
            for key in outward:
                value = {key: value}
            yield value


def _row_of(
    paths: Sequence[Path], columns: Sequence[DictColumn], codes: Sequence[int]
) -> dict[str, object]:
    """Return the variables of a row with these codes, restricted to `paths`."""
    row: dict[str, object] = {}
    for path, column, code in zip(paths, columns, codes, strict=True):
        value = column.values[code] if code else MissingPath(len(path) - 2)
        path_to_value = path
        if type(value) is MissingPath:
            path_to_value, value = path[: value.found + 1], value.value
        *above, last = path_to_value
        parent: Any = row
        for key in above:
            parent = parent.setdefault(key, {})
        if type(value) is dict and not value:  # other paths may have filled this map
            parent.setdefault(last, {})
        else:
            parent[last] = value
    return row
