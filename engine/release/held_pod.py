"""The record of a held pod: all that the leader knows of it, until it is bound or gone.

A transition is a method, and says in its name what happened. The phase follows from the record:

```
CREATED --------------> RELEASING --> RELEASED --> ENDED   bound, or gone
   | its quota, its gang    ^  |  |        |
   +---> QUEUED ------------+  |  |        +-----> LOST    not bound in time
   +---> GATHERING ---------+  |  +--> REFUSED             tried again after a back-off
   | no node takes it       |  |
   +---> UNPLACED ----------+  +--> where it was before    changed, or over its quota
   | others are evicted     |
   +---> RECLAIMING         |
   | their room is there v  |
   +---> RESERVED ----------+
```

Where several hold, the phase is the first of ENDED, REFUSED, RELEASING, LOST, RELEASED, RESERVED,
RECLAIMING, GATHERING, UNPLACED, QUEUED, CREATED.

What must outlive a leader is on the pod itself, so whoever begins to lead finds each in its place.
Two clocks are told apart: `now` is the time of day, `at` are seconds that only go forward.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from engine.model.decision import PlacementRequest
from engine.model.gang import GangKey
from engine.model.hold import WAIT_ANNOTATION, QueuedReason
from engine.model.pod import Pod
from engine.model.time import Micros

LOST_SECONDS: Final = 60.0
"""After which a released pod that is not bound is lost."""

_CHANGED_SECONDS: Final = 1.0
"""After which a pod that was not as we knew it is tried again, even if nothing is seen of it."""

_UNSEEN_SECONDS: Final = 15.0
"""After which a pod whose write may have been made is tried again, though nothing is seen."""

_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS = 1.0, 30.0
_LONGEST_RETRY_AFTER_SECONDS: Final = 120.0  # a server that asks for more is not believed
_LASTING_AFTER: Final = 3
_MOST_UNFOLLOWED: Final = 100
_MOST_UNPLACED: Final = 100

_LOOK_AGAIN_SECONDS: Final = 2.0
"""Between two looks for a node, for a pod that found none."""

_POD_KIND: Final = {"group": "", "version": "v1", "kind": "Pod"}
_PODS: Final = {"group": "", "version": "v1", "resource": "pods"}
_CREATION: Final = {
    "operation": "CREATE",
    "kind": _POD_KIND,
    "resource": _PODS,
    "subResource": "",
    "requestKind": _POD_KIND,
    "requestResource": _PODS,
    "requestSubResource": "",
    "dryRun": False,
}
"""What the admission request said of every pod that is held; who created it is forgotten."""


class HeldPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that nothing but our gate keeps from the scheduler.

    Attributes:
        pod: its model; of one without `raw`, who it is and nothing else.
        version: its resourceVersion.
        raw: the object as the API server sent it, which expressions may read any field of. Empty
            where it is too large to be kept or for a decision: it is to be released without one.
        release_by: the moment by which it is to be released: its creation and the bound of a hold.
            Not what its annotation says, which whoever creates a pod may write. Later while others
            are evicted for it. NEVER of a pod that waits for quota or for its gang.
        seen_at: when this replica first saw it held by our gate alone, waiting for quota or not as
            it is.
        is_queued: whether it waits for quota; also of a pod without `raw`.
        is_held_for_gang: whether it waits for its gang; likewise.
    """

    pod: Pod
    version: int
    raw: bytes
    release_by: Micros
    seen_at: Micros
    is_queued: bool = False
    is_held_for_gang: bool = False

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return self.pod.key

    @property
    def placement_request(self) -> PlacementRequest:
        """The request to place it: what expressions may read at a release, see `compile_policy`."""
        return PlacementRequest(pod=self.pod, raw=self.raw, request=creation_of(self.pod))

    @property
    def is_unbounded(self) -> bool:
        """Whether it waits for as long as its quota or its gang takes."""
        return self.is_queued or self.is_held_for_gang

    @property
    def overdue_from(self) -> Micros:
        """The moment from which it counts as overdue: nobody can release what is not seen yet."""
        return max(self.release_by, self.seen_at)


