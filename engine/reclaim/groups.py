"""Pods that go together: a gang as a whole, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from engine.gang import pod_group_of_gang
from engine.model.gang import GangKey
from engine.reclaim.borrowers import Borrower
from engine.reclaim.candidates import Candidate
from engine.reclaim.steps import Steps, parts_of
from engine.view import ClusterView

MOST_VICTIMS: Final = 10
"""Of which a gang may be: guards never let more pods be on their way out."""


class Groups(NamedTuple):
    """Pods that may be evicted, by whom they go with.

    Attributes:
        single: those that go alone.
        gangs: the others, each gang with all of its running members.
    """

    single: list[Borrower]
    gangs: list[list[Borrower]]

    def all(self) -> Steps[list[list[Borrower]]]:
        """Return them all, each with those that it goes with."""
        found = list(self.gangs)
        for part in parts_of(self.single):
            found += [[each] for each in part]
            yield
        return found


def group(victims: Sequence[Borrower], sizes: Mapping[GangKey, int]) -> Steps[Groups]:
    """Return pods by whom they go with; those are left out of whose gang anybody must stay.

    Args:
        victims: that may go.
        sizes: how many members of each gang run.
    """
    groups, gangs = Groups([], []), dict[GangKey, list[Borrower]]()
    for part in parts_of(victims):
        for each in part:
            key = each.pod.gang
            if key is None or key not in sizes:
                groups.single.append(each)
            else:
                gangs.setdefault(key, []).append(each)
        yield
    for keys in parts_of(list(gangs)):
        for key in keys:
            members = gangs.pop(key)
            if len(members) == sizes[key] <= MOST_VICTIMS:
                if len(members) == 1:
                    groups.single.extend(members)
                else:
                    groups.gangs.append(members)
        yield
    return groups


def sizes_of_gangs(
    candidates: Sequence[Candidate], leaving: Iterable[Candidate], view: ClusterView
) -> Steps[Mapping[GangKey, int]]:
    """Return how many members of each gang run.

    Args:
        candidates: the running pods.
        leaving: those of them that do not count.
        view: the cluster.
    """
    named = Counter[GangKey]()
    for part in parts_of(candidates):
        named.update([each.pod.gang for each in part if each.pod.gang is not None])
        yield
    named.subtract(each.pod.gang for each in leaving if each.pod.gang is not None)
    sizes: dict[GangKey, int] = {}
    for keys in parts_of(list(named)):
        sizes |= {
            key: named[key]
            for key in keys
            if named[key] > 0 and pod_group_of_gang(key, view) is not None
        }
        yield
    return sizes


def members_of(groups: Sequence[Sequence[Borrower]]) -> Steps[list[Borrower]]:
    """Return the pods of groups."""
    found: list[Borrower] = []
    for part in parts_of(groups):
        found += chain.from_iterable(part)
        yield
    return found


def uids_of(groups: Collection[Sequence[Borrower]]) -> Mapping[str, Borrower]:
    """Return the pods of groups by uid."""
    return {each.pod.uid: each for members in groups for each in members}
