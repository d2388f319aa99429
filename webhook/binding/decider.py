"""The decisions on bindings of the replica that leads, and what became of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from engine.binding import (
    BindingAction,
    BindingCounters,
    BindingDecision,
    BindingLedger,
    BindingTicket,
    Landing,
    MoveLimits,
    decide_binding,
    decide_by_amounts,
    decide_in_haste,
    decide_unseen,
)
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.time import SECOND, Micros
from engine.outcome import PolicyLanding, binding_landings
from engine.policy import Mode, PolicySet
from engine.release import creation_of
from engine.report import BindingStatus
from engine.view import ClusterView
from webhook.binding.records import BindingRecord, BindingRecords, Rebound
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import MOST_BYTES, Placer, beyond_limits

_MOST_BYTES_OF_ALL: Final = 64 * 1024 * 1024  # their models take as much again


class WaitingPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that the scheduler may bind."""

    pod: Pod  # its model; of one without `raw`, its names and what `_Identity` has
    # the object as the API server sent it, which expressions may read any field of. Empty where it
    # is too large for a decision, or there is no room for it
    raw: bytes

    @property
    def placement_request(self) -> PlacementRequest:
        """The request to place it: what expressions may read at a binding, see `compile_policy`."""
        return PlacementRequest(pod=self.pod, raw=self.raw, request=creation_of(self.pod))


class _Identity(NamedTuple):
    """What is kept of a pod whose object is not."""

    uid: str
    shape: PodShape
    priority: int  # and where others were evicted for it: what room that is reserved depends on
    nominated_node_name: str


def _identity(pod: Pod) -> _Identity:
    return _Identity(pod.uid, pod.shape, pod.priority, pod.nominated_node_name)


class WaitingPods:
    """An observer that keeps the pods which nothing but the scheduler keeps from a node.

    Whoever may create pods may create any number that no node takes. So objects are kept within a
    number of bytes, and where these are exceeded, the namespace with the most of them loses those
    that have waited longest: its pods alone, and first those that no scheduler binds. Of the others
    only who they are is kept, about 500 bytes each, and no policy moves them.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES_OF_ALL) -> None:
        self._most_bytes = most_bytes
        self._waiting: dict[str, dict[str, WaitingPod]] = {}  # by namespace and name, oldest first
        self._without_raw: dict[tuple[str, str], _Identity] = {}  # by namespace and name
        self._bytes: dict[str, int] = {}  # INVARIANT: of the objects in `_waiting`, by namespace
        self._all_bytes = 0  # INVARIANT: the sum of those

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values())) + len(self._without_raw)

    def get(self, namespace: str, name: str, uid: str) -> WaitingPod | None:
        """Return a pod; None where it does not wait, or is not this one."""
        found = self._waiting.get(namespace, {}).get(name) or self._identity(namespace, name)
        return found if found is not None and uid in {"", found.pod.uid} else None

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod, or no longer."""
        if pod.node_name or pod.gated or pod.is_terminal or pod.deleting:
            self.pod_deleted(pod.namespace, pod.name)
        elif 0 < len(raw) <= MOST_BYTES:
            self._without_raw.pop((pod.namespace, pod.name), None)
            self._keep(WaitingPod(pod, bytes(raw)))
        else:
            self._drop(pod.namespace, pod.name)
            self._without_raw[pod.namespace, pod.name] = _identity(pod)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep a pod no longer."""
        self._without_raw.pop((namespace, name), None)
        self._drop(namespace, name)

    def _identity(self, namespace: str, name: str) -> WaitingPod | None:
        found = self._without_raw.get((namespace, name))
        if found is None:
            return None
        uid, shape, priority, node_name = found
        pod = Pod(
            namespace=namespace,
            name=name,
            uid=uid,
            shape=shape,
            priority=priority,
            nominated_node_name=node_name,
        )
        return WaitingPod(pod, b"")

    def _keep(self, waiting: WaitingPod) -> None:
        namespace, name = waiting.pod.namespace, waiting.pod.name
        of_namespace = self._waiting.setdefault(namespace, {})
        old = of_namespace.get(name)
        of_namespace[name] = waiting
        self._count(namespace, len(waiting.raw) - (0 if old is None else len(old.raw)))
        while self._all_bytes > self._most_bytes:
            largest = max(self._bytes, key=self._bytes.__getitem__)
            oldest = next(iter(self._waiting[largest].values())).pod
            self._drop(largest, oldest.name)
            self._without_raw[largest, oldest.name] = _identity(oldest)

    def _drop(self, namespace: str, name: str) -> None:
        of_namespace = self._waiting.get(namespace)
        gone = None if of_namespace is None else of_namespace.pop(name, None)
        if gone is not None:
            self._count(namespace, -len(gone.raw))

    def _count(self, namespace: str, added: int) -> None:
        self._all_bytes += added
        left = self._bytes.get(namespace, 0) + added
        if left:
            self._bytes[namespace] = left
        else:
            del self._bytes[namespace], self._waiting[namespace]


_ANSWER_SECONDS: Final = 1.0
"""In which a decision is made and its answer written; one that takes longer is not given."""

_APPEARS_SECONDS: Final = 0.25
_EXPIRE_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 1.0
_SETTLE_POLL_SECONDS: Final = 0.02
_PAUSED: Final = "bindings escape, or those of the last leader are still on their way"
_decode: Final = msgspec.json.Decoder(api.Pod).decode

_log = logging.getLogger(__name__)


class AskedBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding as somebody asks about it."""

    namespace: str
    name: str
    uid: str  # that the pod must have, "" for any
    node: str  # the node that the scheduler took

    @property
    def key(self) -> str:
        """`namespace/name` of the pod."""
        return f"{self.namespace}/{self.name}"


class MadeDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that may be given as the answer."""

    ticket: BindingTicket  # of the binding, in the ledger
    # without what rules say of all nodes, which would keep the view alive
    decision: BindingDecision
    encoded: bytes  # the operations on the binding, none where it is denied
    rule_errors: int  # number of rules that could not be evaluated


class SeenBindings:
    """An observer of the pods that wait for the scheduler, and of what becomes of bindings.

    Args:
        record: takes each pod that was moved, once it is seen there.
        now: the time of day.

    Attributes:
        waiting: the pods that the scheduler may bind.
    """

    def __init__(self, record: Callable[[Rebound], None], now: Callable[[], Micros]) -> None:
        self.waiting = WaitingPods()
        self._record = record
        self._now = now
        self._ledger: BindingLedger | None = None
        self._moved: dict[str, Rebound] = {}  # by key, those that wait to be seen bound
        self._awaited: dict[str, asyncio.Event] = {}  # by key, pods that are asked about

    def follow(self, ledger: BindingLedger) -> None:
        """Tell a ledger what is seen from now on: it has the state that events are applied to."""
        self._ledger = ledger

    def decided(self, asked: AskedBinding, uid: str, decision: BindingDecision) -> None:
        """Have an Event written once a pod is seen on the node that it was moved to.

        What was decided before, at a try that has failed, counts no more.
        """
        if not decision.is_moved:
            self._moved.pop(asked.key, None)
            return
        self._moved[asked.key] = Rebound(
            namespace=asked.namespace,
            name=asked.name,
            uid=uid,
            scheduler_node=decision.scheduler_node,
            node=decision.node_name,
            reason=decision.message,
        )

    async def appears(self, asked: AskedBinding) -> None:
        """Wait until a pod is seen: the scheduler may be faster, but not by much."""
        seen = self._awaited.setdefault(asked.key, asyncio.Event())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_APPEARS_SECONDS):
                    await seen.wait()
        finally:
            self._awaited.pop(asked.key, None)

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:
        """Note that a pod waits, or where it is bound."""
        self.waiting.pod_changed(pod, version, raw)
        awaited = self._awaited.get(pod.key)
        if awaited is not None:
            awaited.set()
        landing = None if self._ledger is None else self._ledger.saw(pod, self._now())
        if pod.node_name:
            rebound = self._moved.pop(pod.key, None)
            if rebound is not None and landing is Landing.AS_ANSWERED:
                self._record(rebound)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Note that a pod is gone."""
        self.waiting.pod_deleted(namespace, name)
        key = f"{namespace}/{name}"
        self._moved.pop(key, None)
        if self._ledger is not None:
            self._ledger.gone(key)


