"""Guards that keep reclaim from going in circles: data, and pure functions of it and a moment.

Two pods that take each other's room, again and again, are what must never happen. One order of
release and of victims prevents most of it; these bounds hold whatever else goes wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from engine.model.time import SECOND, Micros

MIN_RUNTIME: Final = 300 * SECOND
"""For which a pod that was just bound is not evicted."""

ROUND: Final = 30 * SECOND
"""Evictions of one owner within it, from the first, count as one: a plan may take several."""

LEAST_COOL_DOWN: Final = 60 * SECOND
"""From the begin of a round to the next one of the same owner; twice as long after each."""

MOST_COOL_DOWN: Final = 3600 * SECOND
"""The longest cool-down; an owner that is left alone for as long after it is forgotten."""

MOST_IN_FLIGHT: Final = 10
"""Evicted pods that are not gone yet."""

MINUTE: Final = 60 * SECOND
LEAST_A_MINUTE: Final = 10
ONE_IN: Final = 100
"""Of all pods, one in so many is evicted a minute, but at least LEAST_A_MINUTE."""

MOST_FAILURES: Final = 2
BACK_OFF: Final = 600 * SECOND
"""For which no plan is made for a pod after MOST_FAILURES of its plans have failed."""

WINDOW: Final = 20
MOST_FAILED_OF_WINDOW: Final = 4
"""Of the last WINDOW reclaims; with more, fewer than 80 % ended in a binding."""

PAUSE: Final = 600 * SECOND
"""For which reclaim pauses then, and begins anew."""


@dataclass(frozen=True, slots=True)
class OwnerRounds:
    """Rounds of evictions of one owner: when the latest began, and how many came before it."""

    began: Micros
    earlier: int = 0

    @property
    def until(self) -> int:
        """The moment from which the owner may be hit again."""
        return self.began + min(LEAST_COOL_DOWN << min(self.earlier, 16), MOST_COOL_DOWN)


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed plans for one pod, and when the latest failed."""

    count: int
    at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What reclaim has done so far, as far as a guard asks for it; immutable and bounded.

    Attributes:
        in_flight: when each pod was evicted that is not gone yet, by uid.
        evicted: moments of the evictions of the last minute, ascending.
        owners: rounds by owner.
        failures: by uid of the preemptor.
        outcomes: of the last reclaims, oldest first: whether it ended in a binding.
        paused_until: the end of the latest pause, microseconds since the epoch.
    """

    in_flight: Mapping[str, Micros] = field(default_factory=dict)
    evicted: tuple[Micros, ...] = ()
    owners: Mapping[str, OwnerRounds] = field(default_factory=dict)
    failures: Mapping[str, Failures] = field(default_factory=dict)
    outcomes: tuple[bool, ...] = ()
    paused_until: int = 0


def is_paused(state: GuardState, now: Micros) -> bool:
    """Return whether no plan is made for anybody."""
    return now < state.paused_until


def is_backed_off(state: GuardState, preemptor: str, now: Micros) -> bool:
    """Return whether no plan is made for a pod, by uid."""
    failures = state.failures.get(preemptor)
    return failures is not None and failures.count >= MOST_FAILURES and now < failures.at + BACK_OFF


def may_be_hit(state: GuardState, owner: str, now: Micros) -> bool:
    """Return whether pods of an owner may be evicted: not while it cools down."""
    rounds = state.owners.get(owner)
    return rounds is None or now < rounds.began + ROUND or now >= rounds.until


def may_be_evicted(state: GuardState, owner: str, assigned_at: int, now: Micros) -> bool:
    """Return whether a pod has run for long enough, and its owner was not hit a moment ago."""
    return assigned_at + MIN_RUNTIME <= now and may_be_hit(state, owner, now)


def evictions_allowed(state: GuardState, pods: int, now: Micros) -> int:
    """Return how many pods may be evicted now, of a cluster with so many."""
    lately = sum(at > now - MINUTE for at in state.evicted)
    a_minute = max(LEAST_A_MINUTE, pods // ONE_IN)
    return max(0, min(MOST_IN_FLIGHT - len(state.in_flight), a_minute - lately))


def with_eviction(state: GuardState, uid: str, owner: str, now: Micros) -> GuardState:
    """Return the state after a pod was evicted."""
    owners = _remembered_owners(state, now)
    rounds = owners.get(owner)
    if rounds is None:
        rounds = OwnerRounds(now)
    elif now >= rounds.began + ROUND:
        rounds = OwnerRounds(now, rounds.earlier + 1)
    return replace(
        _pruned(state, now),
        in_flight={**state.in_flight, uid: now},
        evicted=(*(at for at in state.evicted if at > now - MINUTE), now),
        owners={**owners, owner: rounds},
    )


def with_end(state: GuardState, uid: str) -> GuardState:
    """Return the state after an evicted pod is gone, or was not evicted after all."""
    left = {each: at for each, at in state.in_flight.items() if each != uid}
    return replace(state, in_flight=left)


def with_outcome(state: GuardState, preemptor: str, now: Micros, *, bound: bool) -> GuardState:
    """Return the state after a plan ended: its preemptor was bound, or the plan has failed."""
    failures = {**_pruned(state, now).failures}
    earlier = failures.pop(preemptor, Failures(0, now))
    if not bound:
        count = 1 if earlier.count >= MOST_FAILURES else earlier.count + 1
        failures[preemptor] = Failures(count, now)
    outcomes = (*state.outcomes, bound)[-WINDOW:]
    if outcomes.count(False) > MOST_FAILED_OF_WINDOW:
        return replace(state, failures=failures, outcomes=(), paused_until=now + PAUSE)
    return replace(state, failures=failures, outcomes=outcomes)


def _pruned(state: GuardState, now: Micros) -> GuardState:
    """Return the state without the failures that no guard asks for any more."""
    failures = {uid: each for uid, each in state.failures.items() if now < each.at + BACK_OFF}
    return replace(state, failures=failures)


def _remembered_owners(state: GuardState, now: Micros) -> dict[str, OwnerRounds]:
    return {
        owner: rounds
        for owner, rounds in state.owners.items()
        if now < rounds.until + MOST_COOL_DOWN
    }
