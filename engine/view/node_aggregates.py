"""What rules work out for all nodes together, remembered while nothing changes that it rests on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from engine.view.lru_cache import LruCache

if TYPE_CHECKING:
    from engine.model.domain import Domain
    from engine.view.cluster_view import ClusterView

_T = TypeVar("_T")


class AggregateCache(LruCache[Any]):
    """A bounded, least-recently-used memory; it changes how fast an answer comes, nothing else."""

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
            version, latest = entry.version, view.latest
            if version > view.version:
                return make(view)  # an old view someone kept: answer it, remember nothing
            for domain in domains:
                if latest[domain] > version:
                    break
            else:
                entry.version = view.version
                self._entries.move_to_end(key)
                return cast("_T", entry.value)
        made = make(view)
        self._put(key, view.version, made, size=0)
        return made
