"""A control plane that goes wrong in every way it can: scheduler, API server, watches, leaders.

Nobody may be bound by a move to a node that has no room for it, nor where the leader said yes to
the scheduler's node; and nobody may be denied for room that no other pod can take. Time is
simulated, seconds stand for minutes where nothing but waiting is done. Run it at length with
`python -m tests.webhook.binding.binding_machine --bindings 100000`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Final, Literal, Protocol

import msgspec

from engine.binding import (
    BindingAction,
    BindingDecision,
    BindingLedger,
    BindingReason,
    BindingTicket,
    MoveLimits,
)
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView, Sum
from tests.engine.binding.worlds import NOW, node, request
from tests.engine.policy.worlds import policies
from webhook.binding import BindingDecider, DeciderParts, SeenBindings
from webhook.binding.decider import AskedBinding, MadeDecision
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

SCOPE: Final = Scope(excluded_namespaces=("excluded",))
TIMEOUT: Final = 0.3  # of a call to the webhook
IN_HASTE: Final = 0.18  # after which there is no time for policies
REQUEST: Final = 2.0  # of a request to the API server
LEASE: Final = 1.0
LEASE_MARGIN: Final = 0.2
CACHE_LAG: Final = 0.5
PAUSE: Final = 1.0
SETTLE: Final = 0.5  # how long who ends waits for what is on its way
_NOT_JUDGED: Final = frozenset({BindingReason.POD_UNKNOWN, BindingReason.NODE_UNKNOWN})
SIZES: Final = (500, 500, 500, 1000, 1000, 1500, 2000, 3000)  # millicores


@dataclass(slots=True, kw_only=True)
class Faults:
    """How often what goes wrong; probabilities, but for those in seconds.

    Attributes:
        late_call: a call reaches the leader, or its answer the API server, too late.
        lost_call: a call never reaches it.
        slow_watch: an event is late by up to a third of a second.
        slow_write: an answered binding is written late, up to when its request ends.
        failed_write: an answered binding is not written.
        repeated: a binding is asked for a second time while the first is on its way.
        unknown_outcome: the scheduler never learns that a binding succeeded.
        excluded: a pod is in a namespace that is not asked about.
        other_scheduler: a pod is bound by another scheduler.
        freeze: mean seconds between two freezes of the leader; 0 for none.
        handover: mean seconds between two orderly ends; 0 for none.
        node_change: mean seconds between nodes that go and come; 0 for none.
        in_storms: whether calls are late or lost only in the first second of every five.
        fails_closed: whether a binding fails when nobody answers (`failurePolicy: Fail`).
    """

    late_call: float = 0.0
    lost_call: float = 0.0
    slow_watch: float = 0.0
    slow_write: float = 0.0
    failed_write: float = 0.0
    repeated: float = 0.0
    unknown_outcome: float = 0.0
    excluded: float = 0.0
    other_scheduler: float = 0.0
    freeze: float = 0.0
    handover: float = 0.0
    node_change: float = 0.0
    in_storms: bool = False
    fails_closed: bool = False


# Small pods would rather be where large ones would not, so that moves go both ways.
POLICY: Final = """
scores:
- name: rank
  expression: >-
    pod.requests.cpu > 0.6 ? int(node.labels['rank']) : 100 - int(node.labels['rank'])
