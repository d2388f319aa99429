"""One ElasticQuota as one replica knows it: its newest version, and which reservations are over.

INVARIANT: what the replica sees of the namespace's pods plus `counted()` is never less than what
all pods hold that were ever promised a share and may be stored. For a reservation leaves the count
only when its pod has been seen (then the view counts it while it exists) or can never come, and
leaves the object only

- seen by the writer, who then raises `seen_up_to`, so that no other replica judges before it has
  seen the pod too, or
- found missing on the API server after any request for it has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.model.elastic_quota import ElasticQuota
from engine.quota.reservations import MOST_BYTES, Reservation, Reservations, decode, encode

DEFAULT_RESERVATION_SECONDS = 75
"""More than the API server gives a request, which is 60 s unless configured."""

_SETTLED_SECONDS = 10.0  # most watches lag less, so hardly anybody waits for `seen_up_to`
_BUSY_BYTES = 16 * 1024  # every write and every event of the quota carries all of them
_SETTLED_SECONDS_WHEN_BUSY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
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


class QuotaBook:
    """What a replica knows of a quota; time is whatever clock the caller passes, in seconds.

    Attributes:
        quota: the newest version known.
        reservations: those of that version.
    """

    def __init__(self, quota: ElasticQuota, now: float, patience: Patience) -> None:
        self.quota = quota
        self.reservations = Reservations()
        self._patience = patience
        self._known_since: dict[str, float] = {}
        self._settled: dict[str, _Settled] = {}
        self._missing: set[str] = set()
        self._read(now)

    def take(self, quota: ElasticQuota, now: float) -> None:
        """Take another version of the object; nothing happens if it is not newer."""
        if quota.version > self.quota.version:
            self.quota = quota
            self._read(now)

    def _read(self, now: float) -> None:
        found = decode(self.quota.reservations, self.quota.uid)
        if found is None:
            return  # somebody broke the annotation: what we know still counts
        self.reservations = found
        keys = found.by_key.keys()
        self._known_since = {key: self._known_since.get(key, now) for key in keys}
        self._settled = {key: one for key, one in self._settled.items() if key in keys}
        self._missing &= keys

    def may_judge(self, heard: int) -> bool:
        """Whether a replica that heard of all pods up to a version has seen enough of them."""
        return heard >= max(self.reservations.seen_up_to, 1)

    def settle(self, seen: Callable[[str], int], heard: int, now: float) -> None:
        """Take note of the pods that have been seen.

        Args:
            seen: the newest version at which a pod was seen, by its uid; 0 if it was not.
            heard: the version up to which all pods have been heard of.
            now: the moment.
        """
        for key, one in self.reservations.by_key.items():
            if key not in self._settled and one.after < (version := seen(one.uid)) <= heard:
                self._settled[key] = _Settled(version, now)

    def overdue(self, now: float) -> list[Reservation]:
        """Return the reservations whose pod should have been seen by now, oldest first."""
        late = now - self._patience.unseen_seconds
        return [
            self.reservations.by_key[key]
            for key, since in self._known_since.items()
            if since <= late and not self._is_over(key)
        ]

    def exists(self, key: str, version: int, now: float) -> None:
        """Take note that the pod of an overdue one exists, at a resourceVersion.

        It will be seen; unless it is still what the request would have changed: then that has ended
        without having done so.
        """
        one = self.reservations.by_key.get(key)
        if one is not None and version <= one.after:
            self._missing.add(key)
        else:
            self._known_since[key] = now

    def is_missing(self, key: str) -> None:
        """Take note that the pod of an overdue one does not exist, or holds nothing any more."""
        self._missing.add(key)

    def covers(self, key: str) -> bool:
        """Whether there is a reservation already."""
        return key in self.reservations.by_key

    def gave_up(self, key: str) -> bool:
        """Whether there is one that is about to be taken off, for its pod does not exist."""
        return key in self._missing

    def counted(self) -> dict[str, int]:
        """Return what is promised to pods that are not in the view of this replica."""
        total: dict[str, int] = {}
        for key, one in self.reservations.by_key.items():
            if not self._is_over(key):
                for name, amount in one.amounts.items():
                    total[name] = total.get(name, 0) + amount
        return total

    def pruned(self, now: float) -> Reservations:
        """Return the reservations to keep.

        Those settled for long enough are left out: sooner where there are many, at once where room
        gets scarce. How long is enough matters to slower watches only, which wait.
        """
        long_ago = now - self._settled_seconds()
        old = {key: one.version for key, one in self._settled.items() if one.at <= long_ago}
        return Reservations(
            max(self.reservations.seen_up_to, *old.values(), 0),
            {
                key: one
                for key, one in self.reservations.by_key.items()
                if key not in old and key not in self._missing
            },
        )

    def annotation(self, reservations: Reservations) -> str:
        """Return what to write on the object for it to have these reservations."""
        return encode(reservations, self.quota.uid)

    def _settled_seconds(self) -> float:
        size, usual = len(self.quota.reservations), self._patience.settled_seconds
        if size > MOST_BYTES // 2:
            return 0.0
        return min(_SETTLED_SECONDS_WHEN_BUSY, usual) if size > _BUSY_BYTES else usual

    def _is_over(self, key: str) -> bool:
        return key in self._settled or key in self._missing
