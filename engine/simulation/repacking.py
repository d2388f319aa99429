"""Which running pods would have to move so that waiting ones fit, or so that nodes are free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from engine.eviction import running_pod_of
from engine.model.disruption_budget import (
    DO_NOT_DISRUPT_ANNOTATION,
    SAFE_TO_EVICT_ANNOTATION,
    DisruptionBudget,
)
from engine.model.hold import HOLD_GATE
from engine.model.pod import Pod
from engine.model.pod_classes import NEVER
from engine.model.quantity import NATIVE, PODS, is_scalar
from engine.model.time import date
from engine.pipeline import SYSTEM_NAMESPACES
from engine.report import (
    PodName,
    RepackGoal,
    RepackReport,
    RepackStep,
    StayReason,
)
from engine.simulation.arrivals import RecordedCluster, RecordedPod, is_movable, owner_name
from engine.simulation.packing import Counts, Group, Packed, Packing, Reached, pack
from engine.simulation.scheduler import allowed_nodes, depends_on_pods, passing_nodes
from engine.view import ClusterState, ClusterView, Sum, is_device_resource, left_to_devices
from engine.view.axis import GREATEST_AMOUNT

_NOTES: Final = (
    (
        "Nothing is evicted. Each step was tried on the model of kube-scheduler 1.36, and fits. A"
        " pod goes to the node of the plan only if something sends it there, such as node affinity."
    ),
    (
        "Resources, selectors, node affinity, taints and disruption budgets are kept exactly."
        " Running pods whose ports, spread or affinity depend on other pods stay where they are, as"
        " do those of DaemonSets and static pods; waiting pods with such rules go where the model"
        " lets them."
    ),
    (
        "Running pods give way only to waiting pods of a higher priority. A bound holds for the"
        " goals before it as they were reached. Policies, quotas and volumes are not looked at."
    ),
)
_NOWHERE: Final = -1
_MOST_PLANS: Final = 20  # the last one, which moves nobody, among them
_SHARE: Final = 0.5  # of the time that is left, where the scheduler's model may refuse a plan


def repack(
    cluster: RecordedCluster, *, seconds: float, free_nodes: int = 0, seed: int = 1
) -> RepackReport:
    """Return a plan that moves running pods.

    Args:
        cluster: as it is.
        seconds: that the solver may take.
        free_nodes: how many nodes are to be free, once waiting pods have their nodes.
        seed: of the solver; where that ends in time, the same seed gives the same plan.
    """
    # 1. Tell who may move, and count pods that are alike.
    board = _Board(cluster)
    # 2. Pack them. Of the first packing, which knows the fewest rules, are the bounds.
    refused: list[_Refusal] = []
    packings: list[Packed] = []
    left = seconds
    for number in range(_MOST_PLANS):
        is_last = number == _MOST_PLANS - 1
        share = _SHARE if board.depends_on_pods else 1.0
        packing = board.packing(free_nodes, refused)
        packed = pack(packing, seconds=0 if is_last else share * left, seed=seed)
        left = max(left - packed.seconds, 0)
        packings.append(packed)
        # 3. Try the plan on the model of the scheduler, and pack again without what that refuses.
        moves = _in_order(board.moves(packed.counts), board.room())
        more = board.refused(moves)
        if not more:
            break
        refused += more
    # 4. Say what was found.
    return _report(board, free_nodes, packings, moves)


class _Kind(NamedTuple):
    """What pods of a group have in common."""

    requests: tuple[int, ...]
    allowed: bytes
    priority: int
    preempts: bool
    budgets: tuple[int, ...]
    alone: str  # `namespace/name` of a pod that is like no other, else ""


_Refusal: TypeAlias = tuple[_Kind, int]
"""A row that is to take no more pods of a group."""


@dataclass(frozen=True, slots=True)
class _Members:
    """The pods of a group, oldest first."""

    running: dict[int, list[RecordedPod]] = field(default_factory=dict)  # by row
    waiting: list[RecordedPod] = field(default_factory=list)


class _Move(NamedTuple):
    """A pod that goes from a row to a row, or from or to nowhere."""

    recorded: RecordedPod
    requests: tuple[int, ...]
    source: int
    target: int


class _Board:
    """A recorded cluster as a packing."""

    def __init__(self, cluster: RecordedCluster) -> None:
        self.cluster = cluster
        self.view = self._state().view()
        self.waiting = [each for each in cluster.waiting() if _is_considered(each.pod)]
        self.budgets = self.view.all_of(DisruptionBudget)
        self.staying = Counter[StayReason]()
        self._can_be_free = self.view.valid.copy()
        running = [each for each in cluster.pods if self._may_leave(each)]
        self._resources = _resources((*running, *self.waiting))
        self.members: dict[_Kind, _Members] = {}
        for each in sorted((*running, *self.waiting), key=_age):
            members = self.members.setdefault(self._kind(each.pod), _Members())
            if each.pod.node_name:
                row = self.view.rows[each.pod.node_name]
                members.running.setdefault(row, []).append(each)
            else:
                members.waiting.append(each)

    @property
    def depends_on_pods(self) -> bool:
        """Whether rules that the packing does not know may refuse a pod."""
        return any(kind.alone for kind in self.members)

    def packing(self, free_nodes: int, refused: Iterable[_Refusal]) -> Packing:
        """Return the packing; `refused`: as the model of the scheduler has it."""
        groups = {kind: self._group(kind, members) for kind, members in self.members.items()}
        for kind, row in refused:
            groups[kind].allowed[row] = False
        room = self.room()
        for group in groups.values():
            room += np.array(group.requests, np.int64)[:, None] * group.running
        return Packing(
            room=room,
            groups=tuple(groups.values()),
            budgets=[max(budget.disruptions_allowed, 0) for budget in self.budgets],
            can_be_free=self._can_be_free,
            free_nodes=free_nodes,
        )

    def room(self) -> NDArray[np.int64]:
        """Return what is free now, (resources, n)."""
        view = self.view
        offered = view.amounts(view.allocatable, self._resources)
        room: NDArray[np.int64] = offered - view.amounts(view.sums[Sum.REQUESTS], self._resources)
        for at, name in enumerate(self._resources):
            by_devices = left_to_devices(name, view)
            if by_devices is not None:
                room[at, by_devices] = GREATEST_AMOUNT
        return room

    def free_nodes(self, counts: Counts) -> tuple[str, ...]:
        """Return the nodes on which nothing is left but what belongs to them."""
        free = self._can_be_free & ~counts.any(axis=0)
        return tuple(sorted(self.view.names[row] for row in np.flatnonzero(free).tolist()))

    def moves(self, counts: Counts) -> list[_Move]:
        """Return who goes where: waiting pods first, those that are to wait last."""
        placed: list[_Move] = []
        moved: list[_Move] = []
        displaced: list[_Move] = []
        for (kind, members), on in zip(self.members.items(), counts, strict=True):
            targets, leaving = [], []
            for row, pods in enumerate(on.tolist()):
                here = members.running.get(row, [])
                leaving += [(each, row) for each in here[pods:]]
                targets += [row] * (pods - len(here))
            ends = iter(targets)
            for each, source in leaving:
                target = next(ends, _NOWHERE)
                move = _Move(each, kind.requests, source, target)
                (displaced if target == _NOWHERE else moved).append(move)
            placed += [
                _Move(each, kind.requests, _NOWHERE, target)
                for each, target in zip(members.waiting, ends, strict=False)
            ]
        placed.sort(key=lambda move: (-move.recorded.pod.priority, _age(move.recorded)))
        return [*displaced, *placed, *moved]

    def refused(self, moves: Iterable[_Move]) -> list[_Refusal]:
        """Return what the model of the scheduler refuses of moves in this order."""
        refused = []
        state, now = self._state(), self.cluster.now
        for move in moves:
            pod = move.recorded.pod
            if move.source != _NOWHERE:
                state.delete_pod(pod.key)
            if move.target == _NOWHERE:
                continue
            view, name = state.view(), self.view.names[move.target]
            if not passing_nodes(_unbound(pod), view, now)[view.rows[name]]:
                refused.append((self._kind(pod), move.target))
                continue
            bound = structs.replace(_unbound(pod), node_name=name, phase="Running")
            state.set_pod(bound, seen_at=now)
        return refused

    def _state(self) -> ClusterState:
        state = self.cluster.empty_state()
        for each in self.cluster.pods:
            if each.pod.node_name:
                state.set_pod(each.pod, seen_at=self.cluster.now)
        return state

    def _may_leave(self, recorded: RecordedPod) -> bool:
        """Return whether a pod runs and may be moved; note what keeps it, and so its node."""
        pod = recorded.pod
        row = self.view.rows.get(pod.node_name)
        if row is None or not is_movable(pod):
            return False
        reason = self._stay_reason(pod)
        if reason is None:
            return True
        self.staying[reason] += 1
        self._can_be_free[row] = False
        return False

    def _stay_reason(self, pod: Pod) -> StayReason | None:
        running = running_pod_of(pod)
        if running is None or running.is_protected or pod.deleting:
            return StayReason.SYSTEM
        if pod.namespace in SYSTEM_NAMESPACES:
            return StayReason.SYSTEM
        if (
            pod.annotations.get(SAFE_TO_EVICT_ANNOTATION) == "false"
            or pod.annotations.get(DO_NOT_DISRUPT_ANNOTATION) == "true"
        ):
            return StayReason.MARKED
        if not pod.owner_uid:
            return StayReason.ALONE
        if running.gang is not None:
            return StayReason.GANG
        if pod.has_claims or any(is_device_resource(it, self.view) for it in pod.shape.requests):
            return StayReason.CLAIMS
        if depends_on_pods(pod, self.view, self.cluster.now):
            return StayReason.NEIGHBOURS
        return StayReason.BUDGETS if len(self._budgets_of(pod)) > 1 else None

    def _budgets_of(self, pod: Pod) -> tuple[int, ...]:
        return tuple(
            number
            for number, budget in enumerate(self.budgets)
            if budget.selects(pod.namespace, pod.labels)
        )

    def _kind(self, pod: Pod) -> _Kind:
        wanted = {**pod.shape.requests, PODS: 1}
        free = _unbound(pod)
        return _Kind(
            requests=tuple(wanted.get(name, 0) for name in self._resources),
            allowed=allowed_nodes(free, self.view, self.cluster.now).tobytes(),
            priority=pod.priority,
            preempts=pod.preemption_policy != NEVER,
            budgets=self._budgets_of(pod),
            alone=pod.key if depends_on_pods(free, self.view, self.cluster.now) else "",
        )

    def _group(self, kind: _Kind, members: _Members) -> Group:
        running = np.zeros(len(self.view), np.int64)
        for row, pods in members.running.items():
            running[row] = len(pods)
        return Group(
            requests=kind.requests,
            allowed=np.frombuffer(kind.allowed, np.bool_).copy(),
            running=running,
            waiting=len(members.waiting),
            priority=kind.priority,
            preempts=kind.preempts,
            budgets=kind.budgets,
        )


def _is_considered(pod: Pod) -> bool:
    """Return whether a waiting pod waits for nothing but a node."""
    return not pod.deleting and not pod.is_queued and {*pod.scheduling_gates} <= {HOLD_GATE}


def _age(recorded: RecordedPod) -> tuple[float, str]:
    created = recorded.pod.created
    return 0.0 if created is None else created.timestamp(), recorded.pod.key


def _unbound(pod: Pod) -> Pod:
    """Return a pod as it would be created again."""
    return structs.replace(
        pod,
        node_name="",
        scheduling_gates=(),
        nominated_node_name="",
        phase="",
        scheduled_at=None,
        initialized_at=None,
    )


def _resources(pods: Iterable[RecordedPod]) -> tuple[str, ...]:
    """Return the resources that the scheduler compares for pods."""
    asked = {name for each in pods for name, amount in each.pod.shape.requests.items() if amount}
    return (PODS, *sorted(name for name in asked if name in NATIVE or is_scalar(name)))


def _in_order(moves: Sequence[_Move], room: NDArray[np.int64]) -> list[_Move]:
    """Return moves in an order in which each pod fits, by resources.

    A pod that leaves comes back at once where its node has room already. Where there is none for
    anybody, the next one that is to move leaves first, and comes back later.
    """
    ordered, left = [], []
    for move in moves:
        if move.target == _NOWHERE:
            room[:, move.source] += move.requests
            ordered.append(move)
        else:
            left.append(move)
    while left:
        ready = next((move for move in left if _fits(move, room)), None)
        if ready is not None:
            left.remove(ready)
            room[:, ready.target] -= ready.requests
        else:
            ready = next((move for move in left if move.source != _NOWHERE), left[0])
            at = left.index(ready)
            if ready.source == _NOWHERE:  # only on nodes that are overcommitted
                return [*ordered, *left]
            left[at] = ready._replace(source=_NOWHERE)
            ready = ready._replace(target=_NOWHERE)
        if ready.source != _NOWHERE:
            room[:, ready.source] += ready.requests
        ordered.append(ready)
    return ordered


def _fits(move: _Move, room: NDArray[np.int64]) -> bool:
    asked = np.array(move.requests, np.int64)
    return bool(((asked <= room[:, move.target]) | (asked == 0)).all())


def _report(
    board: _Board, wanted: int, packings: Sequence[Packed], moves: Sequence[_Move]
) -> RepackReport:
    targets: dict[str, int] = {}
    for move in moves:
        targets[move.recorded.pod.key] = move.target
    placed = {each.pod.key for each in board.waiting} & targets.keys()
    displaced = sum(target == _NOWHERE for target in targets.values())
    return RepackReport(
        recorded_at=date(board.cluster.now).isoformat().replace("+00:00", "Z"),
        nodes=tuple(node.name for node in board.cluster.nodes),
        wanted_free=wanted,
        waiting=len(board.waiting),
        placed=len(placed),
        moved=len(targets) - len(placed) - displaced,
        displaced=displaced,
        free_nodes=board.free_nodes(packings[-1].counts) if wanted else (),
        steps=tuple(_step(move, board.view) for move in moves),
        unplaced=tuple(_name(each) for each in board.waiting if each.pod.key not in placed),
        staying=dict(sorted(board.staying.items())),
        goals=tuple(_goals(packings[0].reached, packings[-1].reached)),
        notes=_NOTES,
    )


def _step(move: _Move, view: ClusterView) -> RepackStep:
    source, target = (
        "" if row == _NOWHERE else view.names[row] for row in (move.source, move.target)
    )
    return RepackStep(
        pod=_name(move.recorded),
        owner=owner_name(move.recorded.pod, move.recorded.raw),
        priority=move.recorded.pod.priority,
        source=source,
        target=target,
    )


def _name(recorded: RecordedPod) -> PodName:
    return PodName(recorded.pod.namespace, recorded.pod.display_name)


def _goals(first: Iterable[Reached], last: Iterable[Reached]) -> Iterator[RepackGoal]:
    """Yield the goals as they were reached last; a bound holds for what was reached before it."""
    is_known = True
    for then, now in zip(first, last, strict=True):
        goal = now.goal
        yield RepackGoal(
            aim=goal.aim,
            priority=goal.priority,
            found=now.found,
            bound=then.bound if is_known else None,
        )
        is_known &= then.found == now.found
