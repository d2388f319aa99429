"""What is known of bindings on their way; the one owner of it.

The API server checks no room, and the scheduler learns of a pod that was moved by its watch alone.
So every binding is noted here from the moment that it is asked about until the watch tells what
became of it.

INVARIANT: when a pod is bound to a node that it was moved to, the node has room for it, unless
something is bound there meanwhile that was not asked about. The argument: the pod is moved where it
fits beside all pods of the view, and the view counts each binding on its way on every node that it
may end on: the scheduler's, for an answer may get lost, and that of each answer given. It counts
there until the watch shows the pod bound, or gone, or until the request has ended at the API server
whatever became of it and the watch is complete up to then. One leader decides; what the last one
has answered has ended by then, too, before the next one moves anything.

What is not asked about goes where the scheduler puts it, which may not know yet who was moved
there. So a move leaves room for any one pod that waits and could be put there. Moves stop once
bindings are seen to escape, until they do so no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from engine.binding.decision import BindingDecision, MoveLimits
from engine.binding.reason import BindingAction, BindingReason
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.view import ClusterState, ClusterView, Sum

REQUEST_SECONDS: Final = 60
"""The longest time that a request takes at the API server, by its default `--request-timeout`."""

PAUSE_SECONDS: Final = 10
"""For which no pod is moved after a binding has escaped, or may have."""

CACHE_LAG_SECONDS: Final = 5
"""After which the scheduler has seen what we have seen, on any machine that works."""

MOST_BINDINGS: Final = 10_000
"""On their way at once; while there are more, no pod is moved."""

_MOST_SHAPES: Final = 256
_NOWHERE: Final = ("",)


class Landing(StrEnum):
    """What became of a binding, as the watch shows it."""

    AS_ANSWERED = "AsAnswered"
    ELSEWHERE = "Elsewhere"  # on another node than was answered: the answer was lost
    UNASKED = "Unasked"  # nobody asked here


@dataclass(slots=True, kw_only=True)
class BindingCounters:
    """Counts since the start, for metrics.

    Attributes:
        decided: decisions by action and reason.
        moved: pods moved, by each policy that applied to them.
        repeated: bindings that were asked about again.
        lost: answers that the API server cannot have got.
        escaped: bindings that were not asked about, or ended elsewhere than answered.
    """

    decided: Counter[tuple[BindingAction, BindingReason]] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    lost: int = 0
    escaped: int = 0


@dataclass(frozen=True, slots=True)
class BindingTicket:
    """A binding that is being decided."""

    key: str
    uid: str
    scheduler_node: str
    answer_by: Micros


@dataclass(slots=True, kw_only=True)
class _OnItsWay:
    """A binding that was asked about, and whose end is not seen.

    Attributes:
        uid: of the pod.
        is_known: whether the pod is in the state, and so counted.
        nodes: that it may end on, the answered one first.
        answered: the node of the last answer, "" for none or a denial.
        moved_to: the nodes that it was answered to move to.
        ends_by: when its request has ended at the API server, whatever became of it.
    """

    uid: str
    is_known: bool
    nodes: tuple[str, ...]
    answered: str = ""
    moved_to: frozenset[str] = frozenset()
    ends_by: Micros


class BindingLedger:
    """Notes bindings, and says what they allow; see the module.

    Each method is told `now`. Memory follows the pods that wait, and MOST_BINDINGS.

    Args:
        state: where the pods count; this alone calls its `expect_binding`.
        scope: bindings of its excluded namespaces are not asked about, and that is no fault.
        request_seconds: see REQUEST_SECONDS.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        scope: Scope,
        request_seconds: float = REQUEST_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        cache_lag_seconds: float = CACHE_LAG_SECONDS,
    ) -> None:
        self.counters = BindingCounters()
        self._state = state
        self._excluded = frozenset(scope.excluded_namespaces)
        self._request_micros = int(request_seconds * SECOND)
        self._pause_micros = int(pause_seconds * SECOND)
        self._lag_micros = int(cache_lag_seconds * SECOND)
        self._on_their_way: dict[str, _OnItsWay] = {}
        self._waiting: dict[str, PodShape] = {}
        self._shapes: Counter[PodShape] = Counter()  # of those
        self._disturbed: dict[str, Micros] = {}  # nodes that pods were moved to, until when
        self._is_leading = False
        self._unsettled_until = Micros(0)  # of what the last leader answered
        self._paused_until = Micros(0)

    # Leadership.

    def lead_begins(self, now: Micros, last_answer_at: Micros | None) -> None:
        """Begin to decide.

        Args:
            now: now.
            last_answer_at: the latest moment at which another leader may have answered, such as the
                end of its Lease; None if there was none, or all that it answered has been seen.
        """
        self._is_leading = True
        if last_answer_at is not None:
            ends = min(last_answer_at, now) + self._request_micros
            self._unsettled_until = Micros(max(self._unsettled_until, ends))

    def lead_ends(self) -> None:
        """Decide no more. What is on its way is still followed."""
        self._is_leading = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way: the next leader needs no pause."""
        return not self._on_their_way

    # One binding.

    def asked(
        self,
        key: str,
        uid: str,
        node_name: str,
        pod: Pod | None,
        *,
        now: Micros,
        answer_by: Micros,
    ) -> BindingTicket:
        """Note a binding as soon as it is asked about, also one that was asked about before.

        Args:
            key: `namespace/name`.
            uid: of the pod, as the binding names it.
            node_name: the node that the scheduler took.
            pod: as it was last seen; None where none of this uid was.
            now: now.
            answer_by: the moment from which an answer must not be given: the caller has given up by
                then, or the Lease may be another's.
        """
        ticket = BindingTicket(key, uid, node_name, answer_by)
        if self._state.placement(key) is not None and pod is not None:
            return ticket  # bound already: the API server will refuse it
        earlier = self._on_their_way.get(key)
        if earlier is not None and earlier.uid != uid:
            earlier = None
        if earlier is not None:
            self.counters.repeated += 1
        elif len(self._on_their_way) >= MOST_BINDINGS:
            return ticket
        nodes = () if earlier is None else earlier.nodes
        self._follow(
            key,
            _OnItsWay(
                uid=uid,
                is_known=pod is not None,
                nodes=tuple(dict.fromkeys((*nodes, node_name))),
                answered="" if earlier is None else earlier.answered,
                moved_to=frozenset() if earlier is None else earlier.moved_to,
                ends_by=Micros(now + self._request_micros),
            ),
            now,
        )
        return ticket

    def view(self, ticket: BindingTicket) -> ClusterView:
        """Return the cluster with all bindings on their way but this one.

        Until `decided` is called for it, nothing else may be: it counts nowhere.
        """
        if ticket.key in self._on_their_way:
            self._state.expect_binding(ticket.key, _NOWHERE, at=Micros(0))
        return self._state.view()

    def limits(self, ticket: BindingTicket, pod: Pod, view: ClusterView, now: Micros) -> MoveLimits:
        """Return what other bindings allow for one.

        Args:
            ticket: of the binding.
            pod: the pod.
            view: by `view`.
            now: now.
        """
        if now >= self._unsettled_until:
            self._forget_disturbances(now)
            moved_to = [way.moved_to for way in self._on_their_way.values() if way.moved_to]
            disturbed = frozenset(self._disturbed).union(*moved_to)
        else:
            disturbed = None
        return MoveLimits(
            may_move=self.may_move(now) and ticket.key in self._on_their_way,
            may_take=self._margin(pod.shape, view),
            disturbed=disturbed,
        )

    def may_move(self, now: Micros) -> bool:
        """Return whether pods may be moved now."""
        return (
            self._is_leading
            and now >= max(self._unsettled_until, self._paused_until)
            and len(self._on_their_way) < MOST_BINDINGS
        )

    def decided(self, ticket: BindingTicket, decision: BindingDecision, now: Micros) -> bool:
        """Note a decision; return whether it may be given as the answer.

        It may not be once it is too late: it counts as lost then, and no answer is given at all.
        """
        way = self._on_their_way.get(ticket.key)
        is_late = now >= ticket.answer_by
        if way is not None and way.uid == ticket.uid:
            if not is_late and decision.action is not BindingAction.DENY:
                way.answered = decision.node_name
                way.nodes = tuple(dict.fromkeys((decision.node_name, *way.nodes)))
                if decision.is_moved:
                    way.moved_to |= {decision.node_name}
            elif not is_late:
                way.answered = ""
            self._follow(ticket.key, way, now)
        if is_late:
            self._lost(now)
            return False
        self.counters.decided[decision.action, decision.reason] += 1
        if decision.is_moved and decision.decision is not None:
            self.counters.moved.update(decision.decision.policies)
        return True

    def answer_lost(self, now: Micros) -> None:
        """Note that the API server cannot have got an answer: it was too late, or nobody was there.

        The pod may be bound to the scheduler's node then, and counts there anyway.
        """
        self._lost(now)

    def answered(self, ticket: BindingTicket) -> None:
        """Note that an answer was written in time: a pod that was denied is not bound any more."""
        way = self._on_their_way.get(ticket.key)
        if way is not None and way.uid == ticket.uid and not way.answered and not way.moved_to:
            way.ends_by = min(way.ends_by, Micros(ticket.answer_by + self._lag_micros))

    # What the watch shows.

    def saw(self, pod: Pod, now: Micros) -> Landing | None:
        """Note a pod as it was seen, once the state has it; return what became of its binding.

        None where that is not new.
        """
        key = pod.key
        way = self._on_their_way.get(key)
        if way is not None and way.uid != pod.uid:
            way = None  # of another pod of that name
        if not pod.node_name:
            self._waits(key, None if pod.gated or pod.is_terminal else pod.shape)
            if way is not None and not way.is_known:
                way.is_known = True
                self._follow(key, way, now)
            return None
        was_waiting = key in self._waiting
        self._waits(key, None)
        if way is None:
            if not was_waiting or pod.namespace in self._excluded or not self._is_leading:
                return None
            self._escaped(now)
            return Landing.UNASKED
        self._drop(key, way, now)
        if pod.node_name == way.answered:
            return Landing.AS_ANSWERED
        self._escaped(now)
        return Landing.ELSEWHERE

    def gone(self, key: str, now: Micros) -> None:
        """Note that a pod is gone."""
        self._waits(key, None)
        way = self._on_their_way.get(key)
        if way is not None and way.is_known:
            self._drop(key, way, now)

    def expire(self, now: Micros, seen_until: Micros) -> None:
        """Drop bindings that have failed.

        Args:
            now: now.
            seen_until: the moment up to which all changes of pods have been seen.
        """
        ended = [(key, way) for key, way in self._on_their_way.items() if way.ends_by < seen_until]
        for key, way in ended:
            self._drop(key, way, now)

    def _follow(self, key: str, way: _OnItsWay, now: Micros) -> None:
        self._on_their_way[key] = way
        if way.is_known:
            self._state.expect_binding(key, way.nodes, at=now)

    def _drop(self, key: str, way: _OnItsWay, now: Micros) -> None:
        del self._on_their_way[key]
        self._state.expect_binding(key, (), at=now)
        for name in way.moved_to:
            self._disturbed[name] = Micros(now + self._lag_micros)

    def _waits(self, key: str, shape: PodShape | None) -> None:
        old = self._waiting.pop(key, None)
        if old is not None:
            self._shapes[old] -= 1
            if not self._shapes[old]:
                del self._shapes[old]
        if shape is not None:
            self._waiting[key] = shape
            self._shapes[shape] += 1

    def _lost(self, now: Micros) -> None:
        self.counters.lost += 1
        self._paused_until = Micros(now + self._pause_micros)

    def _escaped(self, now: Micros) -> None:
        self.counters.escaped += 1
        self._paused_until = Micros(now + self._pause_micros)

    def _forget_disturbances(self, now: Micros) -> None:
        if any(until <= now for until in self._disturbed.values()):
            self._disturbed = {
                name: until for name, until in self._disturbed.items() if until > now
            }

    def _margin(self, shape: PodShape, view: ClusterView) -> Callable[[int], bool]:
        """Return whether a node would still take any pod that waits, as far as it does now."""
        waiting = [each.requests for each in self._shapes]
        unknown = {
            name for way in self._on_their_way.values() if not way.is_known for name in way.nodes
        }
        axis = view.axis

        def may_take(row: int) -> bool:
            if view.names[row] in unknown or len(waiting) > _MOST_SHAPES:
                return False
            for requests in waiting:
                for name, amount in requests.items():
                    at = axis.find(name)
                    if at is None:
                        continue
                    free = int(view.allocatable[at, row] - view.sums[Sum.REQUESTS, at, row])
                    taken = shape.requests.get(name, 0)
                    if amount <= free and amount > free - taken:
                        return False
            return True

        return may_take
