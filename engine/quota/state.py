"""One ElasticQuota as one replica knows it: its newest version, and which reservations are over.

INVARIANT: what the replica sees of the namespace's pods plus `counted()` is never less than what
all pods hold that were ever promised a share and may be stored. For a reservation leaves the count
only when its pod has been seen (then the view counts it while it exists) or can never come, and
leaves the object only

- seen by the writer, who then raises `seen_up_to`, so that no other replica judges before it has
  seen the pod too, or
- found missing on the API server after any request for it has ended.

The same holds for a pod drawn from an allowance, which its own replica counts by itself and all
others within the allowance. One that stood still for so long that nobody can draw from it, and any
request for a pod drawn before has ended, leaves the count once all pods that are stored then have
been heard of, and the object with a `seen_up_to` that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.local_allowance import LocalAllowance
from engine.quota.reservations import (
    MOST_BYTES,
    Allowance,
    Reservation,
    Reservations,
    decode,
    encode,
)

DEFAULT_RESERVATION_SECONDS = 75
"""More than the API server gives a request, which is 60 s unless configured."""

_SETTLED_SECONDS = 10.0  # most watches lag less, so hardly anybody waits for `seen_up_to`
_BUSY_BYTES = 16 * 1024  # every write and every event of the quota carries all of them
_SETTLED_SECONDS_WHEN_BUSY = 1.0
_BUSY_DRAWN = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationTimeouts:
    """How long reservations are kept, by the clock of each replica, seconds.

    Attributes:
        settled_seconds: on the object after their pod was seen, for the sake of slower watches.
        unseen_seconds: before the API server is asked whether the pod exists; must be longer than
            a request may take there.
    """

    settled_seconds: float = _SETTLED_SECONDS
    unseen_seconds: float = DEFAULT_RESERVATION_SECONDS


@dataclass(frozen=True, slots=True)
class _Settled:
    version: int  # at which the pod was seen
    at: float


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """What to write on a quota.

    Attributes:
        reservations: which it will have.
        drawn: the pods that this replica's allowance among them is for, by key.
    """

    reservations: Reservations
    drawn: Mapping[str, Reservation]


class QuotaState:
    """What a replica knows of a quota; time is whatever clock the caller passes, in seconds.

    Attributes:
        quota: the newest version known.
        reservations: those of that version.
        allowance: what this replica has taken ahead.
    """

    def __init__(
        self,
        quota: ElasticQuota,
        now: float,
        patience: ReservationTimeouts,
        allowance: LocalAllowance,
    ) -> None:
        self.quota = quota
        self.reservations = Reservations()
        self.allowance = allowance
        self._patience = patience
        self._known_since: dict[str, float] = {}
        self._settled: dict[str, _Settled] = {}
        self._missing: set[str] = set()
        self._still_since: dict[tuple[str, int], float] = {}  # allowances of others
        self._ended: dict[tuple[str, int], int] = {}  # no pod of it is newer than that version
        self._heard = 0
        self._read(now)

    def update(self, quota: ElasticQuota, now: float) -> None:
        """Take another version of the object; nothing happens if it is not newer."""
        if quota.version > self.quota.version:
            self.quota = quota
            self._read(now)

    def _read(self, now: float) -> None:
        found = decode(self.quota.reservations, self.quota.uid)
        if found is None:
            return  # somebody broke the annotation: what we know still counts
        self.reservations = found
        self.allowance.found(found.allowances.get(self.allowance.replica))
        keys = found.by_key.keys() | self.allowance.drawn.keys()
        self._known_since = {key: self._known_since.get(key, now) for key in keys}
        self._settled = {key: one for key, one in self._settled.items() if key in keys}
        self._missing &= keys
        others = [_standing(one) for one in self._allowances_of_others()]
        self._still_since = {one: self._still_since.get(one, now) for one in others}
        self._ended = {one: self._ended[one] for one in others if one in self._ended}

    def may_judge(self, heard: int) -> bool:
        """Whether a replica that heard of all pods up to a version has seen enough of them."""
        return heard >= max(self.reservations.seen_up_to, 1)

    def mark_observed(self, seen: Callable[[str], int], heard: int, now: float) -> None:
        """Take note of the pods that have been seen.

        Args:
            seen: the newest version at which a pod was seen, by its uid; 0 if it was not.
            heard: the version up to which all pods have been heard of.
            now: the moment.
        """
        self._heard = max(heard, self._heard)
        for key, one in self._promises():
            if key not in self._settled and one.after < (version := seen(one.uid)) <= heard:
                self._settled[key] = _Settled(version, now)

    def overdue(self, now: float) -> list[Reservation]:
        """Return the reservations whose pod should have been seen by now, oldest first."""
        late = now - self._patience.unseen_seconds
        return [
            one
            for key, one in self._promises()
            if self._known_since[key] <= late and not self._is_over(key)
        ]

    def exists(self, key: str, version: int, now: float) -> None:
        """Take note that the pod of an overdue one exists, at a resourceVersion.

        It will be seen; unless it is still what the request would have changed: then that has ended
        without having done so.
        """
        one = self._promise(key)
        if one is not None and version <= one.after:
            self._missing.add(key)
        else:
            self._known_since[key] = now

    def is_missing(self, key: str) -> None:
        """Take note that the pod of an overdue one does not exist, or holds nothing any more."""
        self._missing.add(key)

    def covers(self, key: str) -> bool:
        """Whether there is a reservation already."""
        return self._promise(key) is not None

    def gave_up(self, key: str) -> bool:
        """Whether there is one that is about to be taken off, for its pod does not exist."""
        return key in self._missing

    def draw(self, one: Reservation, now: float) -> bool:
        """Promise a pod its share out of the allowance; False where that cannot be.

        Nothing has to be looked at: all that it needs was counted when the allowance was written.
        """
        if not self.allowance.draw(one, self.quota.max, now):
            return False
        self._known_since[one.key] = now
        return True

    def counted(self) -> dict[str, int]:
        """Return what is promised to pods that are not in the view of this replica.

        What is left of its own allowance is not among that.
        """
        pods = (one.amounts for key, one in self._promises() if not self._is_over(key))
        ended = self._heard_of()
        others = (one for one in self._allowances_of_others() if _standing(one) not in ended)
        return sum_of([*pods, *(one.amounts for one in others)])

    def recallable(self, now: float) -> dict[str, int]:
        """Return what others may have taken ahead and give back when they are asked for it."""
        since = now - self.allowance.lending.seconds
        return sum_of(
            one.amounts
            for one in self._allowances_of_others()
            if self._still_since[_standing(one)] > since
        )

    def abandoned(self, now: float) -> list[Allowance]:
        """Return the allowances whose replica is gone, as are the requests it admitted."""
        long = self.allowance.lending.seconds + self._patience.unseen_seconds
        return [
            one
            for one in self._allowances_of_others()
            if self._still_since[_standing(one)] <= now - long and _standing(one) not in self._ended
        ]

    def is_drained(self, abandoned: Allowance, version: int) -> None:
        """Take note that all pods that came of it and still exist have at most that version."""
        self._ended[_standing(abandoned)] = version

    # What to write.

    def pruned(self, now: float) -> Reservations:
        """Return the reservations to keep.

        Those settled for long enough are left out: sooner where there are many, at once where room
        gets scarce. How long is enough matters to slower watches only, which wait.
        """
        old = self._old(self.reservations.by_key, now)
        # Nobody may judge before having heard of all pods up to that, so we wait for it first.
        ended = {replica: version for (replica, _), version in self._heard_of().items()}
        return Reservations(
            max(self.reservations.seen_up_to, *old.values(), *ended.values(), 0),
            {
                key: one
                for key, one in self.reservations.by_key.items()
                if key not in old and key not in self._missing
            },
            {
                replica: one
                for replica, one in self.reservations.allowances.items()
                if replica not in ended
            },
        )

    def needs_rewriting(self, free: Amounts, now: float) -> bool:
        """Whether the allowance should be written anew, or given back.

        Args:
            free: what is free of each resource that the quota limits.
            now: the moment.
        """
        own = self.allowance
        if not own.is_held:
            return False
        if own.is_over(self.quota.max, now) or own.is_scarce(free):
            return True
        return own.runs_low(now) and bool(own.wanted(free, now))

    def draft(self, added: Iterable[Reservation], ahead: Amounts, now: float) -> PendingWrite:
        """Return what to write for more pods.

        Where room is taken ahead, all pods are in the allowance; else each has its reservation, so
        that others may know which of them they have seen.

        Args:
            added: the pods; they fit.
            ahead: what to take beyond them.
            now: the moment.
        """
        kept, own = self.pruned(now), self.allowance
        old = self._old(own.drawn, now)
        pods = {
            key: one
            for key, one in own.drawn.items()
            if key not in old and key not in self._missing
        } | {one.key: one for one in added}
        seen_up_to = max(kept.seen_up_to, *old.values(), 0)
        allowances = dict(kept.allowances)
        allowances.pop(own.replica, None)
        if not ahead:
            listed = Reservations(seen_up_to, {**kept.by_key, **pods}, allowances)
            if len(self.annotation(listed)) <= MOST_BYTES:
                return PendingWrite(listed, {})
        allowances[own.replica] = own.next(pods, ahead)
        return PendingWrite(Reservations(seen_up_to, kept.by_key, allowances), pods)

    def sending(self, draft: PendingWrite, now: float) -> str:
        """Return what to write on the object, and take note that this begins."""
        own = self.allowance
        what = draft.reservations.allowances.get(own.replica)
        own.sending(what, draft.drawn, self.quota.max, now)
        return self.annotation(draft.reservations)

    def annotation(self, reservations: Reservations) -> str:
        """Return what to write on the object for it to have these reservations."""
        return encode(reservations, self.quota.uid)

    def _promises(self) -> Iterable[tuple[str, Reservation]]:
        yield from self.reservations.by_key.items()
        yield from self.allowance.drawn.items()

    def _promise(self, key: str) -> Reservation | None:
        return self.reservations.by_key.get(key) or self.allowance.drawn.get(key)

    def _allowances_of_others(self) -> list[Allowance]:
        own = self.allowance.replica
        return [one for who, one in self.reservations.allowances.items() if who != own]

    def _heard_of(self) -> dict[tuple[str, int], int]:
        """Return the abandoned allowances of which all pods are in the view by now."""
        return {one: version for one, version in self._ended.items() if version <= self._heard}

    def _old(self, promises: Mapping[str, Reservation], now: float) -> dict[str, int]:
        """Return those settled for long enough, with the versions at which they were seen."""
        long_ago = now - self._settled_seconds()
        return {
            key: one.version
            for key, one in self._settled.items()
            if key in promises and one.at <= long_ago
        }

    def _settled_seconds(self) -> float:
        size, usual = len(self.quota.reservations), self._patience.settled_seconds
        if size > MOST_BYTES // 2:
            return 0.0
        is_busy = size > _BUSY_BYTES or len(self.allowance.drawn) > _BUSY_DRAWN
        return min(_SETTLED_SECONDS_WHEN_BUSY, usual) if is_busy else usual

    def _is_over(self, key: str) -> bool:
        return key in self._settled or key in self._missing


def _standing(one: Allowance) -> tuple[str, int]:
    """Return what tells an allowance from what its replica has written before and after."""
    return one.replica, one.serial
