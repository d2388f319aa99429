"""State machine of the release controller among replicas, a scheduler, tenants and faults."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASED_ANNOTATION
from engine.model.time import SECOND, Micros, date, micros
from engine.policy import PolicySet
from engine.release import Phase
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.memory_server import Call, Fate, MemoryServer, sent_patch
from tests.webhook.controllers.release.replica_model import HOLD_SECONDS, ReplicaModel
from tests.webhook.controllers.release.scheduler_model import (
    SchedulerModel,
    cores_of,
    cpu_of,
    gates_of,
    node_of,
    nominated_in,
    runs,
)
from tests.webhook.controllers.release.steady_loop import SteadyLoop

BEGIN = micros(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
FOREIGN_GATE = "other.example/gate"
PATIENCE_SECONDS = 80
"""For which a pod may be held beyond its bound after a fault.

One that the API server took 10 s for, without an answer, is tried again after 60 s.
"""

NAMES = st.sampled_from(["p-a", "p-b", "p-c", "p-d", "p-e", "p-f"])
NODES = st.sampled_from(["node-a", "node-b", "node-c"])
REPLICAS = st.integers(0, 1)


class HeldCluster(RuleBasedStateMachine):
    """Replicas, an API server, a scheduler and tenants; rules are the events that may come next."""

    policies: PolicySet
    reclaims = False
    preempts = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = SteadyLoop()
        self.doubtful: set[str] = set()
        self.server = MemoryServer(self.check_write, self.note_failure, self.judge)
        self.scheduler = SchedulerModel(self.server, self.moment)
        self.replicas = [self.new_replica() for _ in range(2)]
        self.refused: set[str] = set()
        self.is_ready_at_the_end = True
        self.held_since: dict[str, float] = {}  # by uid, by our gate alone
        self.trouble_until = 0.0
        self.problems: list[str] = []
        self.created = 0
        self.log = _Problems(self.problems)
        for name in ("webhook", "asyncio"):
            logging.getLogger(name).addHandler(self.log)

    def new_replica(self) -> ReplicaModel:
        return ReplicaModel(
            *(self.server, self.loop, self.policies, self.now, self.doubtful),
            reclaims=self.reclaims,
            preempts=self.preempts,
        )

    def now(self) -> Micros:
        return Micros(BEGIN + int(self.loop.time() * SECOND))

    def moment(self) -> str:
        return f"{date(self.now()).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

    @initialize(is_ready_at_the_end=st.booleans())
    def begin(self, is_ready_at_the_end: bool) -> None:  # noqa: FBT001 - drawn
        self.is_ready_at_the_end = is_ready_at_the_end
        for name in ("node-a", "node-b"):
            self.node_comes(name, 4)
        self.lead(0)

    # Tenants.

    @rule(
        name=NAMES,
        cpu=st.integers(1, 4),
        priority=st.integers(0, 1),
        gates=st.sampled_from([[HOLD_GATE], [HOLD_GATE], [HOLD_GATE, FOREIGN_GATE], []]),
    )
    def create(self, name: str, cpu: int, priority: int, gates: list[str]) -> None:
        self._create(name, cpu, priority, gates)
        self.settle()

    def _create(self, name: str, cpu: int, priority: int, gates: list[str]) -> None:
        if name in self.server.pods() or not self.admits(name, cpu, gates):
            return
        namespace, annotations = self.labels_of(name, gates)
        resources = {"requests": {"cpu": str(cpu)}}
        uid = self.next_uid()
        self.created += 1
        self.server.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": uid,
                    "labels": {"app": "shop"},
                    **({"annotations": annotations} if annotations else {}),
                    "creationTimestamp": self.moment(),
                },
                "spec": {
                    "schedulerName": "default-scheduler",
                    "priority": priority,
                    "containers": [{"name": "main", "image": "main", "resources": resources}],
                    "schedulingGates": [{"name": gate} for gate in gates],
                },
            }
        )

    @rule(pods=st.lists(st.tuples(NAMES, st.integers(1, 3)), min_size=1, max_size=6))
    def hold(self, pods: list[tuple[str, int]]) -> None:
        """Create pods at once: nobody hears of the first before the last is there."""
        for name, cpu in pods:
            self._create(name, cpu, 0, [HOLD_GATE])
        self.settle()

    @rule(
        index=REPLICAS, pods=st.lists(st.tuples(NAMES, st.integers(1, 3)), min_size=2, max_size=4)
    )
    def hold_on_a_slow_watch(self, index: int, pods: list[tuple[str, int]]) -> None:
        """Create pods that a replica sees one by one, and nothing of its own writes before."""
        replica = self.replicas[index]
        replica.is_behind = True
        self.hold(pods)
        for _ in pods:
            self.watch(index, "pods", 1)
        self.watches_lag(index, is_behind=False)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.server.pods():
            self.server.delete("pods", name)
            self.settle()

    @rule(name=NAMES, gate=st.sampled_from([HOLD_GATE, FOREIGN_GATE]))
    def remove_gate(self, name: str, gate: str) -> None:
        pod = self.server.pods().get(name)
        if pod is not None and gate in gates_of(pod):
            kept = [{"name": each} for each in gates_of(pod) if each != gate]
            self.tenant_patches(name, {"spec": {"schedulingGates": kept}})

    def tenant_patches(self, name: str, patch: Object) -> None:
        """Have a tenant change a pod, if quota lets that pass."""
        with suppress(ApiFault):
            self.server.patch_pod(name, patch, judge=self.judge_quota)
        self.settle()

    def labels_of(self, name: str, gates: list[str]) -> tuple[str, dict[str, str]]:  # noqa: ARG002 (as with quotas)
        """Return the namespace and the annotations of a new pod; some are released in order."""
        reasons = {HOLD_REASONS_ANNOTATION: "order"} if name in {"p-a", "p-b"} else {}
        return "shop", reasons

    def next_uid(self) -> str:
        """Return the uid of the pod that is created next."""
        return f"created-{self.created}"

    def admits(self, name: str, cpu: int, gates: list[str]) -> bool:  # noqa: ARG002 (as with quotas)
        """Return whether quota admits a new pod."""
        return True

    def judge_quota(self, old: Object, new: Object) -> None:
        """Refuse what quota does not allow."""

    def must_be_released(self, pod: Object) -> bool:  # noqa: ARG002 (as with quotas)
        """Return whether a held pod is to be released within the bound of a hold."""
        return True

    @rule(name=NAMES)
    def finish(self, name: str) -> None:
        pod = self.server.pods().get(name)
        if pod is not None and node_of(pod):
            self.server.patch_pod(name, {"status": {"phase": "Succeeded"}}, "status")
            self.settle()

    # Nodes and the scheduler.

    @rule(name=NODES, cores=st.integers(2, 6))
    def node_comes(self, name: str, cores: int) -> None:
        if name not in self.server.nodes():
            amounts = {"cpu": str(cores), "memory": "64Gi", "pods": "110"}
            self.server.create(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                    "spec": {},
                    "status": {"allocatable": amounts, "capacity": amounts},
                }
            )
            self.settle()

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        if name in self.server.nodes():
            self.server.delete("nodes", name)
            for pod_name, pod in self.server.pods().items():
                if node_of(pod) == name:
                    self.server.delete("pods", pod_name)
            self.settle()

    @rule(is_slow=st.booleans())
    def scheduler_slows(self, is_slow: bool) -> None:  # noqa: FBT001 - drawn
        self.scheduler.is_slow = is_slow
        self.settle()

    @rule()
    def scheduler_restarts(self) -> None:
        self.scheduler.restart()
        self.settle()

    @rule(follows=st.booleans())
    def scheduler_follows(self, follows: bool) -> None:  # noqa: FBT001 - drawn
        self.scheduler.follows = follows

    # Replicas and the API server.

    @rule(index=REPLICAS)
    def lead(self, index: int) -> None:
        """Begin to lead where nobody does; what an earlier leader has sent is decided by then."""
        if not any(replica.leads for replica in self.replicas):
            while self.server.late:
                self.server.late.pop()
            self.replicas[index].lead()
            self.settle()

    @rule(index=REPLICAS)
    def stop_leading(self, index: int) -> None:
        if self.replicas[index].leads:
            self.replicas[index].stop()
            self.settle()

    @rule(index=REPLICAS)
    def crash(self, index: int) -> None:
        self.replicas[index].connection.has_ended = True
        self.settle()

    @rule(fates=st.lists(st.sampled_from(Fate), min_size=1, max_size=5))
    def next_writes(self, fates: list[Fate]) -> None:
        self.server.fates.extend(fates)

    @rule(name=NAMES, is_refused=st.booleans())
    def admission_refuses(self, name: str, is_refused: bool) -> None:  # noqa: FBT001 - drawn
        """Have somebody's admission refuse what is written of the pods of a name, or no longer."""
        (self.refused.add if is_refused else self.refused.discard)(name)

    @rule(index=REPLICAS, is_ready=st.booleans())
    def policies_load(self, index: int, is_ready: bool) -> None:  # noqa: FBT001 - drawn
        self.replicas[index].is_ready = is_ready
        self.settle()

    @precondition(lambda self: self.server.late)
    @rule(which=st.integers(0, 9), is_lost=st.booleans())
    def late_write_arrives(self, which: int, is_lost: bool) -> None:  # noqa: FBT001 - drawn
        call = self.server.late.pop(which % len(self.server.late))
        if not is_lost:
            self.server.carry_out(call)
        self.settle()

    @rule(index=REPLICAS, is_behind=st.booleans())
    def watches_lag(self, index: int, is_behind: bool) -> None:  # noqa: FBT001 - drawn
        self.replicas[index].is_behind = is_behind
        self.settle()

    @rule(index=REPLICAS, kind=st.sampled_from(["pods", "nodes"]), most=st.integers(1, 4))
    def watch(self, index: int, kind: str, most: int) -> None:
        self.replicas[index].watch(kind, most)
        self.settle()

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.pass_time(seconds, step=1.0)

    def pass_time(self, seconds: float, step: float) -> None:
        """Let time pass in steps, after each of which everybody does what there is to do."""
        end = self.loop.time() + seconds
        while (left := end - self.loop.time()) > 0:
            self.loop.advance(min(left, step))
            self.settle()

    # What follows from each event.

    def settle(self) -> None:
        """Let everybody who is not held up do what there is to do, and check what must be true."""
        goes_on = True
        while goes_on:
            for replica in self.replicas:
                if not replica.is_behind:
                    replica.watch("nodes")
                    replica.watch("pods")
            self.loop.advance()
            goes_on = self._replace_ended() or (
                not self.scheduler.is_slow and self.scheduler.work()
            )
            goes_on = goes_on or any(
                not (replica.is_behind or replica.has_seen_all) for replica in self.replicas
            )
        self.check()

    def _replace_ended(self) -> bool:
        """Start a process again in place of each that has ended."""
        ended = [r for r, replica in enumerate(self.replicas) if replica.connection.has_ended]
        for index in ended:
            self.replicas[index].stop()
            self.replicas[index] = self.new_replica()
            self.replicas[index].list_all()
        return bool(ended)

    # What must be true.

    def check_write(self, call: Call) -> None:
        """Check a write when it is sent."""
        replica = self.sender(call)
        if replica is None:
            return
        pod = replica.pods.get(call.target.name)
        patch = sent_patch(call)
        if pod is not None and call.target.subresource != "status" and isinstance(patch, list):
            self._check_release(replica, call.target.name, patch)
        if pod is None or call.target.subresource != "status":
            return
        node_name = patch["status"].get("nominatedNodeName")
        uid = patch["metadata"]["uid"]
        if node_name and replica.nominated.get(uid) != node_name:  # else it is sent again
            self.check_nomination(replica, pod, node_name)
        if "nominatedNodeName" in patch["status"]:
            replica.counted[uid] = replica.nominated[uid] = node_name or ""

    def note_failure(self, call: Call) -> None:
        """Note that the room of a pod may be given back by now."""
        sender = self.sender(call)
        known = (self.server.pods(), {} if sender is None else sender.pods)
        pods = (pods.get(call.target.name) for pods in known)
        self.doubtful.update(pod["metadata"]["uid"] for pod in pods if pod is not None)

    def sender(self, call: Call) -> ReplicaModel | None:
        return next((each for each in self.replicas if each.connection is call.sender), None)

    def check_nomination(self, replica: ReplicaModel, pod: Object, node_name: str) -> None:
        node = replica.nodes.get(node_name)
        used = replica.cores_used(node_name, without=pod["metadata"]["uid"])
        name = pod["metadata"]["name"]
        if node is None:
            self.problems.append(f"{name} is nominated to {node_name}, which is not there")
        elif used + cpu_of(pod) > cores_of(node):
            self.problems.append(f"{name} is nominated to {node_name}, beside {used} cores")

    def _check_release(self, replica: ReplicaModel, name: str, patch: list[Object]) -> None:
        """Check that the scheduler knows where a pod is to go before it is handed to it."""
        stored = self.server.pods().get(name)
        is_current = replica.has_seen_all and not self.server.late
        if stored is None or not is_current or gates_of(stored) != [HOLD_GATE]:
            return
        released = _annotation_in(patch, RELEASED_ANNOTATION)
        nominated = nominated_in(stored)
        if released != nominated and (nominated or " " not in released):
            self.problems.append(f"{name}, nominated to `{nominated}`, is released: {released}")

    def judge(self, old: Object, new: Object) -> None:
        """Check what a write changes of a pod."""
        kept = [gate for gate in gates_of(old) if gate != HOLD_GATE]
        if [gate for gate in gates_of(new) if gate != HOLD_GATE] != kept:
            self.problems.append("a foreign gate was removed")
        for part in ("labels", "uid"):
            if old["metadata"].get(part) != new["metadata"].get(part):
                self.problems.append(f"{part} were changed")
        if old["metadata"]["name"] in self.refused:
            raise ApiFault(403, "denied the request: not now")

    def check(self) -> None:
        """Check what must be true whenever everybody rests."""
        now = self.loop.time()
        if self.is_in_trouble():
            self.trouble_until = now
        pods = self.server.pods()
        held = {
            pod["metadata"]["uid"]
            for name, pod in pods.items()
            if gates_of(pod) == [HOLD_GATE] and name not in self.refused
            if self.must_be_released(pod)
        }
        self.held_since = {uid: self.held_since.get(uid, now) for uid in held}
        for uid, since in self.held_since.items():
            bound = max(since + HOLD_SECONDS, self.trouble_until) + PATIENCE_SECONDS
            if now > bound:
                self.problems.append(f"{uid} is held for {now - since:g} s")
        unbound = sum(not (gates_of(pod) or node_of(pod)) for pod in pods.values())
        for replica in self.replicas:
            if replica.leads and now > self.trouble_until + 20 and _unbound(replica) > unbound:
                self.problems.append(f"{_unbound(replica)} count as unbound, {unbound} are")
            if replica.has_seen_all:
                self._check_phases(replica)
        assert not self.problems, self.problems

    def _check_phases(self, replica: ReplicaModel) -> None:
        """Check that no record says that a pod is to be bound which is bound or gone."""
        unbound = {
            pod["metadata"]["uid"] for pod in self.server.pods().values() if not node_of(pod)
        }
        for record in replica.unbound.pods:
            is_awaited = record.phase in {Phase.RELEASED, Phase.LOST}
            if is_awaited and record.pod.uid not in unbound:
                self.problems.append(f"{record.pod.key} is {record.phase}, and bound or gone")

    def is_in_trouble(self) -> bool:
        is_led = any(replica.leads and not replica.is_behind for replica in self.replicas)
        return bool(self.server.fates or self.server.late or self.refused) or not is_led

    def teardown(self) -> None:
        """Once faults have ended everything drains."""
        try:
            self.drain()
        finally:
            for replica in self.replicas:
                replica.stop()
            self.loop.close()
            for name in ("webhook", "asyncio"):
                logging.getLogger(name).removeHandler(self.log)

    def drain(self) -> None:
        if self.problems:
            return
        self.server.fates.clear()
        self.server.late.clear()
        self.refused.clear()
        self.scheduler.is_slow = False
        for replica in self.replicas:
            replica.is_behind, replica.is_ready = False, self.is_ready_at_the_end
        self.settle()
        self.lead(0)
        self.pass_time(HOLD_SECONDS + PATIENCE_SECONDS + 70.0, step=5.0)
        pods = self.server.pods()
        held = [
            name
            for name, pod in pods.items()
            if gates_of(pod) == [HOLD_GATE] and self.must_be_released(pod)
        ]
        assert not held, f"{held} are held"
        on_nodes = dict.fromkeys(self.server.nodes(), 0)
        for pod in pods.values():
            node = node_of(pod) or (nominated_in(pod) if gates_of(pod) else "")
            if runs(pod) and node in on_nodes:
                on_nodes[node] += cpu_of(pod)
        for replica in self.replicas:
            counted = {n: c for n, c in replica.view_cores().items() if n in on_nodes}
            assert counted == on_nodes, (counted, on_nodes)
            assert not any(each for each in replica.held if not each.is_unbounded)
            assert not (replica.leads and _unbound(replica)), "they are lost by now"


def _annotation_in(patch: list[Object], name: str) -> str:
    """Return an annotation that a JSON patch adds, "" for none."""
    for operation in (each for each in patch if each["op"] == "add"):
        if operation["path"] == "/metadata/annotations":
            return str(operation["value"].get(name, ""))
        if operation["path"].endswith(name.replace("/", "~1")):
            return str(operation["value"])
    return ""


class _Problems(logging.Handler):
    """Notes what should never be logged."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._problems = problems

    def emit(self, record: logging.LogRecord) -> None:
        self._problems.append(self.format(record))


def _unbound(replica: ReplicaModel) -> int:
    """Return how many released pods count as not bound yet."""
    return len(replica.unbound.pods.unbound())
