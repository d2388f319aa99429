"""Which namespaces are asked about, and how that may change: values and functions, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.quota import Reach

MOST_NAMES = 10_000
"""Names in a selector; beyond it all namespaces are selected. At 63 characters each they take half
of the 1.5 MB that an object may have.
"""

_MOST_KEPT = 1_000  # in an annotation; all annotations together have 256 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """An announcement of the leader that it will narrow the selection.

    Attributes:
        id: of the announcement; no two have the same.
        keep: namespaces that were needed since, and stay.
    """

    id: str
    keep: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The namespaces that are asked about.

    Attributes:
        names: of the namespaces, None for all but those that are excluded.
        narrowing: the announcement that they will be fewer, None for none.
    """

    names: Reach
    narrowing: Narrowing | None = None

    def covers(self, reach: Reach) -> bool:
        """Whether all these namespaces are asked about."""
        return self.names is None or (reach is not None and reach <= self.names)


def covering(selection: Selection, reach: Reach) -> Selection:
    """Return a selection with further namespaces, which an announced narrowing will keep."""
    if reach is None:
        return Selection(names=None)
    names, narrowing = selection.names, selection.narrowing
    if names is not None:
        names = bounded(names | reach)
    if narrowing is not None:
        keep = narrowing.keep | reach
        narrowing = replace(narrowing, keep=keep) if len(keep) <= _MOST_KEPT else None
    return Selection(names=names, narrowing=narrowing)


def narrowed(selection: Selection, reach: Reach) -> Selection:
    """Return the selection with which an announced narrowing ends.

    Args:
        selection: with the announcement.
        reach: the namespaces of all quotas that are stored.
    """
    keep = selection.narrowing.keep if selection.narrowing else frozenset()
    return Selection(names=None if reach is None else bounded(reach | keep))


def bounded(names: frozenset[str]) -> Reach:
    """Return names, None where they are too many for a selector."""
    return names if len(names) <= MOST_NAMES else None


def may_be_narrowed(selection: Selection, reach: Reach) -> bool:
    """Whether a selection has more namespaces than the quotas that are known reach."""
    if reach is None or bounded(reach) is None:
        return False
    return selection.names is None or bool(selection.names - reach)
