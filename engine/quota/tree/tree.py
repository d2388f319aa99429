"""Koordinator's quotas as a tree.

Names are global: labels of pods and quotas refer to a quota by its name alone. Webhooks may be away
when quotas change, so that nothing is assumed of their labels: a quota whose parent does not exist,
or is among those below it, counts as one of the top level.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from engine.model.elastic_quota import KOORDINATOR_GROUP, ElasticQuota
from engine.model.koordinator_quota import BUILT_IN_QUOTAS, ROOT_QUOTA
from engine.model.resources import Amounts


class QuotaTree:
    """The quotas of Koordinator's group; the built-in ones are not part of the tree.

    Args:
        quotas: in any order. Of two with one name, which only a webhook that is away lets through,
            that of the first namespace counts.
    """

    def __init__(self, quotas: Iterable[ElasticQuota]) -> None:
        self._named: dict[str, ElasticQuota] = {}
        for quota in sorted(quotas, key=_name_first):
            if quota.group == KOORDINATOR_GROUP:
                self._named.setdefault(quota.name, quota)
        self._members = {
            name: quota for name, quota in self._named.items() if name not in BUILT_IN_QUOTAS
        }
        self._parents = {quota.name: self._parent_name(quota) for quota in self._members.values()}
        children: dict[str, list[ElasticQuota]] = {}
        for name, parent in self._parents.items():
            children.setdefault(parent, []).append(self._members[name])
        self._children: dict[str, tuple[ElasticQuota, ...]] = {
            parent: tuple(found) for parent, found in children.items()
        }
        self._top_down = tuple(self._ordered())
        self._listing: dict[str, str] = {}
        for quota in self._named.values():
            for namespace in quota.tree.namespaces:
                self._listing.setdefault(namespace, quota.name)
        self._totals = {
            quota.tree.tree_id: quota.tree.total
            for quota in self._members.values()
            if quota.tree.tree_id and quota.tree.is_tree_root and quota.tree.total is not None
        }

    def __contains__(self, name: object) -> bool:
        """Whether a quota of that name exists, built-in or not."""
        return name in self._named

    def __iter__(self) -> Iterator[ElasticQuota]:
        """Yield the quotas, each after its parent."""
        return iter(self._top_down)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: str) -> ElasticQuota | None:
        """Return the quota of a name, built-in ones too, None if there is none."""
        return self._named.get(name)

    def listing(self, namespace: str) -> str:
        """Return the name of the quota that lists a namespace, "" if none does."""
        return self._listing.get(namespace, "")

    def bottom_up(self) -> Iterator[ElasticQuota]:
        """Yield the quotas, each after its children."""
        return reversed(self._top_down)

    def children_of(self, name: str) -> Sequence[ElasticQuota]:
        """Return the quotas right below one, in name order."""
        return self._children.get(name, ())

    def is_top_level(self, quota: ElasticQuota) -> bool:
        """Whether a quota is right below the root."""
        return self._parents.get(quota.name) == ROOT_QUOTA

    def families(self) -> Iterator[tuple[str, Sequence[ElasticQuota]]]:
        """Yield each parent with its children, from the root down."""
        for parent in (ROOT_QUOTA, *(quota.name for quota in self._top_down)):
            if parent in self._children:
                yield parent, self._children[parent]

    def ancestors_of(self, name: str) -> tuple[ElasticQuota, ...]:
        """Return the quotas above one, its parent first, without the root."""
        above, parent = [], self._parents.get(name, ROOT_QUOTA)
        while parent != ROOT_QUOTA:
            above.append(self._members[parent])
            parent = self._parents[parent]
        return tuple(above)

    def total_of(self, tree_id: str) -> Amounts | None:
        """Return what a tree with an id has, None where nothing says so."""
        return self._totals.get(tree_id)

    def taken_out(self) -> Iterator[Amounts]:
        """Yield the totals that the tree of the whole cluster does not have."""
        for quota in self._members.values():
            if quota.tree.tree_id in self._totals and quota.tree.is_tree_root:
                total = quota.tree.total
                if total is not None and not quota.tree.ignores_default_tree:
                    yield total

    def _parent_name(self, quota: ElasticQuota) -> str:
        """Return the name of the parent that counts."""
        parent, seen = quota.tree.parent, {quota.name}
        while parent in self._members and parent not in seen:
            seen.add(parent)
            parent = self._members[parent].tree.parent
        is_cyclic = parent == quota.name
        return (
            quota.tree.parent
            if quota.tree.parent in self._members and not is_cyclic
            else ROOT_QUOTA
        )

    def _ordered(self) -> Iterator[ElasticQuota]:
        """Yield the quotas from the root down, those of one level by name."""
        level: Sequence[ElasticQuota] = self.children_of(ROOT_QUOTA)
        while level:
            yield from level
            level = [child for quota in level for child in self.children_of(quota.name)]


def _name_first(quota: ElasticQuota) -> tuple[str, str]:
    return quota.name, quota.namespace
