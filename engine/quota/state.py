"""One ElasticQuota as one replica knows it: its newest version, its reservations, its allowance.

INVARIANT: the pods of the namespace in the replica's view plus `unobserved()` are never less than
what all pods hold that were ever admitted and may be stored; queued pods hold nothing, and are
admitted when they stop to be queued. For a reservation leaves the count
only when its pod has been observed (then the view counts it while it exists) or can never come, or
counts no more than another pod of its name, because only one of them can be stored; and it leaves
the object only

- once the writer has observed the pod; it then raises `seen_up_to`, so that no other replica judges
  before it has observed the pod too, or
- once the pod is missing on the API server after any request for it has ended.

The same holds for a pod drawn from an allowance, which its own replica counts by itself and all
others within the allowance. An allowance that has not changed for so long that nobody can draw from
it, and that any request for a pod drawn before has ended, leaves the count once all pods stored by
then have been observed, and the object with a `seen_up_to` that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from engine.model.elastic_quota import ElasticQuota
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.quota.bounds import PodAccounting, excess, sum_of, used_by_namespace
from engine.quota.reservations import (
    MOST_BYTES,
    AllowanceConfig,
    LocalAllowance,
    OtherAllowances,
    Reservation,
    Reservations,
    ReservationTimeouts,
    decode,
    encode,
    split_by_name,
)
from engine.quota.verdict import CountedPods, Surges
from engine.view import ClusterView

# `status.used` of an ElasticQuota.
#
# Source of `Running`: scheduler-plugins, pkg/controllers/elasticquota_controller.go.


StatusCounts: TypeAlias = Literal["Running"] | PodAccounting
"""Pods that `status.used` adds up."""


def status_used(quota: ElasticQuota, view: ClusterView, count: StatusCounts) -> Amounts:
    """Return the usage of a quota's namespace for `status.used`, base units.

    Names in `min` and `max` are always there. `Running` is upstream's rule to the letter: pods that
    run, without their overhead; the number of pods is not counted, so that it stays 0 even where
    `max` names it.
    """
    used = dict.fromkeys((*(quota.min or {}), *(quota.max or {})), 0)
    if count == "Running":
        counted = view.namespaces.running.get(quota.namespace, {})
        held = {name: amount for name, amount in counted.items() if amount and name != PODS}
    else:
        counted = used_by_namespace(view, count).get(quota.namespace, {})
        unlisted = {PODS} - used.keys()
        held = {name: n for name, n in counted.items() if n and name not in unlisted}
    return {**used, **held}


def no_pods(_name: str) -> Amounts:
    """Return what a view without pods counts for the pod of a name."""
    return {}


_BUSY_BYTES = 16 * 1024  # every write and every event of the quota carries all of them
_SETTLED_SECONDS_WHEN_BUSY = 1.0
_BUSY_DRAWN = 128


@dataclass(frozen=True, slots=True)
class _Observation:
    version: int  # of the pod
    at: float


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The next content of the annotation of a quota.

    Attributes:
        reservations: all that it will have.
        drawn: the pods that this replica's allowance among them is for, by key.
    """

    reservations: Reservations
    drawn: Mapping[str, Reservation]


