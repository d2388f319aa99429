"""What is known of bindings on their way; the one owner of it.

The API server checks no room, and the scheduler learns of a pod that was moved by its watch alone.
So every binding is noted here from the moment that it is asked about until the watch tells what
became of it.

INVARIANT: no node is filled beyond what it offers by a pod that is bound where it was moved to, nor
by one that was asked about and kept, as long as all that is bound there was asked about, and no
denial arrives too late. Because:

1. A node is judged by a view that counts every binding on its way on each node that it may end on:
   the scheduler's, for an answer may get lost, and that of each answer given. It counts there until
   the watch shows the pod bound, or gone, or until its request has ended at the API server, which
   bounds the time of each, and the watch is complete up to then. Where a pod was denied, it counts
   no more once that is written, unless another answer may yet bind it there: see below.
2. A decision counts before its answer is written, and where a node was moved to lately, the
   scheduler's word for it is not taken: what does not fit there any more is moved on, or denied.
3. One leader decides: it gives no answer once its Lease may be another's. The next one moves
   nothing until all requests that the last one may have answered have ended.

What is not asked about goes where the scheduler puts it, which may not know yet who was moved
there, and who leads after another that died does not know its answers that are on their way: a move
leaves room for that. It leaves room for any one pod that waits, or is like one of the last
minute, if the scheduler may think that there is, and few nodes would take such a pod. As soon as a
binding is seen to escape, or an answer cannot have arrived, moves stop until none has for a while.
So to overfill a node, two must escape to it between a move there and the moment that the scheduler
sees it, or one that many other nodes would take as well.

A pod whose denial arrives too late is bound as if nobody had been asked, and has escaped. Until it
is, it is one of those that wait, and a move leaves room for it as for them. To count it where it
was denied, until its request has ended, would be worse: pods that are tried again every few seconds
would take room on one node after another, and have others denied there, which then do the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Final, TypeAlias

import numpy as np

from engine.binding.decision import BindingAction, BindingDecision, BindingReason, MoveLimits
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.view import ClusterState, ClusterView, IntColumn, ResourceAxis, Sum, counted_requests

_LIKE_ONE_OF_SECONDS: Final = 60
_MOST_OF_LATE: Final = 1_024
_MOST_COMPARED: Final = 1_024  # with each node; of more, the greatest amounts together
_LEAST_ROWS: Final = 16
_MANY_NODES: Final = 32
"""So many that the scheduler will hardly take the one that a pod was just moved to."""

Requests: TypeAlias = tuple[tuple[str, int], ...]


class Margin:
    """The pods that the scheduler may put somewhere at any moment, by what they request.

    They are those that wait, and any like one that was bound of late: that may not have been seen.
    A pod that many nodes would take leaves room nowhere: the largest pods of a burst would else
    keep all others from all but the largest nodes.
    What the scheduler believes to be free on a node is at most what is free without the pods that
    it may not know to be there.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[PodShape, Requests]] = {}
        self._pods = Counter[Requests]()  # of those
        self._of_late: dict[Requests, Micros] = {}  # the latest last
        self._unsure: dict[str, Counter[str]] = {}  # amounts by node
        self._table = _RequestTable()

    def waits(self, key: str, shape: PodShape | None) -> bool:
        """Note a pod that waits for the scheduler, None if it does no longer.

        Returns:
            Whether it did before.
        """
        old = self._waiting.get(key)
        if old is not None and old[0] is not shape:
            del self._waiting[key]
            _add(self._pods, old[1], -1)
            self._keep_or_drop(old[1])
        if shape is not None and (old is None or old[0] is not shape):
            requests = _requests_of(shape)
            self._waiting[key] = shape, requests
            _add(self._pods, requests, 1)
            self._keep_or_drop(requests)
        return old is not None

    def landed(self, shape: PodShape, now: Micros) -> None:
        """Note that a pod of a shape was bound."""
        requests = _requests_of(shape)
        self._of_late.pop(requests, None)
        self._of_late[requests] = now
        self._keep_or_drop(requests)
        if len(self._of_late) > _MOST_OF_LATE:
            self._forget(next(iter(self._of_late)))

    def expire(self, now: Micros) -> None:
        """Forget pods that were bound long ago."""
        while self._of_late:
            requests, at = next(iter(self._of_late.items()))
            if at + _LIKE_ONE_OF_SECONDS * SECOND > now:
                break
            self._forget(requests)

    def unsure(self, node_name: str, shape: PodShape, sign: int) -> None:
        """Note that the scheduler may not know a pod to be on a node, 1, or that it does, -1."""
        amounts = self._unsure.setdefault(node_name, Counter())
        for name, amount in counted_requests(shape).items():
            amounts[name] += sign * amount
        if not any(amounts.values()):
            del self._unsure[node_name]

    def for_pod(self, pod: Pod, view: ClusterView) -> Callable[[int], bool]:
        """Return whether the node of a row would leave the margin if it took a pod."""
        own = _requests_of(pod.shape)
        is_alone = self._pods[own] == 1 and pod.key in self._waiting and own not in self._of_late
        requests = self._table.of(view.axis, but=own if is_alone else None)
        taken = view.axis.vector(dict(own))
        most = requests.max(axis=0) if len(requests) > _MOST_COMPARED else None
        fits_in_many: dict[bytes, bool] = {}

        def has_choice(asked: IntColumn) -> bool:
            """Return whether so many nodes would take requests that it will hardly be this one."""
            key = asked.tobytes()
            if key not in fits_in_many:
                free = view.allocatable - view.sums[Sum.REQUESTS]
                fitting = (free >= asked[:, None]) | (asked == 0)[:, None]
                nodes = np.count_nonzero(fitting.all(axis=0) & view.valid)
                fits_in_many[key] = bool(nodes >= _MANY_NODES)
            return fits_in_many[key]

        def may_take(row: int) -> bool:
            free = view.allocatable[:, row] - view.sums[Sum.REQUESTS, :, row]
            believed = free.copy()
            for name, amount in self._unsure.get(view.names[row], {}).items():
                at = view.axis.find(name)
                if at is not None:
                    believed[at] += amount
            left = free - taken
            if most is not None:
                return bool((left >= np.minimum(most, believed)).all()) or has_choice(most)
            may_come = ((requests <= believed) | (requests == 0)).all(axis=1)
            has_room = ((requests <= left) | (requests == 0)).all(axis=1)
            homeless = requests[may_come & ~has_room]
            return not homeless.size or has_choice(homeless.max(axis=0))

        return may_take

    def _keep_or_drop(self, requests: Requests) -> None:
        """Have requests compared as long as any pod has them."""
        if requests in self._pods or requests in self._of_late:
            self._table.add(requests)
        else:
            self._table.remove(requests)

    def _forget(self, requests: Requests) -> None:
        del self._of_late[requests]
        self._keep_or_drop(requests)