def creation_of(pod: Pod) -> Mapping[str, Any]:
    """Return what is still known of the admission request of a pod that is stored by now."""
    return {**_CREATION, "name": pod.name, "namespace": pod.namespace}


class Phase(StrEnum):
    """Where a held pod is between its creation and its binding."""

    CREATED = "created"  # held by our gate, in the queue order
    QUEUED = "queued"  # in the queue of its quota
    UNPLACED = "unplaced"  # no node takes it, and it stays held
    GATHERING = "gathering"  # it waits for its gang, or for the turn of that
    RECLAIMING = "reclaiming"  # others are being evicted for it
    RESERVED = "reserved"  # the room that others made is there
    RELEASING = "releasing"  # its release is being written
    REFUSED = "refused"  # somebody's admission refuses its release
    RELEASED = "released"  # our gate is gone, and it is not bound yet
    LOST = "lost"  # it was released, and not bound in time
    ENDED = "ended"  # it is bound or gone


class WriteFailure(Enum):
    """The ways in which a write fails.

    Attributes:
        REFUSED: somebody's admission, or a right that we lack, stands against it, or the API server
            takes too long or fails for this pod alone. It is tried again after a back-off.
        OVER_QUOTA: the pod exceeds its quota, for somebody else was first. It waits until that has
            room.
        GONE: the pod was deleted, maybe replaced by another one of its name. There is nothing to
            do: the watch shows it.
        CHANGED: the pod is no longer what we know: its gate is gone, it is bound, or its affinity
            is another. It is decided again, as the watch shows it.
        BLOCKED: a PodDisruptionBudget stands against an eviction, now or for as long as there are
            two of them.
        UNREACHABLE: there was no answer, or the API server is too busy. Maybe it was written. It
            is tried again after a pause.
        NOT_LEADING: this replica no longer leads. Nothing was sent, and nothing may be.
    """

    REFUSED = "refused"
    OVER_QUOTA = "over-quota"
    GONE = "gone"
    CHANGED = "changed"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"
    NOT_LEADING = "not-leading"


REFUSALS: Final = frozenset({WriteFailure.REFUSED, WriteFailure.OVER_QUOTA})


class Next(Enum):
    """What follows from a release that failed."""

    TRY_AGAIN = "try again"  # the room stays reserved
    GIVE_BACK = "give back"  # the room in the view
    WITHDRAW = "withdraw"  # the nomination on the pod as well
    WAIT_FOR_QUOTA = "wait for quota"  # likewise, until the usage of its quota changes
    SEE = "see"  # it was written after all: the watch is behind


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDecision:
    """What is to be done with a held pod.

    Attributes:
        node_name: the node where room is reserved for it, "" for none; it is nominated to it before
            it is released.
        reason: why there is none; "" where there is one.
        annotations: written with the release.
    """

    node_name: str = ""
    reason: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


class Step(Enum):
    """How far the writes of a release are."""

    WAITING = "waiting"  # nothing is under way
    PREPARING = "preparing"  # writes before the release are
    SENT = "sent"  # the release is
    UNANSWERED = "unanswered"  # nothing is, and the release may have been written
    ACCEPTED = "accepted"


