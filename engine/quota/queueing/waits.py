"""Why pods wait, each told when it is asked for: thousands wait, and few are asked for in a cycle.

Nothing is to be released any more by the cycle that they come from: what it has counted is read
when somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from engine.model.elastic_quota import QuotaKey
from engine.model.queued_condition import QueuedReason
from engine.model.resources import Amounts
from engine.quota.queueing.line import Line
from engine.quota.queueing.queued_pod import QueueQuota
from engine.quota.queueing.wait import Borrower, Lack, QuotaWait

_MOST_BORROWERS: Final = 3

_Why: TypeAlias = tuple[QueuedReason, tuple[Lack, ...], tuple[Borrower, ...]]
_BEHIND: Final[_Why] = (QueuedReason.WAITING_FOR_QUOTA, (), ())


@dataclass(frozen=True, slots=True)
class CohortUse:
    """What quotas use of what they share.

    Attributes:
        members: the quotas that share it.
        used_of: what a quota uses.
        used: of what all share, room that is kept included.
        capacity: what all share.
    """

    members: Mapping[QuotaKey, QueueQuota]
    used_of: Callable[[QuotaKey], Amounts]
    used: Amounts
    capacity: Amounts


class QuotaWaits(Mapping[str, QuotaWait]):
    """Why each pod waits, by `namespace/name`, in the order of quotas.

    Args:
        others: pods that wait for something else than those of `lines`, and why.
        lines: the pods of each quota.
        cohort: what they share.
    """

    def __init__(
        self,
        others: Mapping[str, QuotaWait] | None = None,
        lines: Iterable[Line] = (),
        cohort: CohortUse | None = None,
    ) -> None:
        self._others = others or {}
        self._lines = [line for line in lines if line.waiting]
        self._cohort = cohort or CohortUse({}, lambda _key: {}, {}, {})
        self._places = {
            pod.key: (line, place)
            for line in self._lines
            for place, (pod, _) in enumerate(line.waiting)
        }
        self._whys: dict[tuple[QuotaKey, int], _Why] = {}  # by quota and id of requests
        self._borrowers: dict[str, list[Borrower]] = {}

    def __len__(self) -> int:
        """Return how many pods wait."""
        return len(self._places.keys() | self._others.keys())

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of the pods."""
        yield from self._places
        yield from (key for key in self._others if key not in self._places)

    def __contains__(self, key: object) -> bool:
        """Return whether a pod waits."""
        return key in self._places or key in self._others

    def __getitem__(self, key: str) -> QuotaWait:
        """Return why a pod waits.

        Raises:
            KeyError: it does not.
        """
        if key in self._others:
            return self._others[key]
        line, place = self._places[key]
        return self._wait(line, place)

    @property
    def quotas(self) -> set[QuotaKey]:
        """The quotas whose pods wait."""
        quotas = {line.quota.key for line in self._lines}
        return quotas.union(wait.quota for wait in self._others.values())

    def firsts(self) -> dict[QuotaKey, QuotaWait]:
        """Return why the first pod of each quota waits."""
        others = {wait.quota: wait for wait in self._others.values() if wait.position == 1}
        return others | {line.quota.key: self._wait(line, 0) for line in self._lines}

    def _wait(self, line: Line, place: int) -> QuotaWait:
        pod, is_within_min = line.waiting[place]
        is_behind = bool(line.behind) and place >= line.behind_from
        reason, lacks, blocked_by = (
            _BEHIND if is_behind or pod.refusal else self._why(line, pod.requests)
        )
        return QuotaWait(
            reason,
            pod.quota,
            place + 1,
            len(line.waiting),
            is_within_min,
            pod.since,
            lacks,
            blocked_by,
            line.behind if is_behind else "",
            pod.refusal,
        )

    def _why(self, line: Line, requests: Amounts) -> _Why:
        """Return what requests that do not fit lack of the bounds, or else of the cohort."""
        known = line.quota.key, id(requests)
        why = self._whys.get(known)
        if why is None:
            lacks = line.lacks_of_bounds(requests)
            why = self._whys[known] = (
                self._lacks_cohort(line, requests)
                if not lacks
                else (QueuedReason.EXCEEDS_MAX, lacks, ())
                if line.exceeds_a_bound(requests)
                else (QueuedReason.WAITING_FOR_QUOTA, lacks, ())
            )
        return why

    def _lacks_cohort(self, line: Line, requests: Amounts) -> _Why:
        capacity, used = self._cohort.capacity, self._cohort.used
        lacks = tuple(
            Lack(name, amount, capacity.get(name, 0) - used.get(name, 0), None)
            for name, amount in requests.items()
            if line.needs_cohort(name, amount)
            and used.get(name, 0) + amount > capacity.get(name, 0)
        )
        blocked_by = tuple(
            each for lack in lacks for each in self._borrowers_of(lack.resource, line)
        )
        return QueuedReason.WAITING_FOR_QUOTA, lacks, blocked_by

    def _borrowers_of(self, resource: str, line: Line) -> list[Borrower]:
        """Return the other quotas that borrow most of a resource."""
        found = self._borrowers.get(resource)
        if found is None:
            above = (
                Borrower(key, resource, used - max(quota.guaranteed.get(resource, 0), 0))
                for key, quota in self._cohort.members.items()
                if (used := self._cohort.used_of(key).get(resource, 0)) > 0
            )
            found = self._borrowers[resource] = sorted(
                (each for each in above if each.amount > 0),
                key=lambda each: (-each.amount, each.quota),
            )[: _MOST_BORROWERS + 1]
        return [each for each in found if each.quota != line.quota.key][:_MOST_BORROWERS]
