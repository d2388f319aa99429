"""The allowances of other replicas on a quota: whether they still count, and can be given back."""

from __future__ import annotations

from collections.abc import Iterable

from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.reservations import Allowance


class OtherAllowances:
    """What one replica knows of the allowances of all others; moments are seconds of its clock.

    Args:
        replica: whose own allowance is not among them.
        seconds: for which a replica may draw from an allowance that it does not renew.
        unseen_seconds: after which any request for a pod has ended.
    """

    def __init__(self, replica: str, seconds: float, *, unseen_seconds: float) -> None:
        self._replica = replica
        self._seconds = seconds
        self._unseen_seconds = unseen_seconds
        self._allowances: tuple[Allowance, ...] = ()
        self._unchanged_since: dict[tuple[str, int], float] = {}
        self._drained: dict[tuple[str, int], int] = {}  # no pod of it is newer than that version
        self._observed_version = 0

    def update(self, allowances: Iterable[Allowance], now: float) -> None:
        """Adopt the allowances of another version of the object."""
        self._allowances = tuple(each for each in allowances if each.replica != self._replica)
        others = [allowance.identity for allowance in self._allowances]
        self._unchanged_since = {key: self._unchanged_since.get(key, now) for key in others}
        self._drained = {key: self._drained[key] for key in others if key in self._drained}

    def observe(self, version: int) -> None:
        """Note that all pods have been observed up to a version."""
        self._observed_version = max(version, self._observed_version)

    def counted(self) -> list[Amounts]:
        """Return the amounts of those whose pods are not all in the view by now."""
        observed = self._observed_version
        return [
            each.amounts
            for each in self._allowances
            if self._drained.get(each.identity, observed + 1) > observed
        ]

    def recallable(self, now: float) -> dict[str, int]:
        """Amounts in allowances of live replicas, which return them where the quota is scarce."""
        since = now - self._seconds
        return sum_of(
            each.amounts
            for each in self._allowances
            if self._unchanged_since[each.identity] > since
        )

    def abandoned(self, now: float) -> list[Allowance]:
        """Allowances whose replica is gone, and every request it admitted has ended."""
        since = now - (self._seconds + self._unseen_seconds)
        return [
            each
            for each in self._allowances
            if self._unchanged_since[each.identity] <= since and each.identity not in self._drained
        ]

    def mark_drained(self, abandoned: Allowance, version: int) -> None:
        """Record that all pods drawn from it that still exist have at most that version."""
        self._drained[abandoned.identity] = version

    def drained(self) -> dict[str, int]:
        """Return the replicas whose pods are all in the view by now, with the version of these."""
        observed = self._observed_version
        return {
            replica: version
            for (replica, _), version in self._drained.items()
            if version <= observed
        }
