"""Replicas, an API server and time, in every order: `max` holds, and nothing is lost for ever."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.model.elastic_quota import ElasticQuota
from engine.quota import Asked, Patience, QuotaBook, Reservation, Reservations, judge_batch

MAX = 10
REQUEST_SECONDS = 60  # the API server's patience with a request
PATIENCE = Patience()
REPLICAS = st.integers(0, 2)
CORES = st.integers(1, 6)
NAMES = st.sampled_from("abc")  # few, so that they are used again


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
    book: QuotaBook | None = None
    writing: Write | None = None


class Cluster(RuleBasedStateMachine):
    """Rules are what may happen next."""

    patience = PATIENCE

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
            replica.book = QuotaBook(self.quota, self.now, self.patience)
        else:
            replica.book.take(self.quota, self.now)

    @rule(one=REPLICAS)
    def crash(self, one: int) -> None:
        self.replicas[one] = Replica()

    def judging(self, one: int) -> tuple[Replica, QuotaBook] | None:
        """Return a replica that may judge now, and has nothing else to do."""
        replica = self.replicas[one]
        book = replica.book
        if book is None or replica.writing is not None or not book.may_judge(replica.heard):
            return None
        book.settle(lambda uid: replica.seen.get(uid, 0), replica.heard, self.now)
        return replica, book

    def ask(self, one: int, asked: list[tuple[Reservation, int]]) -> None:
        """Judge a batch, and send what it needs written."""
        if (ready := self.judging(one)) is None:
            return
        replica, book = ready
        used = {"cpu": sum(pod.cpu for pod in replica.pods.values())}
        batch = [Asked(reservation) for reservation, _ in asked]
        judgement = judge_batch(batch, used, [book], self.now)
        granted = [
            Granted(reservation, cpu, self.now)
            for (reservation, cpu), verdict in zip(asked, judgement.verdicts, strict=True)
            if verdict is not None and verdict.allowed
        ]
        for _, reservations in judgement.writes:
            self.send(replica, book, reservations, granted)

    def send(
        self, replica: Replica, book: QuotaBook, what: Reservations, granted: list[Granted]
    ) -> None:
        replica.writing = Write(book.quota.version, book.annotation(what), granted)

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
            kept = book.pruned(self.now)
            if len(kept.by_key) < len(book.reservations.by_key):
                self.send(replica, book, kept, [])

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
        replica.book.take(self.quota, self.now)
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
        for _ in range(3):
            self.now += PATIENCE.unseen_seconds
            for one in range(3):
                self.hear_quota(one)
                self.ask_after_overdue(one)
                self.tidy(one)
                self.write_arrives(one, answered=True)
        for one in range(3):
            self.hear_quota(one)
            book = self.replicas[one].book
            assert book is not None
            assert book.counted() == {}
            assert book.may_judge(self.replicas[one].heard)


class BusyCluster(Cluster):
    """One where reservations leave as soon as their pods are seen; slower watches must wait."""

    patience = Patience(settled_seconds=0)


Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestQuotasAreNotOverrun = Cluster.TestCase
BusyCluster.TestCase.settings = Cluster.TestCase.settings
TestBusyQuotasAreNotOverrun = BusyCluster.TestCase

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