placement: {at: Binding}
"""

QUIET: Final = Faults()
ASKED: Final = Faults(  # everything but what is not asked about, or not answered
    slow_watch=0.05,
    slow_write=0.05,
    failed_write=0.03,
    repeated=0.05,
    unknown_outcome=0.02,
    node_change=3,
    handover=5,
)
WILD: Final = Faults(
    late_call=0.05,
    lost_call=0.05,
    slow_watch=0.05,
    slow_write=0.05,
    failed_write=0.03,
    repeated=0.05,
    unknown_outcome=0.02,
    excluded=0.03,
    other_scheduler=0.03,
    freeze=6,
    handover=9,
    node_change=3,
)
STORMY: Final = Faults(  # storms begin while pods are moved
    late_call=0.2,
    lost_call=0.2,
    slow_watch=0.05,
    slow_write=0.05,
    failed_write=0.03,
    repeated=0.05,
    freeze=8,
    node_change=5,
    in_storms=True,
)

BRIMFUL: Final = replace(STORMY, freeze=0)  # what the last leader answered needs the margin


@dataclass(slots=True)
class Stored:
    """A pod as the API server has it."""

    name: str
    uid: str
    cpu: int
    namespace: str
    scheduler: str
    port: bool
    node: str = ""
    was_moved: bool = False
    answer: Answer | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@cache
def template(cpu: int, namespace: str, scheduler: str, port: bool) -> PlacementRequest:  # noqa: FBT001
    """Return the request of a pod; those of one template share what can be shared."""
    ports = {"ports": [{"containerPort": 80, "hostPort": 80}]} if port else {}
    made = request("template", cpu=f"{cpu}m", schedulerName=scheduler)
    raw = msgspec.json.decode(made.raw)
    raw["metadata"]["namespace"] = namespace
    raw["spec"]["containers"][0] |= ports
    return request(
        "template",
        metadata={"namespace": namespace},
        **{key: value for key, value in raw["spec"].items() if key != "nodeName"},
    )


def request_of(stored: Stored) -> PlacementRequest:
    """Return a pod as a leader sees it."""
    shared = template(stored.cpu, stored.namespace, stored.scheduler, stored.port)
    pod = msgspec.structs.replace(
        shared.pod, name=stored.name, uid=stored.uid, node_name=stored.node
    )
    return PlacementRequest(pod=pod, raw=shared.raw)


class Clock:
    """Simulated time, and what happens in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def after(self, seconds: float, run: Callable[[], None]) -> None:
        heappush(self._queue, (self.now + seconds, next(self._numbers), run))

    def step(self) -> bool:
        if not self._queue:
            return False
        self.now, _, run = heappop(self._queue)
        run()
        return True

    @property
    def micros(self) -> Micros:
        return Micros(NOW + int(self.now * SECOND))


class Ended(Protocol):
    """Takes the end of a request."""

    def __call__(self, *, ok: bool) -> None:
        """Note whether it succeeded, as far as the caller learns it."""


Respond = Callable[["Answer | None"], None]
Event = tuple[Literal["pod", "gone", "node", "no node", "bookmark"], Stored | Node | str]


class Watch:
    """Delivers events in order, some time after they happened."""

    def __init__(
        self, clock: Clock, random: Random, slow: float, deliver: Callable[[Event, float], None]
    ) -> None:
        self._clock, self._random, self._slow, self._deliver = clock, random, slow, deliver
        self._last = 0.0
        self.frozen_until = 0.0

    def happened(self, event: Event) -> None:
        lag = self._random.expovariate(1 / 0.01)
        if self._random.random() < self._slow:
            lag = self._random.uniform(0.05, 0.3)
        happened_at = self._clock.now
        self._last = max(self._last, happened_at + min(lag, 0.35))
        self._clock.after(self._last - happened_at, lambda: self._arrive(event, happened_at))

    def _arrive(self, event: Event, happened_at: float) -> None:
        if self._clock.now < self.frozen_until:  # in order still: equal moments keep their order
            wait = self.frozen_until - self._clock.now
            self._clock.after(wait, lambda: self._arrive(event, happened_at))
        else:
            self._deliver(event, happened_at)


@dataclass
class Cache:
    """What a scheduler knows: nodes, pods on them, and pods that wait."""

    offers: dict[str, int] = field(default_factory=dict)
    pods: dict[str, tuple[str, int, bool]] = field(default_factory=dict)  # by uid

    def free(self) -> dict[str, tuple[int, bool, int]]:
        free = {name: [cpu, 1, 10] for name, cpu in self.offers.items()}
        for name, cpu, port in self.pods.values():
            if name in free:
                free[name][0] -= cpu
                free[name][1] -= port
                free[name][2] -= 1
        return {name: (cpu, ports > 0, pods) for name, (cpu, ports, pods) in free.items()}