class _RequestTable:
    """Different requests, a row each on the axis of a view.

    Whoever may create pods may have any number of them wait, so one that comes or goes must not
    cost a pass over all.
    """

    def __init__(self) -> None:
        self._rows: dict[Requests, int] = {}
        self._free: list[int] = []  # INVARIANT: with those of `_rows`, all from 0 on
        self._axis: ResourceAxis | None = None
        self._matrix: IntColumn = np.zeros((0, 0), np.int64)  # free rows are 0: nobody asks

    def add(self, requests: Requests) -> None:
        """Add requests unless they are there."""
        if requests in self._rows:
            return
        row = self._free.pop() if self._free else len(self._rows)
        self._rows[requests] = row
        if self._axis is not None:
            if row == len(self._matrix):
                self._matrix = np.concatenate([self._matrix, np.zeros_like(self._matrix)])
            self._matrix[row] = self._axis.vector(dict(requests))

    def remove(self, requests: Requests) -> None:
        """Remove requests if they are there."""
        row = self._rows.pop(requests, None)
        if row is not None:
            self._free.append(row)
            if len(self._free) > len(self._rows) + _LEAST_ROWS:
                self._axis = None  # written anew when it is read next
            if self._axis is not None:
                self._matrix[row] = 0

    def of(self, axis: ResourceAxis, but: Requests | None) -> IntColumn:
        """Return all requests but one, (n, n_resources); to be read before the next change."""
        if axis is not self._axis:
            self._axis, self._free = axis, []
            self._rows = {requests: row for row, requests in enumerate(self._rows)}
            self._matrix = np.zeros((max(_LEAST_ROWS, 2 * len(self._rows)), len(axis)), np.int64)
            for requests, row in self._rows.items():
                self._matrix[row] = axis.vector(dict(requests))
        found = self._matrix[: len(self._rows) + len(self._free)]
        if but is not None:
            found = found.copy()
            found[self._rows[but]] = 0
        return found


def _requests_of(shape: PodShape) -> Requests:
    return tuple(sorted(counted_requests(shape).items()))


def _add(counter: Counter[Requests], requests: Requests, number: int) -> None:
    counter[requests] += number
    if not counter[requests]:
        del counter[requests]