def nothing_reserved(_view: ClusterView) -> Callable[[Pod, int], str]:
    """Return whom room is reserved for where no pods are held."""
    return lambda _pod, _row: ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeciderParts:
    """What the decider works with.

    Attributes:
        placer: decides.
        ledger: of the bindings on their way; this replica's own.
        seen: the pods that wait, and what becomes of bindings.
        policies: those in force.
        counts: where decisions are counted.
        reserved_room: gives for a view whom room is reserved for that a pod would take on the node
            of a row, for people, "" for nobody; the pod counts nowhere in the view.
        records: of the decisions; None where nobody counts outcomes.
        hot_percent: of CPU or memory, above which a node is hot in these.
        lead_seconds_left: for how long this replica leads at any rate; 0 or less if it does not.
        succeeds: whether bindings that another replica has answered may still be on their way.
        hand_over: called at the end of a lead with no binding on its way.
        is_ready: whether the cluster and the policies are complete.
        seen_until: the moment up to which all changes of pods have been seen.
        now: the time of day.
    """

    placer: Placer
    ledger: BindingLedger
    seen: SeenBindings
    policies: Callable[[], PolicySet]
    counts: PolicyCounts
    reserved_room: Callable[[ClusterView], Callable[[Pod, int], str]] = nothing_reserved
    records: BindingRecords | None
    hot_percent: int
    lead_seconds_left: Callable[[], float]
    succeeds: Callable[[], bool]
    hand_over: Callable[[], None]
    is_ready: Callable[[], bool]
    seen_until: Callable[[], Micros]
    now: Callable[[], Micros]


