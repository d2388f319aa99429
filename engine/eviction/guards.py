"""Guards that keep reclaim from going in circles: data, and pure functions of it and a moment.

Two pods that take each other's room, again and again, are what must never happen. One order of
release and of victims prevents most of it; these bounds hold even if it fails. What a
guarantee needs is evicted at once: an owner rests only for pods that came back since it was hit,
and what fails counts for those alone who asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeVar

from engine.eviction.candidates import RunningPod
from engine.model.time import SECOND, Micros

_T = TypeVar("_T")

LEAST_REST: Final = 60 * SECOND
"""From the first eviction of an owner, for its pods that came back; twice as long each time."""

MOST_REST: Final = 300 * SECOND
"""The longest rest; an owner that is left alone for as long after it is forgotten."""

DEFAULT_IN_FLIGHT_PERCENT: Final = 10
LEAST_IN_FLIGHT: Final = 10
"""Evictions under way in a namespace however few pods it has."""

MOST_FAILURES: Final = 2
BACK_OFF: Final = 600 * SECOND
"""For which no plan is made for a pod after MOST_FAILURES of its plans have failed."""

WINDOW: Final = 20
MOST_FAILED_OF_WINDOW: Final = 4
"""Of the last WINDOW reclaims for a namespace; with more, fewer than 80 % ended in a binding."""

PAUSE: Final = 600 * SECOND
"""For which reclaim for a namespace pauses then, and begins again."""

MOST_KEPT: Final = 2000
"""Owners, failures and namespaces that are remembered, the latest; about 100 bytes each."""


@dataclass(frozen=True, slots=True)
class OwnerHits:
    """Evictions of pods of one owner."""

    since: Micros  # when the first of them was evicted; pods that are bound later came back
    returns: int = 0  # how often pods were evicted that had come back

    @property
    def until(self) -> int:
        """The moment from which pods that came back may be evicted again."""
        return self.since + min(LEAST_REST << min(self.returns, 16), MOST_REST)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed plans for one pod, and when the latest failed."""

    count: int
    at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What reclaim has done so far, as far as a guard asks for it; immutable and bounded.

    Attributes:
        owners: hits by owner.
        failures: by uid of the preemptor.
        outcomes: of the last reclaims by namespace of the preemptor, oldest first: whether each
            ended in a binding.
        pauses: ends of pauses by namespace of the preemptor, microseconds since the epoch.
    """

    owners: Mapping[str, OwnerHits] = field(default_factory=dict)
    failures: Mapping[str, Failures] = field(default_factory=dict)
    outcomes: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    pauses: Mapping[str, int] = field(default_factory=dict)


def is_paused(state: GuardState, namespace: str, now: Micros) -> bool:
    """Return whether no plan is made for pods of a namespace."""
    return now < state.pauses.get(namespace, 0)


def is_backed_off(state: GuardState, preemptor: str, now: Micros) -> bool:
    """Return whether no plan is made for a pod, by uid."""
    failures = state.failures.get(preemptor)
    return failures is not None and failures.count >= MOST_FAILURES and now < failures.at + BACK_OFF


def may_be_evicted(state: GuardState, pod: RunningPod, assigned_at: int, now: Micros) -> bool:
    """Return whether a pod is not one that came back a moment ago, after its owner was hit."""
    hits = state.owners.get(pod.owner)
    return hits is None or assigned_at <= hits.since or now >= hits.until


def most_in_flight(pods: int, percent: int) -> int:
    """Return how many evictions may be under way in a namespace with so many running pods."""
    return max(LEAST_IN_FLIGHT, pods * percent // 100)


def with_eviction(
    state: GuardState, uid: str, owner: str, assigned_at: int, now: Micros
) -> GuardState:
    """Return the state after a pod was evicted.

    Args:
        state: before.
        uid: of the pod.
        owner: uid of its first owner, its own where it has none: then it cannot come back.
        assigned_at: when it was bound.
        now: the moment.
    """
    if owner == uid:
        return state
    owners = {each: hits for each, hits in state.owners.items() if now < hits.until + MOST_REST}
    hits = owners.pop(owner, None)
    if hits is None:
        hits = OwnerHits(now)
    elif assigned_at > hits.since:
        hits = OwnerHits(now, hits.returns + 1)
    return replace(state, owners=_latest({**owners, owner: hits}))


def with_outcome(
    state: GuardState, preemptor: str, namespace: str, now: Micros, *, bound: bool
) -> GuardState:
    """Return the state after a plan ended: its preemptor was bound, or the plan has failed.

    Args:
        state: before.
        preemptor: its uid.
        namespace: of the preemptor.
        now: the moment.
        bound: whether it was.
    """
    failures = {uid: each for uid, each in state.failures.items() if now < each.at + BACK_OFF}
    earlier = failures.pop(preemptor, Failures(0, now))
    if not bound:
        count = 1 if earlier.count >= MOST_FAILURES else earlier.count + 1
        failures[preemptor] = Failures(count, now)
    outcomes, pauses = {**state.outcomes}, {**state.pauses}
    latest = (*outcomes.pop(namespace, ()), bound)[-WINDOW:]
    if latest.count(False) > MOST_FAILED_OF_WINDOW:
        pauses = {each: until for each, until in pauses.items() if now < until}
        pauses[namespace] = now + PAUSE
    elif not all(latest):  # a window without a failure says nothing that none at all does not say
        outcomes[namespace] = latest
    return replace(
        state,
        failures=_latest(failures),
        outcomes=_latest(outcomes),
        pauses=_latest(pauses),
    )


def _latest(entries: Mapping[str, _T]) -> dict[str, _T]:
    """Return the entries that were made last, as many as are remembered."""
    return dict(islice(entries.items(), max(0, len(entries) - MOST_KEPT), None))