class Scheduler:
    """Takes pods one by one, assumes them on a node of its cache, and binds them."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self.cache = Cache()
        self._bound: set[str] = set()
        self._assumed: set[str] = set()
        self._queue: deque[Stored] = deque()
        self.watch = Watch(world.clock, world.random, world.faults.slow_watch, self._see)
        world.clock.after(0.01, self._cycle)

    def _see(self, event: Event, _: float) -> None:
        what, it = event
        if isinstance(it, Node):
            self.cache.offers[it.name] = it.allocatable["cpu"]
        elif what == "no node" and isinstance(it, str):
            self.cache.offers.pop(it, None)
        elif isinstance(it, Stored):
            if what == "gone":
                self._bound.discard(it.uid)
                self._assumed.discard(it.uid)
                self.cache.pods.pop(it.uid, None)
            elif it.node:
                self._bound.add(it.uid)
                self._assumed.discard(it.uid)
                self.cache.pods[it.uid] = (it.node, it.cpu, it.port)
            elif it.scheduler == self._name:
                self._queue.append(it)

    def _cycle(self) -> None:
        world = self._world
        world.clock.after(world.random.expovariate(1 / 0.004), self._cycle)
        if not self._queue:
            return
        pod = self._queue.popleft()
        if pod.uid in self._bound or world.stored(pod) is None:
            return
        fitting = [
            (cpu, name)
            for name, (cpu, port, pods) in self.cache.free().items()
            if cpu >= pod.cpu and (port or not pod.port) and pods
        ]
        if not fitting:
            world.clock.after(world.random.uniform(0.1, 0.4), lambda: self._queue.append(pod))
            return
        # The emptiest, but for some: all schedulers that have to choose among a few nodes.
        taken = max(fitting)[1] if world.random.random() < 0.7 else world.random.choice(fitting)[1]
        self.cache.pods[pod.uid] = (taken, pod.cpu, pod.port)
        self._assumed.add(pod.uid)
        world.bind(pod, taken, frozenset(self._bound), lambda *, ok: self._ended(pod, ok=ok))

    def _ended(self, pod: Stored, *, ok: bool) -> None:
        if ok or pod.uid in self._bound:
            return
        if pod.uid in self._assumed:
            self._assumed.discard(pod.uid)
            self.cache.pods.pop(pod.uid, None)
        self._world.clock.after(
            self._world.random.uniform(0.2, 0.6), lambda: self._queue.append(pod)
        )


@dataclass(slots=True)
class Heard:
    """A time for which a leader had to reckon with a pod on a node.

    It ends as a denial is written. The pod waits again then, and is bound without being asked about
    if that gets lost, or if its next call does: there is no more to be known of it than of any
    other that waits.
    """

    since: float
    ends_by: float = inf  # the request, at the API server
    until: float = inf


@dataclass(slots=True)
class Answer:
    """What the leader said of a binding."""

    decision: BindingDecision
    at: float
    heard: dict[tuple[str, str], list[Heard]]  # by its leader, see there

    def knew(self, uid: str, node_name: str) -> bool:
        """Return whether the leader knew by then that a pod may be, or is, on a node."""
        return any(
            each.since < self.at <= each.until for each in self.heard.get((uid, node_name), ())
        )


class Brimful(BindingLedger):
    """A ledger that lets moves fill nodes to the brim: no margin hides what is not counted."""

    def limits(self, ticket: BindingTicket, now: Micros) -> MoveLimits:
        """Return the limits without the margin."""

        def targets_for(_: Pod, view: ClusterView) -> Callable[[int], bool]:
            return lambda row: view.names[row] not in self._unknown_at

        return replace(super().limits(ticket, now), targets_for=targets_for)


class Leader:
    """A process that may hold the Lease, and answers then."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.state = ClusterState()
        self.ledger = (BindingLedger if world.has_margin else Brimful)(
            self.state,
            scope=SCOPE,
            request_seconds=REQUEST,
            pause_seconds=PAUSE,
            cache_lag_seconds=CACHE_LAG,
        )
        self.seen = SeenBindings(lambda _: None, lambda: world.clock.micros)
        self.seen.follow(self.ledger)
        self.decider = BindingDecider(
            DeciderParts(
                placer=Placer(view=self.state.view, now=lambda: world.clock.micros, scope=SCOPE),
                ledger=self.ledger,
                seen=self.seen,
                policies=lambda: world.policies,
                counts=PolicyCounts(),
                records=None,
                hot_percent=80,
                lead_seconds_left=lambda: self.lead_seconds_left,
                succeeds=lambda: False,
                hand_over=lambda: None,
                is_ready=lambda: True,
                seen_until=lambda: Micros(0),
                now=lambda: world.clock.micros,
            )
        )
        self.watch = Watch(world.clock, world.random, world.faults.slow_watch, self._see)
        self.pods: dict[str, Stored] = {}  # as seen, by uid
        # For each call about a pod and a node, and for when it saw it there.
        self.heard: dict[tuple[str, str], list[Heard]] = {}
        self.holds_until = 0.0
        self._seen_until = 0.0
        self._expired = 0.0  # the moment up to which requests have been forgotten
        self.frozen_until = 0.0
        self.resting_until = 0.0
        self.ends_by = 0.0  # at which it gives up the Lease but for moves; 0 while it goes on
        self.is_leading = False
        world.clock.after(0.1, self._tick)

    @property
    def lead_seconds_left(self) -> float:
        return self.holds_until - LEASE_MARGIN - self._world.clock.now

    @property
    def may_decide(self) -> bool:
        return self.is_leading and self.lead_seconds_left > 0

    def freeze(self, seconds: float) -> None:
        self.frozen_until = self._world.clock.now + seconds
        self.watch.frozen_until = self.frozen_until

    def _see(self, event: Event, happened_at: float) -> None:
        what, it = event
        self._seen_until = max(self._seen_until, happened_at)
        now = self._world.clock.micros
        if isinstance(it, Node):
            self.state.set_node(it)
        elif what == "no node" and isinstance(it, str):
            self.state.delete_node(it)
        elif isinstance(it, Stored):
            if what == "gone":
                self.state.delete_pod(it.key)
                self.seen.pod_deleted(it.namespace, it.name)
                self.pods.pop(it.uid, None)
                return
            request = request_of(it)
            self.state.set_pod(request.pod, seen_at=now)
            self.seen.pod_changed(request.pod, 0, request.raw)
            self.pods[it.uid] = it
            if it.node:
                self._hears(it.uid, it.node)

    def _hears(self, uid: str, node_name: str, ends_by: float = inf) -> Heard:
        heard = Heard(self._world.clock.now, ends_by)
        self.heard.setdefault((uid, node_name), []).append(heard)
        return heard

    def _tick(self) -> None:
        world = self._world
        world.clock.after(0.1, self._tick)
        if world.clock.now < self.frozen_until:
            return
        self._expired = self._seen_until
        self.ledger.expire(world.clock.micros, Micros(NOW + int(self._seen_until * SECOND)))
        world.result.miscounted += self._miscounted()
        lease = world.lease
        if self.is_leading and lease.holder != self.name:
            self.ledger.lead_ends()
            self.is_leading = False
        if self.ends_by and lease.holder == self.name:
            self.ledger.lead_ends()
            lease.until = self.holds_until = world.clock.now + LEASE
            is_settled = self.ledger.is_settled(world.clock.micros)
            if not is_settled and (
                world.clock.now < self.ends_by or self.ledger.has_moves_on_their_way
            ):
                return
            lease.holder, lease.is_settled = "", is_settled
            lease.until = world.clock.now
            self.is_leading = False
            self.resting_until = world.clock.now + 1  # it begins anew
        elif lease.holder == self.name:
            if self._world.clock.now < lease.until:
                lease.until = self.holds_until = world.clock.now + LEASE
        elif world.clock.now > self.resting_until and (
            not lease.holder or world.clock.now > lease.until + 0.1
        ):
            settled = lease.is_settled
            last = None if settled else Micros(NOW + int(lease.until * SECOND))
            lease.holder, lease.is_settled = self.name, False
            lease.until = self.holds_until = world.clock.now + LEASE
            self.ledger.lead_begins(world.clock.micros, last)
            self.is_leading, self.ends_by = True, 0.0

    def call(self, pod: Stored, node_name: str, respond: Respond) -> None:
        """Answer a call; None if it is refused."""
        world = self._world
        if world.clock.now < self.frozen_until:
            wait = self.frozen_until - world.clock.now
            world.clock.after(wait, lambda: self.call(pod, node_name, respond))
            return
        asked = AskedBinding(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node_name)
        if not self.may_decide:
            respond(None)
            return
        heard = self._hears(pod.uid, node_name, world.clock.now + REQUEST)
        call = _Call(asked, heard, world.clock.now, respond)
        ticket = self.decider.note(asked)
        # Others may ask before this one is decided.
        wait = world.random.expovariate(1 / 0.003)
        world.clock.after(wait, lambda: self._decide(call, ticket))

    def _decide(self, call: _Call, ticket: BindingTicket) -> None:
        world = self._world
        wait = self.frozen_until - world.clock.now
        is_seen, waited = self.decider.knows(call.asked), world.clock.now - call.arrived
        if wait <= 0 and not is_seen and waited < TIMEOUT / 2:
            wait = 0.01  # it may be seen in a moment
        if wait > 0:
            world.clock.after(wait, lambda: self._decide(call, ticket))
            return
        in_haste = waited > IN_HASTE or world.random.random() < 0.02
        if not self.may_decide:
            call.respond(None)
            return
        made = self.decider.decide(call.asked, ticket, lambda _: b"", in_haste=in_haste)
        assert made is not None  # no time has passed
        answer = Answer(made.decision, world.clock.now, self.heard)
        if made.decision.reason is BindingReason.NO_ROOM and is_seen:
            world.result.in_vain += self._has_room(call.asked)
        if made.decision.is_moved:
            self._hears(call.asked.uid, made.decision.node_name, call.heard.ends_by)
        # It may be frozen between the decision and the answer.
        wait = max(0.0, self.frozen_until - world.clock.now) + world.random.expovariate(1 / 0.001)
        world.clock.after(wait, lambda: self._write(call, made, answer))

    def _write(self, call: _Call, made: MadeDecision, answer: Answer) -> None:
        world = self._world
        if world.clock.now < self.frozen_until:
            wait = self.frozen_until - world.clock.now
            world.clock.after(wait, lambda: self._write(call, made, answer))
            return
        is_lost = world.clock.now >= call.arrived + TIMEOUT
        self.decider.answered(made, is_lost=is_lost)
        if answer.decision.action is BindingAction.DENY and not is_lost:
            call.heard.until = world.clock.now
        call.respond(answer)

    def _has_room(self, asked: AskedBinding) -> bool:
        """Return whether a node has room for a pod beside all that are, or may come, there."""
        view, pod = self.state.view(), self.pods[asked.uid]
        node = view.nodes[view.rows[asked.node]]
        assert node is not None
        there = [each for each in self._there(asked.node) if each is not pod]
        return (
            sum(each.cpu for each in there) + pod.cpu <= node.allocatable["cpu"]
            and not (pod.port and any(each.port for each in there))
            and len(there) < node.allocatable["pods"]
        )

    def _miscounted(self) -> int:
        """Return on how many nodes other pods count than are, or may come, there."""
        view = self.state.view()
        used = view.amount(view.sums[Sum.REQUESTS], "cpu")
        return sum(
            int(used[row]) != sum(each.cpu for each in self._there(name))
            for name, row in view.rows.items()
            if view.valid[row]
        )

    def _there(self, node_name: str) -> list[Stored]:
        """Return the pods that are on a node, and those that a request may yet bind to it."""
        return [
            each
            for each in self.pods.values()
            if each.node == node_name or (not each.node and self._may_come(each, node_name))
        ]

    def _may_come(self, pod: Stored, node_name: str) -> bool:
        heard = self.heard.get((pod.uid, node_name), ())
        return any(each.until == inf and each.ends_by >= self._expired for each in heard)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call about a binding, as a leader has it."""

    asked: AskedBinding
    heard: Heard
    arrived: float
    respond: Respond


@dataclass(slots=True)
class Lease:
    """Who leads."""

    holder: str = ""
    until: float = 0.0
    is_settled: bool = True


@dataclass(kw_only=True)
class Result:
    """What happened.

    Attributes:
        bindings: pods bound.
        moved: of those, where the leader moved them.
        by_move: nodes filled beyond what they offer by a pod that was moved there.
        by_yes: by one that the leader left there, knowing it and the node.
        by_escape: the same, but that some pod there was bound without an answer, or could not be
            judged, and its scheduler did not know who was moved there; or the leader did not know
            this pod.
        by_stock: by a pod for which its scheduler alone is to blame.
        denied: answers that denied a binding.
        in_vain: those about nodes that had room, beside all that could be bound there.
        miscounted: nodes on which a leader counted pods that could not come there, or did not count
            one that could, at any of its ticks.
        waiting: pods left without a node, and for which there is room.
        left_over: pods that still count on a node without being there.
    """

    bindings: int = 0
    moved: int = 0
    by_move: int = 0
    by_yes: int = 0
    by_escape: int = 0
    by_stock: int = 0
    denied: int = 0
    in_vain: int = 0
    miscounted: int = 0
    waiting: int = 0
    left_over: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def failures(self) -> int:
        """What must never be."""
        denied_wrongly = self.in_vain + self.miscounted + self.waiting + self.left_over
        return self.by_move + self.by_yes + denied_wrongly


class World:
    """The API server, and everybody around it."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        *,
        nodes: int = 12,
        fill: float = 0.97,
        has_margin: bool = True,
    ) -> None:
        self.clock, self.random, self.faults = Clock(), Random(seed), faults
        self.policies: PolicySet = policies(p=POLICY)
        self.pods: dict[str, Stored] = {}
        self.nodes: dict[str, Node] = {}
        self.lease = Lease()
        self.result = Result()
        self.has_margin = has_margin
        self._fill = fill
        self._names = count()
        self.on_node: dict[str, dict[str, Stored]] = {}
        self.schedulers = [Scheduler(self, "default-scheduler")]
        if faults.other_scheduler:
            self.schedulers.append(Scheduler(self, "other"))
        self.leaders = [Leader(self, "one"), Leader(self, "two")]
        self.watches = [each.watch for each in self.schedulers] + [
            each.watch for each in self.leaders
        ]
        for number in range(nodes):
            self._add_node(f"n{number}")
        self._is_ending = False
        self.clock.after(0.3, self._churn)
        self.clock.after(0.1, self._bookmark)
        for mean, what in (
            (faults.freeze, self._freeze),
            (faults.handover, self._hand_over),
            (faults.node_change, self._change_nodes),
        ):
            if mean:
                self.clock.after(self.random.expovariate(1 / mean), what)

    # What goes on.

    def run(self, bindings: int) -> Result:
        """Run until so many pods are bound, then let everything settle."""
        while self.result.bindings < bindings:
            self.clock.step()
        self._is_ending = True
        end = self.clock.now + 12
        while self.clock.now < end:
            self.clock.step()
        free = self._free()
        for pod in self.pods.values():
            fits = any(self._fits(pod, each) for each in free.values())
            self.result.waiting += not pod.node and fits
        at_last = Micros(self.clock.micros + int(REQUEST * SECOND))
        for leader in self.leaders:
            still_counted = int(leader.state.view().assumed.sum())
            self.result.left_over += still_counted + (not leader.ledger.is_settled(at_last))
            for (action, reason), decided in leader.ledger.counters.decided.items():
                self.result.reasons[f"{action} {reason}"] += decided
            self.result.reasons["escaped"] += leader.ledger.counters.escaped
            self.result.reasons["lost"] += leader.ledger.counters.lost
        return self.result

    def _tell(self, event: Event) -> None:
        for watch in self.watches:
            it = event[1]
            if isinstance(it, Stored):
                copied = Stored(
                    it.name, it.uid, it.cpu, it.namespace, it.scheduler, it.port, it.node
                )
                watch.happened((event[0], copied))
            else:
                watch.happened(event)

    def _bookmark(self) -> None:
        self._tell(("bookmark", ""))
        self.clock.after(0.1, self._bookmark)

    def _churn(self) -> None:
        """Keep the cluster about as full as it should be."""
        self.clock.after(self.random.expovariate(1 / 0.02), self._churn)
        if self._is_ending:
            return
        offered = sum(each.allocatable["cpu"] for each in self.nodes.values())
        asked = sum(each.cpu for each in self.pods.values())
        for _ in range(self.random.choice((1, 1, 1, 8))):
            if asked > offered * self._fill:
                break
            asked += self._create().cpu
        bound = [each for each in self.pods.values() if each.node]
        for pod in self.random.sample(bound, min(len(bound), self.random.choice((0, 1, 2, 5)))):
            self._delete(pod)
        if self.random.random() < 0.05:
            pod = self.random.choice([*self.pods.values()] or [self._create()])
            self._delete(pod)
            if self.random.random() < 0.5:
                self._create(pod.name)  # as a StatefulSet does

    def _create(self, name: str = "") -> Stored:
        random, faults, number = self.random, self.faults, next(self._names)
        other = random.random() < faults.other_scheduler
        pod = Stored(
            name or f"p{number}",
            f"u{number}",
            random.choice(SIZES),
            "excluded" if random.random() < faults.excluded else "shop",
            "other" if other else "default-scheduler",
            random.random() < 0.05,
        )
        if pod.key in self.pods:
            return self.pods[pod.key]
        self.pods[pod.key] = pod
        self._tell(("pod", pod))
        return pod

    def _delete(self, pod: Stored) -> None:
        if self.pods.get(pod.key) is pod:
            del self.pods[pod.key]
            self.on_node.get(pod.node, {}).pop(pod.uid, None)
            self._tell(("gone", pod))

    def _add_node(self, name: str) -> None:
        made = node(name, rank=self.random.randrange(100), cores=self.random.choice((4, 6, 8)))
        self.nodes[name] = made
        self._tell(("node", made))

    def _change_nodes(self) -> None:
        self.clock.after(self.random.expovariate(1 / self.faults.node_change), self._change_nodes)
        if self._is_ending:
            return
        name = self.random.choice([*self.nodes])
        if self.random.random() < 0.5:
            del self.nodes[name]
            self._tell(("no node", name))
            self.clock.after(0.2, lambda: self._collect(name))
            again = self.random.choice((name, f"n{next(self._names)}"))
            self.clock.after(self.random.uniform(0.3, 2), lambda: self._add_node(again))
        else:  # other labels, so other ranks
            offered = self.nodes[name].allocatable["cpu"] // 1000
            changed = node(name, rank=self.random.randrange(100), cores=offered)
            self.nodes[name] = changed
            self._tell(("node", changed))

    def _collect(self, name: str) -> None:
        for pod in [*self.on_node.get(name, {}).values()]:
            self._delete(pod)

    def _freeze(self) -> None:
        self.clock.after(self.random.expovariate(1 / self.faults.freeze), self._freeze)
        if not self._is_ending:
            self.random.choice(self.leaders).freeze(self.random.choice((0.1, 0.4, 2.5)))

    def _hand_over(self) -> None:
        self.clock.after(self.random.expovariate(1 / self.faults.handover), self._hand_over)
        for leader in self.leaders:
            if leader.is_leading and not self._is_ending:
                leader.ends_by = self.clock.now + SETTLE

    # The API server.

    def happens(self, probability: float) -> bool:
        """Return whether something goes wrong with a call."""
        is_calm = self.faults.in_storms and self.clock.now % 5 > 1
        return not is_calm and self.random.random() < probability

    def bind(
        self,
        pod: Stored,
        node_name: str,
        known: frozenset[str],
        ended: Ended,
    ) -> None:
        """Take a request to bind a pod, maybe twice."""
        binding = _Binding(self, pod, node_name, known, ended)
        delay = self.random.expovariate(1 / 0.005)
        self.clock.after(delay, binding.begin)
        if self.random.random() < self.faults.repeated:
            again = _Binding(self, pod, node_name, known, lambda **_: None)
            self.clock.after(delay + self.random.uniform(0, 0.5), again.begin)

    def stored(self, pod: Stored) -> Stored | None:
        """Return a pod if it is still there, and not bound."""
        now = self.pods.get(pod.key)
        return now if now is not None and now.uid == pod.uid and not now.node else None

    def write(self, pod: Stored, binding: _Binding, answer: Answer | None) -> None:
        """Bind a pod, and judge it."""
        node_name = binding.node_name if answer is None else answer.decision.node_name
        pod.node, pod.answer = node_name, answer
        pod.was_moved = node_name != binding.node_name
        there = self.on_node.setdefault(node_name, {})
        there[pod.uid] = pod
        self.result.bindings += 1
        self.result.moved += pod.was_moved
        self._judge(pod, binding, answer)
        self._tell(("pod", pod))

    def _judge(self, pod: Stored, binding: _Binding, answer: Answer | None) -> None:
        there, result, uid = self.on_node[pod.node], self.result, pod.uid
        if not self._is_over(pod.node, set()):
            return
        moved = {
            each.uid: each.answer
            for each in there.values()
            if each.was_moved and each is not pod and each.answer is not None
        }
        is_own_fault = self._is_over(pod.node, moved.keys() - binding.known)
        if answer is None or answer.decision.reason in _NOT_JUDGED:
            # A move has taken its room if it was too much by what its leader knew, this included.
            if any(
                by.knew(uid, pod.node) and self._is_over(pod.node, self._unknown_to(mover, by))
                for mover, by in moved.items()
            ):
                result.by_move += 1
            elif is_own_fault:
                result.by_stock += 1
            else:
                result.by_escape += 1
        elif not self._is_over(pod.node, self._unheard_of(pod.node, answer)):
            result.by_escape += 1
        elif pod.was_moved:
            result.by_move += 1
        elif is_own_fault:
            result.by_stock += 1
        else:
            result.by_yes += 1

    def _unknown_to(self, mover: str, answer: Answer) -> set[str]:
        """Return the pods of the node of a move that its leader could not know to come there."""
        node_name = answer.decision.node_name
        there = self.on_node[node_name].keys() - {mover}
        return {each for each in there if not answer.knew(each, node_name)}

    def _unheard_of(self, node_name: str, answer: Answer) -> set[str]:
        """Return the pods of a node that were bound without an answer, and not known then."""
        there = self.on_node[node_name].values()
        return {
            each.uid
            for each in there
            if each.answer is None and not answer.knew(each.uid, node_name)
        }

    def _is_over(self, node_name: str, without: AbstractSet[str]) -> bool:
        there = [each for uid, each in self.on_node[node_name].items() if uid not in without]
        offered = self.nodes.get(node_name)
        return offered is not None and (
            sum(each.cpu for each in there) > offered.allocatable["cpu"]
            or sum(each.port for each in there) > 1
            or len(there) > offered.allocatable["pods"]
        )

    def _free(self) -> dict[str, tuple[int, bool, int]]:
        cache = Cache({name: each.allocatable["cpu"] for name, each in self.nodes.items()})
        cache.pods = {
            each.uid: (each.node, each.cpu, each.port) for each in self.pods.values() if each.node
        }
        return cache.free()

    def _fits(self, pod: Stored, free: tuple[int, bool, int]) -> bool:
        return free[0] >= pod.cpu and (free[1] or not pod.port) and free[2] > 0