@dataclass(slots=True, kw_only=True, eq=False)
class ReleaseAttempt:
    """The release of a pod, from its decision until it is seen without our gate.

    Attributes:
        held: the pod as it was decided.
        decision: what is to be done with it.
        is_overdue: whether it is released whatever the cluster is like.
        step: of its writes.
        is_doubtful: whether a release was sent before, and may have been written.
        failure: of its last write, None if that did not fail.
    """

    held: HeldPod
    decision: ReleaseDecision
    is_overdue: bool = False
    step: Step = Step.WAITING
    is_doubtful: bool = False
    failure: WriteFailure | None = None

    @property
    def is_writing(self) -> bool:
        """Whether a write is under way."""
        return self.step in {Step.PREPARING, Step.SENT}

    @property
    def is_accepted(self) -> bool:
        """Whether the release was accepted."""
        return self.step is Step.ACCEPTED

    @property
    def is_sent(self) -> bool:
        """Whether our gate is gone, or may be; from then on the nomination stays."""
        return self.step in {Step.SENT, Step.UNANSWERED, Step.ACCEPTED}

    def write_begins(self) -> None:
        """Note that a write is under way; after a release without an answer it is the release."""
        self.step = Step.SENT if self.step is Step.UNANSWERED else Step.PREPARING

    def write_ended(self) -> None:
        """Note that no write is under way any more, however it ended."""
        if self.is_writing:
            self.step = Step.UNANSWERED if self.is_sent else Step.WAITING

    @property
    def is_about_to_go(self) -> bool:
        """Whether it is the next to be released, and neither was before nor failed to be."""
        return not self.is_sent and self.failure is None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done, as a write has failed that was not an overdue pod's."""
        return not self.is_overdue and self.step in {Step.WAITING, Step.UNANSWERED}


@dataclass(slots=True, kw_only=True)
class WriteRefusal:
    """The refusals of writes of a pod, one after the other.

    Attributes:
        message: of who refused it last.
        since: the first of them.
        until: the last of them.
        count: of refusals.
        retry_at: when it may be tried again.
        event_at: when the next Event is due.
    """

    message: str
    since: Micros
    until: Micros
    count: int = 0
    retry_at: float = 0.0
    event_at: float = 0.0

    @property
    def is_lasting(self) -> bool:
        """Whether it will hardly end by itself."""
        return self.count >= _LASTING_AFTER


class ReclaimStage(Enum):
    """Whether others are evicted for a pod."""

    NONE = "none"
    LEFT = "left"  # by an earlier leader; this one has not begun to
    EVICTING = "evicting"
    READY = "ready"  # its room is there
    GIVEN_UP = "given up"  # by this leader: what an earlier one noted on it counts no more


class ReclaimNote(NamedTuple):
    """What a reclaim adds to the condition of a pod.

    Attributes:
        reason: None for that of its wait.
    """

    reason: QueuedReason | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCondition:
    """The latest condition of a pod.

    Attributes:
        reason: of the condition.
        band: of its place, None where an earlier leader wrote it.
        at: when it was written.
        until: the moment by which it said that the pod is released, None if it said none.
    """

    reason: str
    band: int | None
    at: Micros
    until: Micros | None = None


