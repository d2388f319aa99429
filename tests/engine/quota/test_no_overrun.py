"""Replicas, an API server and time, in every order: `max` holds, and nothing is lost for ever."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.model.elastic_quota import ElasticQuota
from engine.quota import (
    RESOURCE_QUOTA_RULES,
    AllowanceConfig,
    LocalAllowance,
    PendingWrite,
    QuotaRequest,
    QuotaState,
    Reservation,
    ReservationTimeouts,
    draw,
    expect,
    judge_batch,
)

MAX = 10
REQUEST_SECONDS = 60  # the API server's patience with a request
PATIENCE = ReservationTimeouts()
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


@dataclass(frozen=True)
class Granted:
    """A request that a replica allowed, and the API server has yet to carry out."""

    reservation: Reservation
    cpu: int  # of the pod afterwards
    at: float


@dataclass
class Write:
    """A write on its way, with what it will allow."""

    onto: int
    annotation: str
    granted: list[Granted]


@dataclass
class Replica:
    """What one process knows; all of it is gone with it."""

    heard: int = 0
    delivered: int = 0
    pods: dict[str, Stored] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    book: QuotaState | None = None
    writing: Write | None = None


class Cluster(RuleBasedStateMachine):
    """Rules are what may happen next."""

    patience = PATIENCE
    lending = NEVER

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.version = 1
        self.serial = 0
        self.pods: dict[str, Stored] = {}
        self.events: list[tuple[int, str, Stored | None]] = []
        self.replicas = [Replica() for _ in range(3)]
        self.in_flight: list[Granted] = []
        self.quota = ElasticQuota(
            namespace="shop",
            name="team",
            group="g",
            min=None,
            max={"cpu": MAX},
            used={},
            uid="q",
            version=1,
        )
        for one in range(3):
            self.hear_quota(one)
            self.relist(one)

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
        wanted = granted.reservation
        if later_step_refuses or self.now > granted.at + REQUEST_SECONDS:
            return
        there = self.pods.get(wanted.name)
        if not wanted.request and there is None:
            self.write(wanted.name, Stored(wanted.name, wanted.uid, granted.cpu, 0))
        elif wanted.request and there is not None and there.version == wanted.after:
            self.write(wanted.name, replace(there, cpu=granted.cpu))

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

    @rule(one=REPLICAS)
    def relist(self, one: int) -> None:
        replica = self.replicas[one]
        replica.pods = dict(self.pods)
        replica.seen |= {pod.uid: pod.version for pod in self.pods.values()}
        replica.heard, replica.delivered = self.version, len(self.events)

    @rule(one=REPLICAS, most=st.integers(1, 4))
    def watch(self, one: int, most: int) -> None:
        replica = self.replicas[one]
        if not replica.heard:
            return
        for version, name, pod in self.events[replica.delivered : replica.delivered + most]:
            if pod is None:
                del replica.pods[name]
            else:
                replica.pods[name] = pod
                replica.seen[pod.uid] = version
            replica.heard = version
            replica.delivered += 1

    @rule(one=REPLICAS)
    def hear_quota(self, one: int) -> None:
        replica = self.replicas[one]
        if replica.book is None:
            self.serial += 1
            own = LocalAllowance(f"replica-{self.serial}", self.lending)
            replica.book = QuotaState(self.quota, self.now, self.patience, own)
        else:
            replica.book.update(self.quota, self.now)

    @rule(one=REPLICAS)
    def crash(self, one: int) -> None:
        self.replicas[one] = Replica()

    def judging(self, one: int) -> tuple[Replica, QuotaState] | None:
        """Return a replica that may judge now, and has nothing else to do."""
        replica = self.replicas[one]
        book = replica.book
        if book is None or replica.writing is not None or not book.may_judge(replica.heard):
            return None
        book.mark_observed(lambda uid: replica.seen.get(uid, 0), replica.heard, self.now)
        return replica, book

    def ask(self, one: int, asked: list[tuple[Reservation, int]]) -> None:
        """Admit what can be drawn; judge the others, and send what they need written."""
        book, rest = self.replicas[one].book, []
        for reservation, cpu in asked:
            wanted = QuotaRequest(reservation)
            books = [] if book is None else [book]
            expect(wanted, books, RESOURCE_QUOTA_RULES, self.now)
            if draw(wanted, books, RESOURCE_QUOTA_RULES, self.now):
                self.in_flight.append(Granted(reservation, cpu, self.now))
            else:
                rest.append((reservation, cpu))
        self.judge(one, rest)

    def judge(self, one: int, asked: list[tuple[Reservation, int]]) -> None:
        if (ready := self.judging(one)) is None:
            return
        replica, book = ready
        used = {"cpu": sum(pod.cpu for pod in replica.pods.values())}
        batch = [QuotaRequest(reservation) for reservation, _ in asked]
        judgement = judge_batch(batch, used, [book], self.now)
        granted = [
            Granted(reservation, cpu, self.now)
            for (reservation, cpu), verdict in zip(asked, judgement.verdicts, strict=True)
            if verdict is not None and verdict.allowed
        ]
        for _, draft in judgement.writes:
            self.send(replica, book, draft, granted)

    def send(
        self, replica: Replica, book: QuotaState, what: PendingWrite, granted: list[Granted]
    ) -> None:
        replica.writing = Write(book.quota.version, book.sending(what, self.now), granted)

    @rule(one=REPLICAS)
    def mind_allowance(self, one: int) -> None:
        self.judge(one, [])

    @rule(one=REPLICAS, wanted=st.lists(st.tuples(NAMES, CORES), min_size=1, max_size=4))
    def create(self, one: int, wanted: list[tuple[str, int]]) -> None:
        asked = []
        for name, cpu in wanted:
            self.serial += 1
            asked.append((Reservation(f"pod-{self.serial}", name, {"cpu": cpu}), cpu))
        self.ask(one, asked)

    @rule(one=REPLICAS, name=NAMES, cpu=CORES)
    def create_at_once(self, one: int, name: str, cpu: int) -> None:
        self.create(one, [(name, cpu)])
        self.write_arrives(one, answered=True)
        self.carry_out_all()
        self.watch(one, most=9)

    @precondition(lambda self: self.pods)
    @rule(one=REPLICAS, name=NAMES, cpu=CORES)
    def grow(self, one: int, name: str, cpu: int) -> None:
        pod = self.pods.get(name)
        if pod is not None and cpu > pod.cpu:
            self.serial += 1
            more = {"cpu": cpu - pod.cpu}
            request = f"resize-{self.serial}"
            self.ask(one, [(Reservation(pod.uid, name, more, pod.version, request), cpu)])

    @rule(one=REPLICAS)
    def tidy(self, one: int) -> None:
        if (ready := self.judging(one)) is not None:
            replica, book = ready
            for abandoned in book.abandoned(self.now):
                book.is_drained(abandoned, self.newest())
            kept = book.pruned(self.now)
            if kept.size < book.reservations.size:
                self.send(replica, book, PendingWrite(kept, book.allowance.drawn), [])

    def newest(self) -> int:
        return max((pod.version for pod in self.pods.values()), default=0)

    @rule(one=REPLICAS)
    def ask_after_overdue(self, one: int) -> None:
        replica = self.replicas[one]
        if replica.book is None:
            return
        for late in replica.book.overdue(self.now):
            there = self.pods.get(late.name)
            if there is None or there.uid != late.uid:
                replica.book.is_missing(late.key)
            else:
                replica.seen[there.uid] = max(there.version, replica.seen.get(there.uid, 0))
                replica.book.exists(late.key, there.version, self.now)

    @precondition(lambda self: any(one.writing for one in self.replicas))
    @rule()
    def all_writes_arrive(self) -> None:
        for one in range(3):
            self.write_arrives(one, answered=True)

    @precondition(lambda self: any(one.writing for one in self.replicas))
    @rule(one=REPLICAS, answered=st.booleans())
    def write_arrives(self, one: int, answered: bool) -> None:  # noqa: FBT001 - drawn
        """Compare and swap; without an answer, the replica reads again and allows nothing."""
        replica = self.replicas[one]
        write, replica.writing = replica.writing, None
        if write is None or replica.book is None:
            return
        succeeds = write.onto == self.quota.version
        if succeeds:
            self.version += 1
            self.quota = replace(self.quota, version=self.version, reservations=write.annotation)
        if answered and not succeeds:
            replica.book.allowance.not_sent()
        replica.book.update(self.quota, self.now)
        if succeeds and answered:
            self.in_flight += write.granted

    @rule(seconds=st.sampled_from([1.0, 11.0, 76.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    # What must be true.

    @invariant()
    def max_holds(self) -> None:
        assert sum(pod.cpu for pod in self.pods.values()) <= MAX

    def teardown(self) -> None:
        """When all is quiet, nothing is reserved any more: what is free can be used."""
        self.in_flight.clear()
        self.now += REQUEST_SECONDS
        for one in range(3):
            self.replicas[one].writing = None
            self.hear_quota(one)
            self.relist(one)
        for _ in range(4):
            self.now += PATIENCE.unseen_seconds + self.lending.seconds
            for one in range(3):
                for duty in (self.ask_after_overdue, self.mind_allowance, self.tidy):
                    self.hear_quota(one)
                    duty(one)
                    self.write_arrives(one, answered=True)
        for one in range(3):
            self.hear_quota(one)
            book = self.replicas[one].book
            assert book is not None
            assert book.counted() == {}
            assert book.may_judge(self.replicas[one].heard)


class BusyCluster(Cluster):
    """One where reservations leave as soon as their pods are seen; slower watches must wait."""

    patience = ReservationTimeouts(settled_seconds=0)


class LendingCluster(Cluster):
    """One where replicas take ahead whatever they may."""

    lending = EAGER

    @rule(one=REPLICAS)
    def take_ahead(self, one: int) -> None:
        self.hear_quota(one)
        self.watch(one, most=99)
        self.create(one, [("d", 1), ("e", 1)])
        self.write_arrives(one, answered=True)

    @rule(one=REPLICAS)
    def draw_all(self, one: int) -> None:
        """Have all that was taken ahead become pods at once."""
        book = self.replicas[one].book
        for number in range(MAX + 1):
            name = f"drawn-{number}"
            if book is not None and name not in self.pods:
                self.serial += 1
                wanted = QuotaRequest(Reservation(f"pod-{self.serial}", name, {"cpu": 1}))
                if draw(wanted, [book], RESOURCE_QUOTA_RULES, self.now):
                    self.in_flight.append(Granted(wanted.reservation, 1, self.now))
        self.carry_out_all()

    @rule(one=REPLICAS)
    def fill(self, one: int) -> None:
        """Have a replica admit, at once, what it thinks is free."""
        self.hear_quota(one)
        for number in range(MAX):
            self.create_at_once(one, f"fill-{number}", 1)


class BusyLendingCluster(LendingCluster):
    """One where they do, and forget at once what was seen."""

    patience = ReservationTimeouts(settled_seconds=0)


Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestQuotasAreNotOverrun = Cluster.TestCase
BusyCluster.TestCase.settings = Cluster.TestCase.settings
TestBusyQuotasAreNotOverrun = BusyCluster.TestCase
LendingCluster.TestCase.settings = Cluster.TestCase.settings
TestQuotasTakenAheadAreNotOverrun = LendingCluster.TestCase
BusyLendingCluster.TestCase.settings = Cluster.TestCase.settings
TestBusyQuotasTakenAheadAreNotOverrun = BusyLendingCluster.TestCase

FAST, SLOW = 0, 1


def test_a_slow_watch_waits_for_the_pods_whose_reservations_were_taken_off() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 6)
    cluster.tidy(FAST)  # the pod is seen, but not for long enough
    cluster.now += PATIENCE.settled_seconds
    cluster.tidy(FAST)
    cluster.write_arrives(FAST, answered=True)
    assert cluster.quota.reservations == '{"quota":"q","seenUpTo":3,"reserved":[]}'
    cluster.hear_quota(SLOW)
    assert cluster.judging(SLOW) is None
    cluster.create_at_once(SLOW, "b", 6)  # 6 + 6 > 10
    cluster.max_holds()
    cluster.watch(SLOW, most=1)
    assert cluster.judging(SLOW) is not None


def test_a_pod_that_was_seen_before_it_grew_counts_as_grown() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 1)
    cluster.watch(SLOW, most=1)
    cluster.grow(FAST, "a", 6)
    cluster.write_arrives(FAST, answered=True)
    cluster.hear_quota(SLOW)
    cluster.create(SLOW, [("b", 5)])  # 6 + 5 > 10
    cluster.write_arrives(SLOW, answered=True)
    cluster.carry_out_all()
    assert cluster.pods["a"].cpu == 6
    cluster.max_holds()


def test_a_pod_that_the_api_server_knows_counts_until_the_watch_shows_it() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 6)
    cluster.hear_quota(SLOW)
    cluster.now += PATIENCE.unseen_seconds
    cluster.ask_after_overdue(SLOW)
    cluster.create_at_once(SLOW, "b", 6)  # 6 + 6 > 10
    assert cluster.pods.keys() == {"a"}


def test_a_pod_that_was_refused_later_gives_its_share_back_in_time() -> None:
    cluster = Cluster()
    cluster.create(FAST, [("a", 6)])
    cluster.write_arrives(FAST, answered=True)
    cluster.carry_out(0, later_step_refuses=True)
    cluster.now += PATIENCE.unseen_seconds - 1
    cluster.ask_after_overdue(FAST)
    cluster.create_at_once(FAST, "b", 6)
    assert not cluster.pods  # it could still come
    cluster.now += 1
    cluster.ask_after_overdue(FAST)
    cluster.create_at_once(FAST, "b", 6)
    assert cluster.pods.keys() == {"b"}


def test_the_promise_of_a_resize_that_never_came_is_given_back() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 1)
    cluster.grow(FAST, "a", 6)
    cluster.write_arrives(FAST, answered=True)
    cluster.teardown()  # a later step refused it: nothing may be reserved any more


def lending(cluster: LendingCluster, one: int) -> None:
    """Have a replica take something ahead, and another one hear of it."""
    cluster.take_ahead(one)
    cluster.carry_out_all()
    cluster.watch(one, most=9)
    cluster.create_at_once(one, "a", 1)
    assert has_allowance(cluster)
    cluster.hear_quota(SLOW)


def has_allowance(cluster: Cluster) -> bool:
    return '"allowances"' in cluster.quota.reservations


def test_nothing_is_drawn_once_others_may_take_the_allowance_for_abandoned() -> None:
    cluster = LendingCluster()
    lending(cluster, FAST)
    for _ in range(2):
        cluster.now += 91  # 15 s to draw from it, 75 s until requests have ended
        cluster.relist(SLOW)
        cluster.tidy(SLOW)
        cluster.write_arrives(SLOW, answered=True)
    cluster.fill(SLOW)
    before = len(cluster.pods)
    cluster.draw_all(FAST)  # it was asleep, and has heard nothing
    assert len(cluster.pods) == before
    cluster.max_holds()


def test_an_allowance_counts_while_pods_drawn_from_it_may_still_be_stored() -> None:
    cluster = LendingCluster()
    lending(cluster, FAST)
    cluster.now += 14
    wanted = QuotaRequest(Reservation("late", "late", {"cpu": 1}))
    book = cluster.replicas[FAST].book
    assert book is not None
    assert draw(wanted, [book], RESOURCE_QUOTA_RULES, cluster.now)
    cluster.in_flight.append(Granted(wanted.reservation, 1, cluster.now))
    cluster.now += 60  # as long as a request may take
    cluster.relist(SLOW)
    cluster.tidy(SLOW)
    cluster.write_arrives(SLOW, answered=True)
    cluster.replicas[FAST].writing = None
    late = cluster.in_flight.pop()
    cluster.fill(SLOW)
    cluster.in_flight.append(late)
    cluster.carry_out_all()
    assert "late" in cluster.pods
    cluster.max_holds()


def test_an_abandoned_allowance_counts_until_its_pods_have_been_heard_of() -> None:
    cluster = LendingCluster()
    lending(cluster, FAST)
    cluster.relist(SLOW)
    cluster.draw_all(FAST)
    book = cluster.replicas[FAST].book
    assert book is not None
    gone = f'"{book.allowance.replica}"'
    cluster.crash(FAST)
    for _ in range(2):
        cluster.now += 91
        cluster.tidy(SLOW)
        cluster.write_arrives(SLOW, answered=True)
    assert gone in cluster.quota.reservations  # else all would have to wait for that
    cluster.relist(SLOW)
    cluster.tidy(SLOW)
    cluster.write_arrives(SLOW, answered=True)
    assert gone not in cluster.quota.reservations
    cluster.fill(SLOW)
    cluster.max_holds()


def test_a_slow_watch_waits_for_the_pods_whose_allowance_was_given_back() -> None:
    cluster = BusyLendingCluster()
    lending(cluster, FAST)
    cluster.relist(SLOW)
    cluster.draw_all(FAST)
    cluster.watch(FAST, most=99)
    cluster.now += 16
    cluster.lending = NEVER
    cluster.mind_allowance(FAST)
    cluster.write_arrives(FAST, answered=True)
    cluster.hear_quota(SLOW)
    assert cluster.judging(SLOW) is None
    cluster.fill(SLOW)
    cluster.max_holds()