class _Binding:
    """One request to bind a pod, on its way through the API server."""

    def __init__(
        self,
        world: World,
        pod: Stored,
        node_name: str,
        known: frozenset[str],
        ended: Ended,
    ) -> None:
        self._world, self._pod = world, pod
        self.node_name = node_name
        self.known = known
        self._ended = ended
        self._is_answered = False
        self._began = 0.0

    def begin(self) -> None:
        """Ask the leader, if the namespace is one of those that are asked about."""
        world, faults = self._world, self._world.faults
        self._began = world.clock.now
        if self._pod.namespace == "excluded":
            self._write(None)
            return
        world.clock.after(TIMEOUT, lambda: self._answered(None))
        if world.happens(faults.lost_call):
            return
        delay = world.random.expovariate(1 / 0.002)
        if world.happens(faults.late_call / 2):
            delay = world.random.uniform(0.1, 0.5)
        leader = next((each for each in world.leaders if each.name == world.lease.holder), None)
        if leader is None:
            world.clock.after(delay, lambda: self._answered(None))
            return
        world.clock.after(delay, lambda: leader.call(self._pod, self.node_name, self._respond))

    def _respond(self, answer: Answer | None) -> None:
        world = self._world
        delay = world.random.expovariate(1 / 0.001)
        if world.happens(world.faults.late_call / 2):
            delay = world.random.uniform(0.1, 0.5)
        world.clock.after(delay, lambda: self._answered(answer))

    def _answered(self, answer: Answer | None) -> None:
        world, faults = self._world, self._world.faults
        if self._is_answered:
            return
        self._is_answered = True
        if answer is not None and answer.decision.action is BindingAction.DENY:
            world.result.denied += 1
            self._ended(ok=False)
            return
        if answer is None and faults.fails_closed:
            self._ended(ok=False)
            return
        delay = world.random.expovariate(1 / 0.001)
        if world.random.random() < faults.slow_write:
            delay = world.random.uniform(0.0, 1.5)
        world.clock.after(delay, lambda: self._write(answer))

    def _write(self, answer: Answer | None) -> None:
        world = self._world
        stored = world.stored(self._pod)
        is_in_time = world.clock.now < self._began + REQUEST
        if stored is None or not is_in_time or world.random.random() < world.faults.failed_write:
            self._ended(ok=False)
            return
        world.write(stored, self, answer)
        if world.random.random() >= world.faults.unknown_outcome:
            self._ended(ok=True)
        else:
            self._ended(ok=False)


def main() -> int:
    """Run at length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bindings", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failures = 0
    runs = {"quiet": QUIET, "asked": ASKED, "wild": WILD, "stormy": STORMY, "brimful": BRIMFUL}
    for name, faults in runs.items():
        for fill in (0.95, 1.0):
            has_margin = faults is not BRIMFUL
            world = World(given.seed, faults, fill=fill, has_margin=has_margin)
            result = world.run(given.bindings // (2 * len(runs)))
            print(f"{name} at {fill:.0%}: {result}", flush=True)
            failures += result.failures
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