@dataclass(slots=True, kw_only=True)
class RoomWait:
    """The wait of a pod for room that evictions may make.

    Attributes:
        since: when it began.
        seen_at: when the pod was last seen waiting.
        plan_at: before which no plan is made for it.
        report_at: before which it gets no Event about a plan.
    """

    since: Micros
    seen_at: Micros
    plan_at: int = 0
    report_at: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class HeldPodRecord:
    """All that is known of one held pod; see the module for its phases.

    Attributes:
        pod: as it was seen last.
        held: as it was seen last with our gate, None of one that was not.
        is_held: whether it was held when that was asked last.
        is_bound_or_gone: whether it needs nobody any more.
        place: in the queue order of the last cycle, None of one whose turn could not come.
        gang: that it waits for, None for none.
        attempt: its release, while that is written.
        refusal: of its writes, None while they are accepted.
        was_refused: whether a release of it was refused since it is held: its condition stays until
            it is released after all, and the API server is asked for the pod before the next.
        released_at: when its release was sent, None while it was not or counts no longer.
        keeps_order: whether the next pod of an order waits until it is bound.
        is_lost: whether it was not bound in time.
        unfollowed_nomination: the node that it was released with and has not followed, "" for none.
        unfollowed_since: since when that is seen, or was withdrawn last.
        reclaim: whether others are evicted for it.
        reclaim_note: what a reclaim adds to its condition.
        is_reclaim_in_vain: whether nothing that others borrow makes room for it: autoscalers must
            see it.
        room_wait: its wait for evictions, None if it never waited for any.
        would_evict_from: by the sources of plans that would evict others for it in mode On: when it
            was released without a node.
        look_again_at: when to look for a node again, for a pod that found none and stays held; None
            while it does not wait for that.
        may_evict: whether its policy evicts others for it then; else a gang has what comes free.
        capacity_again_at: the same of a pod that quota lets go, within its min.
        within_min_since: since when a pod within min waits, None while it does not.
        condition: that says why it waits.
    """

    pod: Pod
    held: HeldPod | None = None
    is_held: bool = False
    is_bound_or_gone: bool = False
    place: int | None = None
    gang: GangKey | None = None
    attempt: ReleaseAttempt | None = None
    refusal: WriteRefusal | None = None
    was_refused: bool = False
    released_at: float | None = None
    keeps_order: bool = False
    is_lost: bool = False
    unfollowed_nomination: str = ""
    unfollowed_since: float = 0.0
    reclaim: ReclaimStage = ReclaimStage.NONE
    reclaim_note: ReclaimNote | None = None
    is_reclaim_in_vain: bool = False
    room_wait: RoomWait | None = None
    would_evict_from: dict[str, Micros] = field(default_factory=dict)
    look_again_at: float | None = None
    may_evict: bool = False
    capacity_again_at: float | None = None
    within_min_since: Micros | None = None
    condition: WrittenCondition | None = None
    _stale_version: int = 0
    _stale_until: float = float("-inf")

    @property
    def phase(self) -> Phase:
        """Where the pod is."""
        if self.is_bound_or_gone:
            return Phase.ENDED
        if self.refusal is not None:
            return Phase.REFUSED
        if self.attempt is not None and not self.attempt.is_accepted:
            return Phase.RELEASING
        if self.is_lost:
            return Phase.LOST
        if self.attempt is not None or self.released_at is not None:
            return Phase.RELEASED
        return self._phase_while_waiting()

    def _phase_while_waiting(self) -> Phase:
        if self.reclaim is ReclaimStage.READY:
            return Phase.RESERVED
        if self.is_reclaiming:
            return Phase.RECLAIMING
        if self.gang is not None:
            return Phase.GATHERING
        if self.look_again_at is not None:
            return Phase.UNPLACED
        is_queued = self.held is not None and self.held.is_queued
        return Phase.QUEUED if is_queued else Phase.CREATED

    @property
    def is_refused(self) -> bool:
        """Whether its last write was refused, by this leader or by the one before it."""
        if self.refusal is not None:
            return True
        is_accepted = self.attempt is not None and self.attempt.is_accepted
        noted = self.pod.annotations.get(WAIT_ANNOTATION, "")
        return noted.startswith(QueuedReason.RELEASE_REFUSED) and not is_accepted

    def seen(self, held: HeldPod, *, evicts: bool) -> None:
        """Note how the pod is seen with our gate.

        Whoever may write a pod can write that others are evicted for it; nobody but us and
        schedulers nominates.

        Args:
            held: the pod.
            evicts: whether this replica evicts others for pods.
        """
        self.held, self.pod, self.is_held = held, held.pod, True
        if self.reclaim in {ReclaimStage.NONE, ReclaimStage.LEFT}:
            is_left = evicts and held.pod.is_reclaimed_for
            self.reclaim = ReclaimStage.LEFT if is_left else ReclaimStage.NONE

    # The release.

    def may_be_written(self, version: int, at: float) -> bool:
        """Return whether nobody refuses the pod, and it is as we know it.

        Args:
            version: of the pod as it is seen.
            at: the moment.
        """
        is_as_known = version != self._stale_version or at >= self._stale_until
        return is_as_known and (self.refusal is None or at >= self.refusal.retry_at)

    def outdated(self, version: int, at: float, *, is_unseen: bool = False) -> None:
        """Note that the pod is no longer what this version says: it is not written for a while.

        Args:
            version: of the pod as it was written.
            at: the moment.
            is_unseen: whether a write of ours made it so, which the watch is about to show.
        """
        self._stale_version = version
        self._stale_until = at + (_UNSEEN_SECONDS if is_unseen else _CHANGED_SECONDS)

    def release_begins(
        self, held: HeldPod, decision: ReleaseDecision, *, is_overdue: bool = False
    ) -> ReleaseAttempt:
        """Note that the pod is to be released."""
        self.attempt = ReleaseAttempt(held=held, decision=decision, is_overdue=is_overdue)
        return self.attempt

    def release_sent(self, attempt: ReleaseAttempt, at: float) -> None:
        """Note that the release is sent: its binding may be seen before the answer."""
        attempt.step = Step.SENT
        self.released_at, self.is_lost = at, False
        self.keeps_order = attempt.held.pod.is_held_for_order

    def release_accepted(self, attempt: ReleaseAttempt) -> None:
        """Note that our gate is gone."""
        attempt.step = Step.ACCEPTED
        self._stale_until = float("-inf")
        self.refusal = None

    def release_failed(
        self,
        attempt: ReleaseAttempt,
        failure: WriteFailure,
        message: str,
        *,
        retry_after: float | None,
        now: Micros,
        at: float,
        jitter: Callable[[], float] = random.random,
    ) -> Next:
        """Note that a write of a release failed; return what follows.

        Args:
            attempt: the release.
            failure: of the write.
            message: of who refused it.
            retry_after: seconds that the API server asks for.
            now: the time of day.
            at: the moment.
            jitter: a number in [0, 1).
        """
        was_sent, attempt.failure = attempt.is_sent, failure
        if failure is WriteFailure.UNREACHABLE:
            attempt.is_doubtful = was_sent
            attempt.step = Step.UNANSWERED if was_sent else Step.WAITING
            return Next.TRY_AGAIN
        if failure in REFUSALS:
            self.was_refused = True
        elif attempt.is_doubtful:
            # It was written after all. While the watch is behind, it must not be decided again.
            attempt.write_ended()
            self.outdated(attempt.held.version, at, is_unseen=True)
            self._drop(attempt)
            return Next.SEE
        if was_sent:
            self.binding_is_not_awaited()
        attempt.step = Step.WAITING
        if failure is WriteFailure.OVER_QUOTA and attempt.held.is_queued:
            return Next.WAIT_FOR_QUOTA
        if failure not in REFUSALS:
            self.outdated(attempt.held.version, at)
            return Next.GIVE_BACK
        is_lasting = self.write_refused(message, retry_after, now, at, jitter)
        return Next.WITHDRAW if is_lasting else Next.TRY_AGAIN

    def write_refused(
        self,
        message: str,
        retry_after: float | None,
        now: Micros,
        at: float,
        jitter: Callable[[], float] = random.random,
    ) -> bool:
        """Note that somebody refuses a write; return whether what is reserved is to be given back.

        Waits double up to a bound; none is shorter than the server asks for.
        """
        refusal = self.refusal = self.refusal or WriteRefusal(message=message, since=now, until=now)
        refusal.message, refusal.until = message, now
        wait = min(_FIRST_BACKOFF_SECONDS * 2**refusal.count, _LONGEST_BACKOFF_SECONDS)
        asked = min(retry_after or 0.0, _LONGEST_RETRY_AFTER_SECONDS)
        refusal.count += 1
        refusal.retry_at = at + max(wait * (1 + jitter()) / 2, asked)
        return refusal.is_lasting

    def given_back(self, attempt: ReleaseAttempt) -> bool:
        """End a release; return whether the room that was reserved for it is to be let go."""
        is_current = self.attempt is attempt
        self._drop(attempt)
        return is_current and not attempt.is_accepted

    def _drop(self, attempt: ReleaseAttempt) -> None:
        if self.attempt is attempt:
            self.attempt = None

    # After the release.

    def scheduler_tried_in_vain(self) -> None:
        """Note that the scheduler finds no node: the next pod of an order waits no longer."""
        self.keeps_order = False

    def binding_is_not_awaited(self) -> None:
        """Note that the pod counts as released no longer."""
        self.released_at, self.keeps_order = None, False

    def lost(self) -> None:
        """Note that the pod was not bound in time."""
        self.binding_is_not_awaited()
        self.is_lost = True

    def nomination_seen(self, node_name: str, at: float) -> None:
        """Note the nomination of ours that a released pod has, "" for none."""
        if node_name != self.unfollowed_nomination:
            self.unfollowed_nomination, self.unfollowed_since = node_name, at

    def ended(self) -> None:
        """Note that the pod is bound or gone."""
        self.binding_is_not_awaited()
        self.unfollowed_nomination, self.is_lost, self.is_bound_or_gone = "", False, True
        self.would_evict_from.clear()

    def not_held(self) -> None:
        """Forget what concerns a held pod alone; others may still be evicted for it."""
        self.attempt, self.refusal, self.was_refused, self.is_held = None, None, False, False
        self._stale_until = float("-inf")
        self.place, self.gang, self.condition, self.room_wait = None, None, None, None
        self.look_again_at = self.capacity_again_at = self.within_min_since = None
        self.may_evict = False
        if not self.is_kept_for_reclaim:
            self.forget_reclaim()
        self._forget_object()

    # Its node and its quota.

    def finds_no_node(self, at: float, *, may_evict: bool = True) -> None:
        """Note that no node takes the pod, which stays held; others may be evicted for it."""
        self.look_again_at, self.may_evict = at + _LOOK_AGAIN_SECONDS, may_evict

    def rests(self, at: float) -> bool:
        """Return whether a node is not to be looked for again yet."""
        is_early = self.look_again_at is not None and at < self.look_again_at
        return is_early and not self.is_reclaim_in_vain

    def waits_within_min(self, now: Micros) -> None:
        """Note that the pod waits, though it is within the min of its quota."""
        if self.within_min_since is None:
            self.within_min_since = now

    def finds_no_node_within_min(self, now: Micros, at: float) -> None:
        """Note that quota lets the pod go, and no node takes it."""
        self.capacity_again_at = at + _LOOK_AGAIN_SECONDS
        self.waits_within_min(now)

    def looks_again(self, at: float) -> None:
        """Let a node be looked for now, where the pod waits for one within the min of its quota."""
        if self.capacity_again_at is not None:
            self.capacity_again_at = at

    def waits_within_min_no_more(self) -> None:
        """Note that the pod waits for no quota."""
        self.within_min_since = self.capacity_again_at = None

    # The reclaim.

    @property
    def is_reclaiming(self) -> bool:
        """Whether it must neither be decided nor released, as others are evicted for it."""
        return self.reclaim is ReclaimStage.EVICTING or self.reclaim is ReclaimStage.LEFT

    @property
    def is_kept_for_reclaim(self) -> bool:
        """Whether others are evicted for it, or were, so that its request counts as used."""
        return self.reclaim is ReclaimStage.EVICTING or self.reclaim is ReclaimStage.READY

    def reclaim_begins(self) -> None:
        """Keep the pod from being decided and released from now on."""
        self.reclaim = ReclaimStage.EVICTING

    def room_is_there(self) -> None:
        """Let the pod be decided and released, before others."""
        self.reclaim = ReclaimStage.READY

    def reclaim_given_up(self) -> None:
        """Leave the pod to the queue again, or to its end."""
        self.reclaim = ReclaimStage.GIVEN_UP

    def take_room(self) -> bool:
        """Leave a pod whose room is there to its release; return whether it is such a pod."""
        is_ready = self.reclaim is ReclaimStage.READY
        if is_ready:
            self.reclaim_given_up()
        return is_ready

    def forget_reclaim(self) -> None:
        """Forget all that reclaims noted of it."""
        self.reclaim = ReclaimStage.NONE
        self.reclaim_note, self.is_reclaim_in_vain = None, False

    def evictions_ended(self) -> None:
        """Forget what concerns evictions alone; it may not be held any more."""
        self.forget_reclaim()
        self.would_evict_from.clear()
        self.room_wait = None
        self._forget_object()

    def _forget_object(self) -> None:
        """Forget the whole object of a pod that is not held, once evictions need it no longer."""
        if not (self.is_held or self.is_kept_for_reclaim or self.would_evict_from):
            self.held = None

    @property
    def is_of_use(self) -> bool:
        """Whether the pod is held, or was released and is not bound."""
        is_awaited = self.released_at is not None or self.is_lost or self.unfollowed_nomination
        return self.held is not None or bool(is_awaited)