REQUEST_SECONDS: Final = 60
"""The longest time that a request takes at the API server, by its default `--request-timeout`."""

PAUSE_SECONDS: Final = 10
"""For which no pod is moved after a binding has escaped, or may have."""

CACHE_LAG_SECONDS: Final = 5
"""After which the scheduler has seen what was seen here."""

MOST_BINDINGS: Final = 10_000
"""On their way at once; while there are more, no pod is moved."""

MOST_REQUESTS: Final = 32
"""To bind one pod; while there are more, it is not moved. The scheduler waits for up to 10 s before
it tries a pod again, so it makes fewer in the time that one takes."""

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
        lost: answers that the API server cannot have got.
        escaped: bindings that were not asked about, or ended elsewhere than answered.
    """

    decided: Counter[tuple[BindingAction, BindingReason]] = field(default_factory=Counter)
    lost: int = 0
    escaped: int = 0


@dataclass(slots=True, eq=False)
class BindingTicket:
    """A request to bind a pod, from when it is asked about until it has ended; see `asked`.

    Attributes:
        key: `namespace/name` of the pod.
        uid: of the pod.
        scheduler_node: the node that the scheduler took.
        ends_by: when it has ended at the API server, whatever became of it.
        answer: the node that was answered, "" for a denial; None as long as nothing is decided.
    """

    key: str
    uid: str
    scheduler_node: str
    ends_by: Micros
    answer: str | None = None


@dataclass(slots=True, kw_only=True)
class _OnItsWay:
    """A pod with requests to bind it, whose end is not seen."""

    key: str  # `namespace/name` of the pod
    uid: str  # of the pod
    shape: PodShape | None  # of the pod, None while it is not in the state, and so not counted
    scheduler_node: str = ""  # the node that the scheduler took last, and so counts it on
    requests: list[BindingTicket] = field(default_factory=list)  # oldest first, so are their ends

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it may end on; the last one comes first."""
        nodes = chain.from_iterable(
            (request.answer, request.scheduler_node) for request in reversed(self.requests)
        )
        return tuple(dict.fromkeys(filter(None, nodes)))


