"""What rules work out for all nodes together, remembered while nothing changes that it rests on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from engine.view.column_cache import FORGOTTEN_AFTER

if TYPE_CHECKING:
    from engine.view.cluster_view import ClusterView
    from engine.view.domain import Domain

_T = TypeVar("_T")


class CommonCache:
    """A bounded, least-recently-used memory; it changes how fast an answer comes, nothing else.

    Args:
        most: how much is remembered.
    """

    def __init__(self, most: int) -> None:
        self._entries: OrderedDict[Hashable, tuple[int, object]] = OrderedDict()
        self._most = most

    def get(
        self,
        key: Hashable,
        view: ClusterView,
        domains: Sequence[Domain],
        make: Callable[[ClusterView], _T],
    ) -> _T:
        """Return what `make` gives for `view`; see `ClusterView.common` for the arguments."""
        entry = self._entries.get(key)
        if entry is not None:
            version, value = entry
            if version > view.version:
                return make(view)  # an old view someone kept: answer it, remember nothing
            latest = view.latest
            for domain in domains:
                if latest[domain] > version:
                    break
            else:
                self._entries[key] = view.version, value
                self._entries.move_to_end(key)
                return cast("_T", value)
        made = make(view)
        self._entries[key] = view.version, made
        self._entries.move_to_end(key)
        self._make_room(view.version - FORGOTTEN_AFTER)
        return made

    def _make_room(self, since: int) -> None:
        """Forget what was not asked for since a version, and what is too much; eldest first."""
        while self._entries:
            key, (version, _) = next(iter(self._entries.items()))
            if len(self._entries) <= self._most and version >= since:
                return
            del self._entries[key]