class HeldPodRegistry:
    """The records of all held pods, and of those released and not bound; the one owner of them.

    Attributes:
        evicts: whether this replica evicts others for held pods.
    """

    def __init__(self) -> None:
        self._by_uid: dict[str, HeldPodRecord] = {}
        self._by_key: dict[str, HeldPodRecord] = {}  # the one that was seen last
        self.evicts = False

    def __iter__(self) -> Iterator[HeldPodRecord]:
        """Iterate over the records of this moment."""
        return iter(list(self._by_uid.values()))

    def of(self, held: HeldPod) -> HeldPodRecord:
        """Return the record of a held pod, a new one if nothing is known of it."""
        record = self._by_uid.get(held.pod.uid)
        if record is not None and record.held is held:
            return record
        if record is None and self._is_replaced(held):
            # A write of it has ended late: the later pod of the name stays the one by key.
            self._by_uid[held.pod.uid] = HeldPodRecord(pod=held.pod)
        record = self.of_pod(held.pod)
        if record.held is None or held.version >= record.held.version:
            record.seen(held, evicts=self.evicts)
        return record

    def of_pod(self, pod: Pod) -> HeldPodRecord:
        """Return the record of a pod, a new one if nothing is known of it."""
        record = self._by_uid.get(pod.uid)
        if record is None:
            self.ended(pod.key)  # it was another pod of the name
            record = self._by_uid[pod.uid] = self._by_key[pod.key] = HeldPodRecord(pod=pod)
        return record

    def _is_replaced(self, held: HeldPod) -> bool:
        """Return whether a later pod of the name is known."""
        last = self._by_key.get(held.key)
        if last is None or last.is_bound_or_gone:
            return False
        return last.held is None or last.held.version > held.version

    def find(self, pod: Pod) -> HeldPodRecord | None:
        """Return the record of a pod, None if nothing is known of it."""
        return self._by_uid.get(pod.uid)

    def by_key(self, key: str) -> HeldPodRecord | None:
        """Return the record of the pod by `namespace/name`, None if nothing is known of it."""
        return self._by_key.get(key)

    def attempt(self, pod: Pod) -> ReleaseAttempt | None:
        """Return the release of a pod, None while it is not to be released."""
        record = self._by_uid.get(pod.uid)
        return None if record is None else record.attempt

    def releasing(self) -> list[ReleaseAttempt]:
        """Return the releases that are written, or not seen yet."""
        attempts = (record.attempt for record in self._by_uid.values())
        return [attempt for attempt in attempts if attempt is not None]

    def unbound(self) -> list[HeldPodRecord]:
        """Return the released pods that are not bound, the oldest first."""
        found = [each for each in self._by_uid.values() if each.released_at is not None]
        return sorted(found, key=lambda each: each.released_at or 0.0)

    def refused(self) -> list[HeldPodRecord]:
        """Return the pods whose last write was refused."""
        return [record for record in self._by_uid.values() if record.refusal is not None]

    def schedulers_in_order(self, *, with_next: bool = False) -> set[str]:
        """Return the schedulers of which the next pod of an order has to wait.

        Args:
            with_next: whether those count of which one is about to be released.
        """
        return {
            each.pod.scheduler_name
            for each in self._by_uid.values()
            if each.keeps_order
            or (
                with_next
                and each.attempt is not None
                and each.attempt.held.pod.is_held_for_order
                and each.attempt.is_about_to_go
            )
        }

    # The queue order, and those that others are evicted for.

    def set_order(self, queue: Iterable[HeldPod]) -> None:
        """Note the pods whose turn may come, in the queue order; no other waits for a node."""
        for record in self._by_uid.values():
            record.place = None
        for place, held in enumerate(queue):
            self.of(held).place = place
        for record in self._by_uid.values():
            if record.place is None:
                record.look_again_at = None

    def without_node(self) -> list[HeldPod]:
        """Return the pods that no node takes and that others may be evicted for, in order."""
        waiting = (each for each in self._by_uid.values() if each.look_again_at is not None)
        found = [each for each in waiting if each.may_evict]
        found.sort(key=lambda each: each.place or 0)
        return [each.held for each in found if each.held is not None]

    def begin_evictions(self) -> None:
        """Note that this replica evicts others from now on, for pods of earlier leaders too."""
        self.end_evictions()
        self.evicts = True
        for record in self._by_uid.values():
            if record.held is not None:
                record.seen(record.held, evicts=True)

    def end_evictions(self) -> None:
        """Note that this replica evicts nobody any more; forget all reclaims."""
        self.evicts = False
        for record in self:
            record.evictions_ended()
            self.forget_if_idle(record)

    def kept_for_reclaim(self) -> list[HeldPod]:
        """Return the pods that others are evicted for, and those whose room is there."""
        kept = (each for each in self._by_uid.values() if each.is_kept_for_reclaim)
        return [each.held for each in kept if each.held is not None]

    def released_without_node(self, held: HeldPod, source: str, now: Micros) -> None:
        """Note that a pod is released unplaced, for which mode On would maybe evict others.

        Args:
            held: the pod.
            source: of plans, by its name.
            now: the time of day.
        """
        noted = [each for each in self._by_uid.values() if source in each.would_evict_from]
        if self.evicts and len(noted) < _MOST_UNPLACED:
            self.of(held).would_evict_from[source] = now

    def take_released_without_node(self, source: str, before: Micros) -> list[HeldPod]:
        """Return the pods noted for a source before a moment, each once, the oldest first."""
        due = [
            (record.would_evict_from.pop(source), record.held)
            for record in self
            if record.held is not None and record.would_evict_from.get(source, before + 1) <= before
        ]
        return [held for _, held in sorted(due, key=lambda each: each[0])]

    # After the release.

    def take_lost(self, at: float) -> list[HeldPodRecord]:
        """Return the pods that are not bound in the time they have; they count no longer."""
        lost = [each for each in self.unbound() if at - (each.released_at or 0.0) >= LOST_SECONDS]
        for record in lost:
            record.lost()
        return lost

    def take_unfollowed(self, at: float) -> list[HeldPodRecord]:
        """Return pods that have not followed their nomination in the time that they have.

        Each is returned again after the same time, for as long as it is seen: the write that
        withdraws it may fail, and a leader may end before it.
        """
        unfollowed = sorted(
            (
                record
                for record in self._by_uid.values()
                if record.unfollowed_nomination and at - record.unfollowed_since >= LOST_SECONDS
            ),
            key=lambda record: record.unfollowed_since,
        )[:_MOST_UNFOLLOWED]
        for record in unfollowed:
            record.unfollowed_since = at
        return unfollowed

    def forget_releases(self) -> None:
        """Forget who was released, as a replica does that begins to lead; nominations stay."""
        for record in self._by_uid.values():
            record.binding_is_not_awaited()

    def retain(self, is_held: Callable[[Pod], bool]) -> None:
        """Forget what concerns held pods alone of those that are not held any more."""
        for record in self:
            if not is_held(record.pod):
                record.not_held()
                self.forget_if_idle(record)

    def ended(self, key: str) -> None:
        """Note that the pod by `namespace/name` is bound, gone, or replaced by another."""
        record = self._by_key.get(key)
        if record is not None:
            record.ended()
            self.forget_if_idle(record)

    def forget_if_idle(self, record: HeldPodRecord) -> None:
        """Forget a record that says no more than a new one."""
        if not record.is_of_use:
            self._by_uid.pop(record.pod.uid, None)
            if self._by_key.get(record.pod.key) is record:
                del self._by_key[record.pod.key]