class QuotaState:
    """The state of a quota on one replica; all moments are seconds by one clock of the caller.

    Args:
        quota: the newest version known.
        now: the moment.
        replica: owner of the allowance; a new name for each `QuotaState` that there ever was.
        timeouts: lifetime of reservations.
        allowances: conditions and size of the allowance.

    Attributes:
        quota: the newest version known.
        reservations: those of that version.
        others: the allowances of other replicas among them.
    """

    def __init__(
        self,
        quota: ElasticQuota,
        now: float,
        *,
        replica: str,
        timeouts: ReservationTimeouts,
        allowances: AllowanceConfig,
    ) -> None:
        self.quota = quota
        self.reservations = Reservations()
        self._own = LocalAllowance(replica, allowances)
        self.others = OtherAllowances(
            replica, allowances.seconds, unseen_seconds=timeouts.unseen_seconds
        )
        self._timeouts = timeouts
        self._known_since: dict[str, float] = {}
        self._observed: dict[str, _Observation] = {}
        self._missing: set[str] = set()
        self._surges = Surges()
        self._read(now)

    def update(self, quota: ElasticQuota, now: float) -> None:
        """Adopt another version of the object, if it is newer."""
        if quota.version > self.quota.version:
            self.quota = quota
            self._read(now)

    def _read(self, now: float) -> None:
        found = decode(self.quota.reservations, self.quota.uid)
        if found is None:
            return  # the annotation is broken: what is known still counts
        self.reservations = found
        self._own.update(found.allowances.get(self._own.replica))
        keys = found.by_key.keys() | self._own.drawn.keys()
        self._known_since = {key: self._known_since.get(key, now) for key in keys}
        self._observed = {key: seen for key, seen in self._observed.items() if key in keys}
        self._missing &= keys
        self._surges.retain(keys)
        self.others.update(found.allowances.values(), now)

    # Observation of pods.

    def is_current(self, observed_version: int) -> bool:
        """Whether a replica that observed all pods up to a version may judge by this state."""
        return observed_version >= max(self.reservations.seen_up_to, 1)

    def mark_observed(
        self, version_of: Callable[[str], int], observed_version: int, now: float
    ) -> None:
        """End the reservations of pods that have been observed.

        Args:
            version_of: the newest version at which a pod was observed, by its uid; 0 if it was not.
            observed_version: the version up to which all pods have been observed.
            now: the moment.
        """
        self.others.observe(observed_version)
        for key, pod in self._reserved():
            if (
                key not in self._observed
                and pod.after < (version := version_of(pod.uid)) <= observed_version
            ):
                self._observed[key] = _Observation(version, now)

    def overdue(self, now: float) -> list[Reservation]:
        """Reservations whose pod should have been observed by now, oldest first."""
        late = now - self._timeouts.unseen_seconds
        return [
            pod
            for key, pod in self._reserved()
            if self._known_since[key] <= late and not self._has_ended(key)
        ]

    def confirm(self, key: str, version: int, now: float) -> None:
        """Keep an overdue reservation: its pod exists at a resourceVersion and will be observed.

        Except if that is the version which the request should have changed: then it had no effect.
        """
        pod = self._reservation(key)
        if pod is not None and version <= pod.after:
            self._missing.add(key)
        else:
            self._known_since[key] = now

    def mark_missing(self, key: str) -> None:
        """End an overdue reservation whose pod does not exist, or has finished."""
        self._missing.add(key)

    def has_reservation(self, key: str) -> bool:
        """Whether there is a reservation of that key already."""
        return self._reservation(key) is not None

    def is_missing(self, key: str) -> bool:
        """Whether the reservation is about to be removed because its pod does not exist."""
        return key in self._missing

    def unobserved(self, counted: CountedPods) -> dict[str, int]:
        """Amounts reserved for pods, beyond those that the view of this replica counts.

        The remainder of its own allowance is not among them.

        Args:
            counted: amounts that the view counts for the pod of a name, none if there is no such
                pod.
        """
        named, additive = split_by_name(self._unended())
        beyond = (excess(amounts, counted(name)) for name, amounts in named.items())
        return sum_of([*beyond, *additive, *self.others.counted()])

    def surging(self, counted: CountedPods, *, is_within_max: bool) -> list[Reservation]:
        """Return the reservations of pods that are above `max` until others have ended.

        Args:
            counted: what the view counts for the pod of a name.
            is_within_max: whether all that counts is within `max`.
        """
        listed = [pod for key, pod in self.reservations.by_key.items() if key not in self._missing]
        self._surges.update(
            listed, counted, is_observed=self._observed.__contains__, is_within_max=is_within_max
        )
        return [pod for pod in listed if self._surges.lasts(pod)]

    def reserved_by_name(self) -> dict[str, dict[str, int]]:
        """Greatest amounts reserved for a whole pod of each name."""
        named, _ = split_by_name(self._unended())
        return named

    # The allowance of this replica.

    def record_demand(self, amounts: Amounts, now: float) -> None:
        """Count the request of a new pod: more like it may come."""
        self._own.record_demand(amounts, now)

    def draw(self, pod: Reservation, now: float) -> bool:
        """Admit a pod from the allowance; False, without effect, where it does not fit.

        The view does not matter: all amounts were counted when the allowance was written.
        """
        if not self._own.draw(pod, self.quota.max, now):
            return False
        self._known_since[pod.key] = now
        return True

    @property
    def holds_allowance(self) -> bool:
        """Whether this replica has an allowance on the object."""
        return self._own.is_held

    def allowance_expired(self, now: float) -> bool:
        """Whether nothing can be drawn from the allowance any more."""
        return self._own.is_expired(self.quota.max, now)

    def allowance_runs_low(self, now: float) -> bool:
        """Whether the allowance should be renewed soon."""
        return self._own.runs_low(now)

    def needs_rewriting(self, free: Amounts, now: float) -> bool:
        """Whether the allowance should be renewed or given back, with so much free of the quota."""
        if not self.holds_allowance:
            return False
        if self.allowance_expired(now) or self._own.is_scarce(free):
            return True
        return self._own.runs_low(now) and bool(self._own.wanted(free, now))

    # Writes.

    def pruned(self, now: float) -> Reservations:
        """Reservations and allowances that have not ended.

        Those that were observed long enough ago are removed: sooner where there are many, at once
        where the annotation is nearly full. The time matters only to slower watches, which wait.
        """
        settled = self._settled(self.reservations.by_key, now)
        # No replica may judge before it has observed all pods up to there, so this one waits first.
        drained = self.others.drained()
        return Reservations(
            max(self.reservations.seen_up_to, *settled.values(), *drained.values(), 0),
            {
                key: self._surges.plain(pod)
                for key, pod in self.reservations.by_key.items()
                if key not in settled and key not in self._missing
            },
            {
                replica: allowance
                for replica, allowance in self.reservations.allowances.items()
                if replica not in drained
            },
        )

    def pruning_write(self, now: float) -> PendingWrite | None:
        """Return the write that removes ended reservations, None where there are none."""
        pruned = self.pruned(now)
        if pruned == self.reservations:
            return None
        return PendingWrite(pruned, self._own.drawn)

    def listed_bytes(self, now: float) -> int:
        """Bytes of the annotation if every pod drawn from the allowance is listed."""
        pruned = self.pruned(now)
        listed = {**pruned.by_key, **self._own.drawn}
        return len(self._encode(Reservations(pruned.seen_up_to, listed, pruned.allowances)))

    def pending_write(
        self, added: Iterable[Reservation], now: float, free: Amounts | None = None
    ) -> PendingWrite:
        """Return the write that reserves more pods.

        With an allowance, all its pods are within it; without, each has its own reservation, so
        that other replicas know which of them they have observed.

        Args:
            added: the pods; they fit.
            now: the moment.
            free: what is free of each resource that the quota limits, to take an allowance of it;
                None to have none.
        """
        pruned, own = self.pruned(now), self._own
        ahead = {} if free is None else own.wanted(free, now)
        settled = self._settled(own.drawn, now)
        pods = {
            key: pod
            for key, pod in own.drawn.items()
            if key not in settled and key not in self._missing
        } | {pod.key: pod for pod in added}
        seen_up_to = max(pruned.seen_up_to, *settled.values(), 0)
        allowances = dict(pruned.allowances)
        allowances.pop(own.replica, None)
        if not ahead:
            listed = Reservations(seen_up_to, {**pruned.by_key, **pods}, allowances)
            if len(self._encode(listed)) <= MOST_BYTES:
                return PendingWrite(listed, {})
        allowances[own.replica] = own.next(pods, ahead)
        return PendingWrite(Reservations(seen_up_to, pruned.by_key, allowances), pods)

    def begin_write(self, write: PendingWrite, now: float) -> str:
        """Return the annotation to write; from here the write may take effect."""
        own = self._own
        allowance = write.reservations.allowances.get(own.replica)
        own.begin_write(allowance, write.drawn, self.quota.max, now)
        return self._encode(write.reservations)

    def abort_write(self) -> None:
        """End a write that certainly had no effect."""
        self._own.abort_write()

    def _encode(self, reservations: Reservations) -> str:
        return encode(reservations, self.quota.uid)

    def _reserved(self) -> Iterable[tuple[str, Reservation]]:
        yield from self.reservations.by_key.items()
        yield from self._own.drawn.items()

    def _unended(self) -> Iterable[Reservation]:
        return (pod for key, pod in self._reserved() if not self._has_ended(key))

    def _reservation(self, key: str) -> Reservation | None:
        return self.reservations.by_key.get(key) or self._own.drawn.get(key)

    def _has_ended(self, key: str) -> bool:
        return key in self._observed or key in self._missing

    def _settled(self, pods: Mapping[str, Reservation], now: float) -> dict[str, int]:
        """Return the keys observed long enough ago, with the versions of their pods."""
        since = now - self._settled_seconds()
        return {
            key: observation.version
            for key, observation in self._observed.items()
            if key in pods and observation.at <= since and not self._surges.lasts(pods[key])
        }

    def _settled_seconds(self) -> float:
        size, usual = len(self.quota.reservations), self._timeouts.settled_seconds
        if size > MOST_BYTES // 2:
            return 0.0
        is_busy = size > _BUSY_BYTES or len(self._own.drawn) > _BUSY_DRAWN
        return min(_SETTLED_SECONDS_WHEN_BUSY, usual) if is_busy else usual