class BindingLedger:
    """Notes bindings, and says what they allow; see the module.

    Memory follows the pods that wait for the scheduler, and the requests of a minute: at most
    MOST_REQUESTS of each of MOST_BINDINGS pods.

    Args:
        state: where the pods count; nobody else calls its `expect_binding`.
        scope: bindings of its excluded namespaces are not asked about, and that is no fault.
        is_asked_about: whether those of another namespace are.
        request_seconds: see REQUEST_SECONDS.
        pause_seconds: see PAUSE_SECONDS.
        cache_lag_seconds: see CACHE_LAG_SECONDS.
    """

    def __init__(
        self,
        state: ClusterState,
        *,
        scope: Scope,
        is_asked_about: Callable[[str], bool] = lambda _namespace: True,
        request_seconds: float = REQUEST_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        cache_lag_seconds: float = CACHE_LAG_SECONDS,
    ) -> None:
        self.counters = BindingCounters()
        self._state = state
        self._excluded = frozenset(scope.excluded_namespaces)
        self._is_asked_about = is_asked_about
        self._request_micros = int(request_seconds * SECOND)
        self._pause_micros = int(pause_seconds * SECOND)
        self._lag_micros = int(cache_lag_seconds * SECOND)
        self._on_their_way: dict[str, _OnItsWay] = {}  # by uid
        self._counted: dict[str, str] = {}  # of those that the state has, uid by `namespace/name`
        self._unknown_at: Counter[str] = Counter()  # the others, by node
        self._disturbed: Counter[str] = Counter()  # pods that the scheduler may not know, by node
        self._of_late: deque[tuple[Micros, str, PodShape]] = deque()
        self._margin = Margin()
        self._is_leading = False
        self._unsettled_until = Micros(0)  # of what the last leader answered
        self._lag_until = Micros(0)  # since we lead: the scheduler may not know its last moves
        self._paused_until = Micros(0)

    # Leadership.

    def lead_begins(self, now: Micros, last_answer_at: Micros | None) -> None:
        """Begin to decide.

        Args:
            now: now.
            last_answer_at: the latest moment at which another leader may have answered, such as the
                end of its Lease; None if there was none, or it was settled at its end.
        """
        self._is_leading = True
        self._lag_until = Micros(now + self._lag_micros)
        if last_answer_at is not None:
            self._unsettled_until = Micros(last_answer_at + self._request_micros)

    def lead_ends(self) -> None:
        """Move nothing more. What is on its way is still followed."""
        self._is_leading = False

    def is_settled(self, now: Micros) -> bool:
        """Return whether nothing is on its way: the next leader need not wait for it.

        Nor anything that a leader before this one has answered, which nobody here knows of.
        """
        return not self._on_their_way and now >= self._unsettled_until

    @property
    def has_moves_on_their_way(self) -> bool:
        """Whether a pod may yet be bound to a node that its scheduler does not know of.

        Who gives up the Lease in good order calls `lead_ends`, waits until there is none, for the
        next leader would not know of it, and gives it up then.
        """
        return any(len(way.nodes) > 1 for way in self._on_their_way.values())

    def may_move(self, now: Micros) -> bool:
        """Return whether pods may be moved now."""
        return (
            self._is_leading
            and now >= max(self._unsettled_until, self._paused_until)
            and len(self._on_their_way) < MOST_BINDINGS
        )

    # One binding.

    def asked(
        self, key: str, uid: str, node_name: str, pod: Pod | None, now: Micros
    ) -> BindingTicket:
        """Note a binding as soon as it is asked about, also one that was asked about before.

        Args:
            key: `namespace/name`.
            uid: of the pod, as the binding names it; if it names none, that of the pod.
            node_name: the node that the scheduler took.
            pod: as the state has it; None where it has none of this uid.
            now: now.
        """
        ends_by = Micros(now + self._request_micros)
        ticket = BindingTicket(key, uid or key, node_name, ends_by)
        if pod is not None and pod.node_name:
            return ticket  # the API server will refuse it
        way = self._on_their_way.get(ticket.uid)
        if way is None:
            if len(self._on_their_way) >= MOST_BINDINGS:
                return ticket
            shape = None if pod is None else pod.shape
            way = _OnItsWay(key=key, uid=ticket.uid, shape=shape)
            self._on_their_way[way.uid] = way
        if len(way.requests) >= MOST_REQUESTS:
            return ticket
        with self._changing(way, now):
            way.scheduler_node = node_name
            way.requests.append(ticket)
        return ticket

    def view(self, ticket: BindingTicket) -> ClusterView:
        """Return the cluster with all bindings on their way but this one.

        The pod counts nowhere until `decided`, or `answer_lost`, is called for it: nothing else may
        be decided before that.
        """
        if self._counted.get(ticket.key) == ticket.uid:  # and not a later pod of that name
            self._state.expect_binding(ticket.key, _NOWHERE, at=Micros(0))
        return self._state.view()

    def limits(self, ticket: BindingTicket, now: Micros) -> MoveLimits:
        """Return what other bindings allow for one, right until the next call of anything else."""
        self._forget_moves_of_late(now)
        is_known = now >= max(self._unsettled_until, self._lag_until)
        return MoveLimits(
            may_move=self.may_move(now) and self._is_noted(ticket),
            targets_for=self._targets_for,
            disturbed=self._disturbed.keys() if is_known else None,
        )

    def decided(self, ticket: BindingTicket, decision: BindingDecision, now: Micros) -> None:
        """Note a decision that is going to be the answer."""
        way, is_denied = self._on_their_way.get(ticket.uid), decision.action is BindingAction.DENY
        if way is not None:
            with self._changing(way, now):
                ticket.answer = "" if is_denied else decision.node_name
        self.counters.decided[decision.action, decision.reason] += 1

    def answered(self, ticket: BindingTicket, now: Micros) -> None:
        """Note that an answer was written in time: a pod that was denied waits again.

        If the denial does not arrive in time, it is bound as one that nobody asked about.
        """
        way = self._on_their_way.get(ticket.uid)
        if way is not None and ticket.answer == "" and self._is_noted(ticket):
            with self._changing(way, now):
                way.requests.remove(ticket)

    def answer_lost(self, ticket: BindingTicket, now: Micros) -> None:
        """Note that the API server cannot have got an answer: it was too late, or nobody was there.

        Or that there was none to give. The pod may be bound to the scheduler's node then, and
        counts there.
        """
        way = self._on_their_way.get(ticket.uid)
        if way is not None:
            self._count(way, now)
        self.counters.lost += 1
        self._pause(now)

    # What the watch shows.

    def saw(self, pod: Pod, now: Micros) -> Landing | None:
        """Note a pod as it was seen, once the state has it; return what became of its binding.

        None where it is not bound, or that was seen before.
        """
        counted = self._counted.get(pod.key)
        if counted is not None and counted != pod.uid:
            self._drop(self._on_their_way[counted])  # of an earlier pod of that name
        way = self._on_their_way.get(pod.uid)
        if not pod.node_name:
            self._margin.waits(pod.key, None if pod.gated or pod.is_terminal else pod.shape)
            if way is not None and way.shape is None:
                with self._changing(way, now):
                    way.shape = pod.shape
            return None
        was_waiting = self._margin.waits(pod.key, None)
        if way is None:
            is_no_fault = pod.namespace in self._excluded or now < self._unsettled_until
            if not was_waiting or is_no_fault or not self._is_leading:
                return None
            if not self._is_asked_about(pod.namespace):
                return None
            landing = Landing.UNASKED
        else:
            is_answered = any(pod.node_name == request.answer for request in way.requests)
            landing = Landing.AS_ANSWERED if is_answered else Landing.ELSEWHERE
            self._landed(way, pod, now)
        if landing is not Landing.AS_ANSWERED:
            self.counters.escaped += 1
            self._pause(now)
        return landing

    def gone(self, key: str) -> None:
        """Note that a pod is gone."""
        self._margin.waits(key, None)
        uid = self._counted.get(key)
        if uid is not None:
            self._drop(self._on_their_way[uid])

    def expire(self, now: Micros, seen_until: Micros) -> None:
        """Drop requests that have failed: they have ended, and the pods are not bound.

        Args:
            now: now.
            seen_until: the moment up to which all changes of pods have been seen.
        """
        self._forget_moves_of_late(now)
        self._margin.expire(now)
        ways = self._on_their_way.values()
        for way in [way for way in ways if way.requests[0].ends_by < seen_until]:
            with self._changing(way, now):
                way.requests = [each for each in way.requests if each.ends_by >= seen_until]

    # How it is kept.

    def _is_noted(self, ticket: BindingTicket) -> bool:
        way = self._on_their_way.get(ticket.uid)
        return way is not None and ticket in way.requests

    def _targets_for(self, pod: Pod, view: ClusterView) -> Callable[[int], bool]:
        """Return whether a pod may be moved to the node of a row; see `MoveLimits`."""
        may_take = self._margin.for_pod(pod, view)
        return lambda row: view.names[row] not in self._unknown_at and may_take(row)

    @contextmanager
    def _changing(self, way: _OnItsWay, now: Micros) -> Iterator[None]:
        """Have a binding counted as it is after the block; drop it if nothing may come of it."""
        self._tally(way, -1)
        yield
        self._tally(way, 1)
        if way.requests:
            self._count(way, now)
        else:
            self._drop(way)

    def _tally(self, way: _OnItsWay, sign: int) -> None:
        """Count a binding for each of its nodes, 1, or no longer, -1."""
        for name in way.nodes:
            if way.shape is not None:
                self._margin.unsure(name, way.shape, sign)
            else:
                _add_amounts(self._unknown_at, name, sign)
            if name != way.scheduler_node:
                _add_amounts(self._disturbed, name, sign)

    def _count(self, way: _OnItsWay, now: Micros) -> None:
        """Let a pod count on all nodes that it may be bound to."""
        if way.shape is not None:
            self._counted[way.key] = way.uid
            self._state.expect_binding(way.key, way.nodes, at=now)

    def _landed(self, way: _OnItsWay, pod: Pod, now: Micros) -> None:
        """Note where a binding ended; for a while, the scheduler may not know it."""
        self._drop(way)
        self._margin.landed(pod.shape, now)
        if pod.node_name != way.scheduler_node:
            _add_amounts(self._disturbed, pod.node_name, 1)
            self._margin.unsure(pod.node_name, pod.shape, 1)
            until = Micros(now + self._lag_micros)
            self._of_late.append((until, pod.node_name, pod.shape))

    def _drop(self, way: _OnItsWay) -> None:
        del self._on_their_way[way.uid]
        self._tally(way, -1)
        if self._counted.get(way.key) == way.uid:
            del self._counted[way.key]
            self._state.expect_binding(way.key, (), at=Micros(0))

    def _pause(self, now: Micros) -> None:
        self._paused_until = Micros(now + self._pause_micros)

    def _forget_moves_of_late(self, now: Micros) -> None:
        while self._of_late and self._of_late[0][0] <= now:
            _, name, shape = self._of_late.popleft()
            _add_amounts(self._disturbed, name, -1)
            self._margin.unsure(name, shape, -1)


def _add_amounts(counter: Counter[str], name: str, sign: int) -> None:
    counter[name] += sign
    if not counter[name]:
        del counter[name]
