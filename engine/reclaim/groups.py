"""Pods that go together: a gang as a whole, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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

    single: Sequence[Borrower]
    gangs: Sequence[Sequence[Borrower]]

    def all(self) -> list[Sequence[Borrower]]:
        """Return them all, each with those that it goes with."""
        return [*([each] for each in self.single), *self.gangs]


def group(victims: Sequence[Borrower], sizes: Mapping[GangKey, int]) -> Groups:
    """Return pods by whom they go with; those are left out of whose gang anybody must stay.

    Args:
        victims: that may go.
        sizes: how many members of each gang run.
    """
    single: list[Borrower] = []
    gangs: dict[GangKey, list[Borrower]] = {}
    for each in victims:
        key = each.pod.gang
        if key is None or key not in sizes:
            single.append(each)
        else:
            gangs.setdefault(key, []).append(each)
    whole = [
        members for key, members in gangs.items() if len(members) == sizes[key] <= MOST_VICTIMS
    ]
    single += [members[0] for members in whole if len(members) == 1]
    return Groups(single, [members for members in whole if len(members) > 1])


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
    return {
        key: size
        for key, size in named.items()
        if size > 0 and pod_group_of_gang(key, view) is not None
    }


def uids_of(groups: Collection[Sequence[Borrower]]) -> Mapping[str, Borrower]:
    """Return the pods of groups by uid."""
    return {each.pod.uid: each for members in groups for each in members}
