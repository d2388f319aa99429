"""State machines of replicas, an API server and time, for `test_no_overrun`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.model.pod import DeploymentPod
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    AllowanceConfig,
    PendingWrite,
    QuotaRequest,
    QuotaState,
    Reservation,
    ReservationTimeouts,
    draw,
    end_surges,
    judge_batch,
    record_demand,
)
from tests.builders import elastic_quota

MAX = 10
REQUEST_SECONDS = 60  # a request has ended on the API server by then
TIMEOUTS = ReservationTimeouts()
REPLICAS = st.integers(0, 2)
CORES = st.integers(1, 6)
NAMES = st.sampled_from("abc")  # few, so that they are used again
NEVER = AllowanceConfig(least_pods=MAX + 1)
EAGER = AllowanceConfig(least_pods=1, share=1, demand_seconds=60)


@dataclass(frozen=True)
class Stored:
    name: str
    uid: str
    cpu: int
    version: int
    queued: bool = False


@dataclass(frozen=True)
class Granted:
    """A request that a replica allowed, and the API server has yet to carry out."""

    reservation: Reservation
    cpu: int  # of the pod afterwards
    at: float


@dataclass
class Write:
    """A write in flight, with the requests it will allow."""

    onto: int
    annotation: str
    granted: list[Granted]


@dataclass
class Replica:
    """The memory of one process, lost in a crash."""

    name: str = ""
    observed_version: int = 0
    delivered: int = 0
    pods: dict[str, Stored] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    state: QuotaState | None = None
    writing: Write | None = None


def counted(replica: Replica, name: str) -> dict[str, int]:
    """Return what the view of a replica counts for the pod of a name."""
    pod = replica.pods.get(name)
    return {} if pod is None or pod.queued else {"cpu": pod.cpu}


def used_of(pods: Mapping[str, Stored]) -> int:
    """Return what pods hold; a queued one holds nothing."""
    return sum(pod.cpu for pod in pods.values() if not pod.queued)


class Cluster(RuleBasedStateMachine):
    """Replicas and an API server; rules are the events that may happen next."""

    timeouts = TIMEOUTS
    allowances = NEVER

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.version = 1
        self.serial = 0
        self.pods: dict[str, Stored] = {}
        self.events: list[tuple[int, str, Stored | None]] = []
        self.replicas = [Replica() for _ in range(3)]
        self.in_flight: list[Granted] = []
        self.quota = elastic_quota(group="g", most={"cpu": MAX}, uid="q", version=1)
        for index in range(3):
            self.watch_quota(index)
            self.relist(index)

    # The API server.

    def write(self, name: str, pod: Stored | None) -> None:
        self.version += 1
        if pod is None:
            del self.pods[name]
        else:
            pod = self.pods[name] = replace(pod, version=self.version)
        self.events.append((self.version, name, pod))

    @precondition(lambda self: self.in_flight)
    @rule(which=st.integers(0, 9), later_step_refuses=st.booleans())
    def carry_out(self, which: int, later_step_refuses: bool) -> None:  # noqa: FBT001 - drawn
        granted = self.in_flight.pop(which % len(self.in_flight))
        reservation = granted.reservation
        if later_step_refuses or self.now > granted.at + REQUEST_SECONDS:
            return
        name, stored = reservation.name, self.pods.get(reservation.name)
        if not reservation.request and stored is None:
            self.write(name, Stored(name, reservation.uid, granted.cpu, 0))
        elif reservation.request and stored is not None and stored.version == reservation.after:
            self.write(name, replace(stored, cpu=granted.cpu, queued=False))

    @precondition(lambda self: self.in_flight)
    @rule()
    def carry_out_all(self) -> None:
        while self.in_flight:
            self.carry_out(0, later_step_refuses=False)

    @precondition(lambda self: self.pods)
    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.pods:
            self.write(name, None)

    @precondition(lambda self: self.pods)
    @rule(name=NAMES)
    def status_changes(self, name: str) -> None:
        if name in self.pods:
            self.write(name, self.pods[name])

    @precondition(lambda self: self.pods)
    @rule(name=NAMES, cpu=CORES)
    def shrink(self, name: str, cpu: int) -> None:
        if name in self.pods and cpu < self.pods[name].cpu:
            self.write(name, replace(self.pods[name], cpu=cpu))

    # Replicas.

    @rule(index=REPLICAS)
    def relist(self, index: int) -> None:
        replica = self.replicas[index]
        replica.pods = dict(self.pods)
        replica.seen |= {pod.uid: pod.version for pod in self.pods.values()}
        replica.observed_version, replica.delivered = self.version, len(self.events)

    @rule(index=REPLICAS, most=st.integers(1, 4))
    def watch(self, index: int, most: int) -> None:
        replica = self.replicas[index]
        if not replica.observed_version:
            return
        for version, name, pod in self.events[replica.delivered : replica.delivered + most]:
            if pod is None:
                del replica.pods[name]
            else:
                replica.pods[name] = pod
                replica.seen[pod.uid] = version
            replica.observed_version = version
            replica.delivered += 1

    @rule(index=REPLICAS)
    def watch_quota(self, index: int) -> None:
        replica = self.replicas[index]
        if replica.state is None:
            self.serial += 1
            replica.name = f"replica-{self.serial}"
            replica.state = QuotaState(
                self.quota,
                self.now,
                replica=replica.name,
                timeouts=self.timeouts,
                allowances=self.allowances,
            )
        else:
            replica.state.update(self.quota, self.now)

    @rule(index=REPLICAS)
    def crash(self, index: int) -> None:
        self.replicas[index] = Replica()

    def judging(self, index: int) -> tuple[Replica, QuotaState] | None:
        """Return a replica that may judge now, and is not writing."""
        replica = self.replicas[index]
        state = replica.state
        if (
            state is None
            or replica.writing is not None
            or not state.is_current(replica.observed_version)
        ):
            return None
        state.mark_observed(
            lambda uid: replica.seen.get(uid, 0), replica.observed_version, self.now
        )
        return replica, state

    def request(self, reservation: Reservation) -> QuotaRequest:
        """Return what a review asks for."""
        return QuotaRequest(reservation)

    def replaced(self, _replica: Replica, _new: DeploymentPod) -> Iterable[str]:
        """Return the pods that one of a Deployment may replace, as a replica sees them."""
        return ()

    def admit(self, index: int, requests: list[tuple[Reservation, int]]) -> None:
        """Draw requests from the allowance; judge the others, and send the write they need."""
        state, rest = self.replicas[index].state, []
        for reservation, cpu in requests:
            request = self.request(reservation)
            states = [] if state is None else [state]
            record_demand(request, states, RESOURCE_QUOTA_RULES, self.now)
            if draw(request, states, RESOURCE_QUOTA_RULES, self.now):
                self.in_flight.append(Granted(reservation, cpu, self.now))
            else:
                rest.append((reservation, cpu))
        self.judge(index, rest)

    def judge(self, index: int, requests: list[tuple[Reservation, int]]) -> None:
        if (ready := self.judging(index)) is None:
            return
        replica, state = ready
        used = {"cpu": used_of(replica.pods)}
        batch = [self.request(reservation) for reservation, _ in requests]
        result = judge_batch(
            batch,
            used,
            [state],
            self.now,
            counted=partial(counted, replica),
            replaced=partial(self.replaced, replica),
        )
        granted = [
            Granted(reservation, cpu, self.now)
            for (reservation, cpu), verdict in zip(requests, result.verdicts, strict=True)
            if verdict is not None and verdict.allowed
        ]
        for _, pending in result.writes:
            self.send(replica, state, pending, granted)

    def send(
        self, replica: Replica, state: QuotaState, pending: PendingWrite, granted: list[Granted]
    ) -> None:
        replica.writing = Write(state.quota.version, state.begin_write(pending, self.now), granted)

    @rule(index=REPLICAS)
    def refresh_allowance(self, index: int) -> None:
        self.judge(index, [])

    @rule(index=REPLICAS, pods=st.lists(st.tuples(NAMES, CORES), min_size=1, max_size=4))
    def create(self, index: int, pods: list[tuple[str, int]]) -> None:
        requests = []
        for name, cpu in pods:
            self.serial += 1
            requests.append((Reservation(f"pod-{self.serial}", name, {"cpu": cpu}), cpu))
        self.admit(index, requests)

    @rule(index=REPLICAS, name=NAMES, cpu=CORES)
    def create_at_once(self, index: int, name: str, cpu: int) -> None:
        self.create(index, [(name, cpu)])
        self.write_arrives(index, answered=True)
        self.carry_out_all()
        self.watch(index, most=9)

    @precondition(lambda self: self.pods)
    @rule(index=REPLICAS, name=NAMES, cpu=CORES)
    def grow(self, index: int, name: str, cpu: int) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.queued:
            self.write(name, replace(pod, cpu=cpu))  # all of it is judged at the release
        elif pod is not None and cpu > pod.cpu:
            self.serial += 1
            more = {"cpu": cpu - pod.cpu}
            request = f"resize-{self.serial}"
            self.admit(index, [(Reservation(pod.uid, name, more, pod.version, request), cpu)])

    # Queued pods. Whoever may write a pod queues it, before or after it was released.

    @rule(name=NAMES, cpu=CORES)
    def create_queued(self, name: str, cpu: int) -> None:
        if name not in self.pods:
            self.serial += 1
            self.write(name, Stored(name, f"pod-{self.serial}", cpu, 0, queued=True))

    @precondition(lambda self: self.pods)
    @rule(name=NAMES)
    def queue(self, name: str) -> None:
        if name in self.pods:
            self.write(name, replace(self.pods[name], queued=True))

    @precondition(lambda self: self.pods)
    @rule(index=REPLICAS, name=NAMES)
    def release(self, index: int, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None and pod.queued:
            self.serial += 1
            request = f"release-{self.serial}"
            amounts = {"cpu": pod.cpu}
            share = Reservation(pod.uid, name, amounts, pod.version, request, whole=True)
            self.admit(index, [(share, pod.cpu)])

    @precondition(lambda self: self.pods)
    @rule(index=REPLICAS, name=NAMES)
    def release_at_once(self, index: int, name: str) -> None:
        self.release(index, name)
        self.write_arrives(index, answered=True)
        self.carry_out_all()

    @precondition(lambda self: self.pods)
    @rule(index=REPLICAS, name=NAMES)
    def release_and_queue_again(self, index: int, name: str) -> None:
        self.watch_quota(index)
        self.release_at_once(index, name)
        self.watch(index, most=99)
        self.queue(name)
        self.watch(index, most=99)

    @rule(index=REPLICAS)
    def prune(self, index: int) -> None:
        if (ready := self.judging(index)) is not None:
            replica, state = ready
            for abandoned in state.others.abandoned(self.now):
                state.others.mark_drained(abandoned, self.newest())
            pending = state.pruning_write(self.now)
            if pending is not None:
                self.send(replica, state, pending, [])

    def newest(self) -> int:
        return max((pod.version for pod in self.pods.values()), default=0)

    @rule(index=REPLICAS)
    def confirm_overdue(self, index: int) -> None:
        replica = self.replicas[index]
        if replica.state is None:
            return
        for late in replica.state.overdue(self.now):
            there = self.pods.get(late.name)
            if there is None or there.uid != late.uid:
                replica.state.mark_missing(late.key)
            else:
                replica.seen[there.uid] = max(there.version, replica.seen.get(there.uid, 0))
                replica.state.confirm(late.key, there.version, self.now)

    @precondition(lambda self: any(replica.writing for replica in self.replicas))
    @rule()
    def all_writes_arrive(self) -> None:
        for index in range(3):
            self.write_arrives(index, answered=True)

    @precondition(lambda self: any(replica.writing for replica in self.replicas))
    @rule(index=REPLICAS, answered=st.booleans())
    def write_arrives(self, index: int, answered: bool) -> None:  # noqa: FBT001 - drawn
        """Compare and swap; without an answer, the replica reads again and admits nothing."""
        replica = self.replicas[index]
        write, replica.writing = replica.writing, None
        if write is None or replica.state is None:
            return
        succeeds = write.onto == self.quota.version
        if succeeds:
            self.version += 1
            self.quota = replace(self.quota, version=self.version, reservations=write.annotation)
        if answered and not succeeds:
            replica.state.abort_write()
        replica.state.update(self.quota, self.now)
        if succeeds and answered:
            self.in_flight += write.granted

    @rule(seconds=st.sampled_from([1.0, 11.0, 76.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # What must be true.

    @invariant()
    def max_holds(self) -> None:
        assert used_of(self.pods) <= MAX

    def teardown(self) -> None:
        """After a pause nothing is reserved any more: all that is free can be used."""
        self.in_flight.clear()
        self.now += REQUEST_SECONDS
        for index in range(3):
            self.replicas[index].writing = None
            self.watch_quota(index)
            self.relist(index)
        for _ in range(4):
            self.now += TIMEOUTS.unseen_seconds + self.allowances.seconds
            for index in range(3):
                for step in (self.confirm_overdue, self.refresh_allowance, self.prune):
                    self.watch_quota(index)
                    step(index)
                    self.write_arrives(index, answered=True)
        for index in range(3):
            self.watch_quota(index)
            state = self.replicas[index].state
            assert state is not None
            assert state.unobserved(partial(counted, self.replicas[index])) == {}
            assert state.is_current(self.replicas[index].observed_version)


class BusyCluster(Cluster):
    """A cluster where reservations end as soon as their pods are observed; slow watches wait."""

    timeouts = ReservationTimeouts(settled_seconds=0)


class AllowanceCluster(Cluster):
    """A cluster where replicas take the largest allowances they may."""

    allowances = EAGER

    @rule(index=REPLICAS)
    def take_allowance(self, index: int) -> None:
        self.watch_quota(index)
        self.watch(index, most=99)
        self.create(index, [("d", 1), ("e", 1)])
        self.write_arrives(index, answered=True)

    @rule(index=REPLICAS)
    def draw_all(self, index: int) -> None:
        """Use up an allowance at once."""
        state = self.replicas[index].state
        for number in range(MAX + 1):
            name = f"drawn-{number}"
            if state is not None and name not in self.pods:
                self.serial += 1
                request = QuotaRequest(Reservation(f"pod-{self.serial}", name, {"cpu": 1}))
                if draw(request, [state], RESOURCE_QUOTA_RULES, self.now):
                    self.in_flight.append(Granted(request.reservation, 1, self.now))
        self.carry_out_all()

    @rule(index=REPLICAS)
    def fill(self, index: int) -> None:
        """Have a replica admit all that it counts as free, one by one."""
        self.watch_quota(index)
        for number in range(MAX):
            self.create_at_once(index, f"fill-{number}", 1)


class BusyAllowanceCluster(AllowanceCluster):
    """Both: large allowances, and reservations that end at once."""

    timeouts = ReservationTimeouts(settled_seconds=0)


class SurgeCluster(Cluster):
    """A cluster where pods belong to two Deployments, which may surge."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = replace(self.quota, allows_surge=True, version=2)
        self.version = 2

    def request(self, reservation: Reservation) -> QuotaRequest:
        """Each pod is of a revision of its own; the change of a pod is of none."""
        of = DeploymentPod(_deployment_of(reservation.name), reservation.uid)
        is_whole = not reservation.request or reservation.whole
        return QuotaRequest(reservation, of=of if is_whole else None)

    def replaced(self, replica: Replica, new: DeploymentPod) -> Iterable[str]:
        """Any other pod of the Deployment."""
        return [name for name in replica.pods if _deployment_of(name) == new.deployment]

    @rule(steps=st.lists(st.tuples(REPLICAS, st.sampled_from("abcdefgh")), min_size=3, max_size=9))
    def roll_out(self, steps: list[tuple[int, str]]) -> None:
        """Create pods through replicas that are up to date; one that exists ends instead."""
        for index, name in steps:
            self.watch_quota(index)
            self.watch(index, most=99)
            if name in self.pods:
                self.write(name, None)
            else:
                self.create_at_once(index, name, 4)

    @rule(index=REPLICAS)
    def prune(self, index: int) -> None:
        """Prune as the leader does, which sees the end of surges first."""
        if (ready := self.judging(index)) is not None:
            replica, state = ready
            used = {"cpu": used_of(replica.pods)}
            end_surges(state, used, partial(counted, replica), RESOURCE_QUOTA_RULES)
        super().prune(index)

    @invariant()
    def max_holds(self) -> None:
        """Beyond `max` is at most what one pod of each Deployment has in common with another."""
        surplus = sum(self._common(deployment) for deployment in "xy")
        assert used_of(self.pods) - surplus <= MAX

    def _common(self, deployment: str) -> int:
        sizes = sorted(
            pod.cpu
            for name, pod in self.pods.items()
            if _deployment_of(name) == deployment and not pod.queued
        )
        return sizes[-2] if len(sizes) > 1 else 0


def _deployment_of(name: str) -> str:
    return "x" if name in "aceg" else "y"
