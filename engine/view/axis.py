"""The resource axis, columns over nodes, and the ends of a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntColumn: TypeAlias = NDArray[np.int64]
"""One int64 per node, or per resource and node with the node on the last axis."""

BoolColumn: TypeAlias = NDArray[np.bool_]
"""One bool per node."""

GREATEST_AMOUNT = 2**48
"""The most one pod, node or report may count for: 281 TB, far above any machine.

INVARIANT: 256 pods of this size on a node, times the 100 of a percent formula, stay below 2**63,
so no sum or product over the columns wraps, with any limit of a hostile pod.
"""

CPU, MEMORY, EPHEMERAL_STORAGE, PODS = 0, 1, 2, 3
_FIXED = ("cpu", "memory", "ephemeral-storage", "pods")


@dataclass(frozen=True, slots=True)
class ResourceAxis:
    """Resource names in column order: the four fixed ones, then each further one as it is seen.

    An axis never changes; `including` returns a longer one that agrees on all earlier columns.
    """

    names: tuple[str, ...] = _FIXED
    _index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    _spans: dict[tuple[str, ...], slice | None] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", {name: i for i, name in enumerate(self.names)})

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """Return the column of a resource, None if no object has named it yet."""
        return self._index.get(name)

    def span(self, names: tuple[str, ...]) -> slice | None:
        """Return the columns of some resources if they lie side by side, as cpu and memory do."""
        if names not in self._spans:
            found = [self._index.get(name, -1) for name in names]
            start = found[0] if found else -1
            is_span = start >= 0 and found == list(range(start, start + len(found)))
            self._spans[names] = slice(start, start + len(found)) if is_span else None
        return self._spans[names]

    def including(self, names: Iterable[str]) -> ResourceAxis:
        """Return an axis that also has `names`; the same one when it has them already."""
        new = tuple(dict.fromkeys(name for name in names if name not in self._index))
        return ResourceAxis(self.names + new) if new else self

    def vector(self, amounts: Mapping[str, int]) -> IntColumn:
        """Return `amounts` on this axis, shape (n_resources,), capped; other names are dropped."""
        row = np.zeros(len(self.names), np.int64)
        known = amounts if len(amounts) <= len(self.names) else amounts.keys() & self._index.keys()
        for name in known:
            at = self._index.get(name)
            if at is not None:
                row[at] = capped(amounts[name])
        return row


def capped(amount: int) -> int:
    """Return the nearest amount that is at most GREATEST_AMOUNT in magnitude."""
    return max(-GREATEST_AMOUNT, min(amount, GREATEST_AMOUNT))


def extremes(values: NDArray[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest value as Python numbers; NaN where any is.

    By their positions: numpy finds those in half the time that `min` and `max` take.

    Args:
        values: of any shape, at least one.
    """
    return values.item(values.argmin()), values.item(values.argmax())