class BindingDecider:
    """Decides where pods are bound, while this replica leads.

    Args:
        parts: what it works with.
    """

    def __init__(self, parts: DeciderParts) -> None:
        self._moved: Counter[tuple[str, str]] = Counter()  # pods, by policy and mode
        self._parts = parts
        self._leads = False

    @property
    def may_decide(self) -> bool:
        """Whether this replica decides bindings now."""
        parts = self._parts
        return self._leads and parts.lead_seconds_left() > 0 and parts.is_ready()

    def knows(self, asked: AskedBinding) -> bool:
        """Return whether the pod of a binding has been seen."""
        waiting = self._parts.seen.waiting
        return waiting.get(asked.namespace, asked.name, asked.uid) is not None

    async def appears(self, asked: AskedBinding) -> None:
        """Wait for a moment until the pod of a binding is seen."""
        await self._parts.seen.appears(asked)

    async def lead(self) -> None:
        """Decide until cancelled: a task of the leader."""
        parts, now = self._parts, self._parts.now()
        parts.ledger.lead_begins(now, now if parts.succeeds() else None)
        self._leads = True
        try:
            await asyncio.Event().wait()
        finally:
            self._leads = False
            parts.ledger.lead_ends()
            await self._settle()

    async def _settle(self) -> None:
        """Wait until all that was answered is seen, and say so if it is.

        For what goes where the scheduler expects it, a moment; for a move as long as nobody else
        may lead: the next leader would not know of it, and let the scheduler fill its node.
        """
        parts, ledger = self._parts, self._parts.ledger
        until = parts.now() + int(_SETTLE_SECONDS * SECOND)
        while not ledger.is_settled(parts.now()):
            is_unknown_to_next = ledger.has_moves_on_their_way and parts.lead_seconds_left() > 0
            if parts.now() >= until and not is_unknown_to_next:
                return
            await asyncio.sleep(_SETTLE_POLL_SECONDS)
        parts.hand_over()

    async def run(self) -> None:
        """Forget bindings that failed, until cancelled."""
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self._parts.ledger.expire(self._parts.now(), self._parts.seen_until())

    def note(self, asked: AskedBinding) -> BindingTicket:
        """Count a binding as soon as it is asked about: others are decided before its turn comes.

        The scheduler may have taken one node for several pods, so room that is left for one of them
        is not enough.
        """
        parts = self._parts
        waiting = parts.seen.waiting.get(asked.namespace, asked.name, asked.uid)
        pod = None if waiting is None else waiting.pod
        uid = asked.uid if pod is None else pod.uid
        return parts.ledger.asked(asked.key, uid, asked.node, pod, parts.now())

    def decide(
        self,
        asked: AskedBinding,
        noted: BindingTicket | None,
        encode: Callable[[BindingDecision], bytes],
        *,
        in_haste: bool,
    ) -> MadeDecision | None:
        """Decide on a binding; None where the decision comes too late to be given.

        Args:
            asked: the binding.
            noted: what `note` returned for it; None where it was not called.
            encode: returns the operations on it, for a decision that is no denial.
            in_haste: whether there is no time for policies.
        """
        parts, now = self._parts, self._parts.now()
        waiting = parts.seen.waiting.get(asked.namespace, asked.name, asked.uid)
        ticket = noted
        if ticket is None or (waiting is not None and ticket.uid != waiting.pod.uid):
            ticket = self.note(asked)
        # By then its caller has given up, or the Lease may be another's.
        answer_by = now + int(min(_ANSWER_SECONDS, parts.lead_seconds_left()) * SECOND)
        # INVARIANT: no view is alive once `_made` is left: a change would have to copy it. And from
        # `BindingLedger.view` to `decided` nothing waits: the pod counts nowhere.
        try:
            made, record = self._made(ticket, asked, waiting, encode, now, in_haste=in_haste)
        except Exception:
            parts.ledger.answer_lost(ticket, parts.now())  # there will be none
            raise
        decided_at = parts.now()
        if decided_at >= answer_by:
            parts.ledger.answer_lost(ticket, decided_at)
            return None
        parts.ledger.decided(ticket, made.decision, decided_at)
        if record is not None and parts.records is not None:
            parts.records.put(asked.key, record)
        parts.seen.decided(asked, ticket.uid, made.decision)
        return made

    def answered(self, made: MadeDecision, *, is_lost: bool) -> None:
        """Note that an answer is written, or that it cannot reach the API server."""
        if is_lost:
            self._parts.ledger.answer_lost(made.ticket, self._parts.now())
        else:
            self._parts.ledger.answered(made.ticket, self._parts.now())

    @property
    def counters(self) -> BindingCounters:
        """What was decided and what became of it, since the start."""
        return self._parts.ledger.counters

    @property
    def waiting(self) -> int:
        """Number of pods that the scheduler may bind."""
        return len(self._parts.seen.waiting)

    @property
    def moved(self) -> Mapping[tuple[str, str], int]:
        """Pods that each policy in force has moved, or would have in Audit mode: by both."""
        names = {policy.name for policy in self._parts.policies()}
        return {key: count for key, count in self._moved.items() if key[0] in names}

    def status(self) -> BindingStatus:
        """Return what became of bindings so far."""
        ledger, counters = self._parts.ledger, self.counters
        by_action, by_reason = Counter[BindingAction](), Counter[str]()
        for (action, reason), count in counters.decided.items():
            by_action[action] += count
            by_reason[reason.value] += count
        is_paused = self.may_decide and not ledger.may_move(self._parts.now())
        return BindingStatus(
            leads=self.may_decide,
            kept=by_action[BindingAction.KEEP],
            moved=by_action[BindingAction.MOVE],
            denied=by_action[BindingAction.DENY],
            escaped=counters.escaped,
            lost=counters.lost,
            paused=_PAUSED if is_paused else "",
            reasons=by_reason,
            moved_by={
                policy.name: self._moved[policy.name, policy.mode.value]
                for policy in self._parts.policies()
            },
        )

    def _made(
        self,
        ticket: BindingTicket,
        asked: AskedBinding,
        waiting: WaitingPod | None,
        encode: Callable[[BindingDecision], bytes],
        now: Micros,
        *,
        in_haste: bool,
    ) -> tuple[MadeDecision, BindingRecord | None]:
        """Return the decision, and its record if it moves or keeps a pod by policies."""
        parts = self._parts
        view = parts.ledger.view(ticket)
        limits = parts.ledger.limits(ticket, now)
        decision = self._decision(asked, waiting, view, limits, in_haste=in_haste)
        encoded = b"" if decision.action is BindingAction.DENY else encode(decision)
        record = None if waiting is None else self._noted(waiting, decision, view)
        full = decision.decision
        errors = 0 if full is None else len(full.errors)
        light = replace(decision, decision=None, audit=None)
        return MadeDecision(
            ticket=ticket, decision=light, encoded=encoded, rule_errors=errors
        ), record

    def _decision(
        self,
        asked: AskedBinding,
        waiting: WaitingPod | None,
        view: ClusterView,
        limits: MoveLimits,
        *,
        in_haste: bool,
    ) -> BindingDecision:
        if waiting is None:
            return decide_unseen(asked.node, limits)
        parts, request = self._parts, waiting.placement_request
        limits = replace(limits, reserved_for=self._reserved_for(view))
        cycle = parts.placer.binding_cycle(request, asked.node, view, limits)
        if not waiting.raw or beyond_limits(_decode(waiting.raw)):
            return decide_by_amounts(cycle)
        if not in_haste:
            try:
                return decide_binding(cycle, parts.policies())
            except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod from its node
                _log.exception("no policy decides the binding of pod `%s`", asked.key)
        return decide_in_haste(cycle)

    def _reserved_for(self, view: ClusterView) -> Callable[[Pod, int], str]:
        """Return whom room is reserved for; a bug there keeps no pod from its node."""
        reserved_for = self._parts.reserved_room(view)

        def holder(pod: Pod, row: int) -> str:
            try:
                return reserved_for(pod, row)
            except Exception:  # noqa: BLE001 - as above
                _log.exception("nobody knows whose room pod `%s` takes", pod.key)
                return ""

        return holder

    def _noted(
        self, waiting: WaitingPod, decision: BindingDecision, view: ClusterView
    ) -> BindingRecord | None:
        """Explain and count a decision; return its record, None where no policy had a say."""
        parts, policies = self._parts, self._parts.policies()
        full, audit = decision.decision, decision.audit
        parts.placer.explain_binding(waiting.pod, decision)
        if full is None and audit is None:
            return None
        parts.counts.count_binding(decision, policies)
        modes = ((Mode.ENFORCE, decision), (Mode.AUDIT, audit))
        for mode, each in modes:
            if each is not None and each.is_moved and each.decision is not None:
                self._moved.update((name, mode.value) for name in each.decision.policies)
        if parts.records is None or decision.action is BindingAction.DENY:
            return None
        landings: list[PolicyLanding] = []
        for mode, each in modes:
            if each is not None and each.decision is not None:
                landings += binding_landings(
                    each.decision,
                    mode,
                    view,
                    node_name=decision.node_name,
                    chosen="" if each.action is BindingAction.DENY else each.node_name,
                    scheduler_node=each.scheduler_node,
                    hot_percent=parts.hot_percent,
                )
        return BindingRecord(uid=waiting.pod.uid, node=decision.node_name, landings=landings)
