"""State machine of reclaim: what one of two quotas borrows, the other takes back within its min."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.model.hold import HOLD_GATE, RECLAIM_PLAN_ANNOTATION
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.memory_server import Call
from tests.webhook.controllers.release.queue_model import (
    BOUNDS,
    QueueCluster,
    is_queued,
    namespace_of,
)
from tests.webhook.controllers.release.replica_model import RECLAIM_AFTER_SECONDS, ReplicaModel
from tests.webhook.controllers.release.scheduler_model import (
    cpu_of,
    gates_of,
    node_of,
    nominated_in,
    runs,
)

_LONGEST_SECONDS = RECLAIM_AFTER_SECONDS + 40.0
"""For which a pod within min may wait for what others borrow: plans are made each 10 s."""


class ReclaimCluster(QueueCluster):
    """Two nodes, of which each quota may borrow more than the other's min leaves."""

    reclaims = True

    def __init__(self) -> None:
        super().__init__()
        self.evictions = 0
        self.promised_since: dict[str, float] = {}

    @initialize()
    def more_nodes(self) -> None:
        """Add none: both quotas together want more than there is."""

    @initialize(is_ready_at_the_end=st.booleans())
    def begin(self, is_ready_at_the_end: bool) -> None:  # noqa: FBT001 - drawn
        """Let one quota borrow all that there is."""
        super().begin(is_ready_at_the_end)
        for name, cpu in (("p-d", 4), ("p-e", 2), ("p-f", 2)):
            self.create(name, cpu, 0, [HOLD_GATE])

    @rule(name=st.sampled_from(["p-a", "p-b", "p-c"]), cpu=st.integers(1, 2))
    def want_min(self, name: str, cpu: int) -> None:
        """Let the other quota want what it is guaranteed, for as long as a reclaim takes."""
        self.create(name, cpu, 0, [HOLD_GATE])
        self.time_passes(RECLAIM_AFTER_SECONDS + 4.0)

    @rule()
    def borrow(self) -> None:
        """Let all that is free be borrowed."""
        self.hold([("p-d", 3), ("p-e", 2), ("p-f", 2)])

    def drain(self) -> None:
        super().drain()
        for name in ("p-a", "p-b"):
            self.want_min(name, 1)
        self.pass_time(_LONGEST_SECONDS, step=5.0)

    # What must be true of evictions.

    def check_write(self, call: Call) -> None:
        if not call.is_eviction:
            super().check_write(call)
        elif not call.dry_run:
            self.check_eviction(call)

    def check_eviction(self, call: Call) -> None:
        """Check an eviction when it is sent."""
        self.evictions += 1
        replica, pods = self.sender(call), self.server.pods()
        victim = pods.get(call.target.name)
        if replica is None or victim is None or replica.is_behind or self.server.late:
            return  # it may be about a pod that is another by now
        name, namespace = call.target.name, namespace_of(victim)
        least, _ = BOUNDS[namespace]
        if self.charged()[namespace] - cpu_of(victim) < least:
            self.problems.append(f"{name} is evicted, and {namespace} is below its min")
        preemptors = [pod for pod in pods.values() if is_reclaimed_for(pod)]
        if not any(self.may_be_evicted_for(pod, victim) for pod in preemptors):
            self.problems.append(f"{name} is evicted, and nobody has its room reserved")

    def may_be_evicted_for(self, preemptor: Object, victim: Object) -> bool:
        """Return whether a pod may be evicted for another at all."""
        return namespace_of(preemptor) != namespace_of(victim)

    def check_nomination(self, replica: ReplicaModel, pod: Object, node_name: str) -> None:
        """Check it unless others are still to be evicted for it."""
        if not any(
            held.pod.uid == pod["metadata"]["uid"] for held in replica.records.kept_for_reclaim()
        ):
            super().check_nomination(replica, pod, node_name)

    def free(self) -> dict[str, int]:
        """Return the cores of each node that nobody has, and that are reserved for nobody."""
        free = super().free()
        for pod in self.server.pods().values():
            if gates_of(pod) and nominated_in(pod) in free:
                free[nominated_in(pod)] -= cpu_of(pod)
        return free

    # What must come true.

    def check(self) -> None:
        now = self.loop.time()
        promised = set() if self._is_excused() else self.promised()
        self.promised_since = {uid: self.promised_since.get(uid, now) for uid in promised}
        for uid, since in self.promised_since.items():
            if now > max(since, self.trouble_until + 80) + _LONGEST_SECONDS:
                self.problems.append(f"{uid} is within min, and waits since {since:g}")
        super().check()

    def _is_excused(self) -> bool:
        """Return whether guards let nobody be evicted, or nobody knows where a pod goes."""
        pods = self.server.pods().values()
        guards = [replica.guards.state for replica in self.replicas if replica.leads]
        return (
            self.is_in_trouble()
            or not all(replica.is_ready for replica in self.replicas)
            or any(runs(pod) and not gates_of(pod) and not node_of(pod) for pod in pods)
            or any(state.failures or state.pauses for state in guards)
        )

    def promised(self) -> set[str]:
        """Return the uids of pods within min for which there is room, or somebody borrows some."""
        charged, free = self.charged(), self.free()
        return {
            str(pod["metadata"]["uid"])
            for pod in self.server.pods().values()
            if is_queued(pod) and gates_of(pod) == [HOLD_GATE]
            if charged[namespace_of(pod)] + cpu_of(pod) <= BOUNDS[namespace_of(pod)][0]
            if any(
                room + self._borrowed_on(node, pod) >= cpu_of(pod) for node, room in free.items()
            )
        }

    def _borrowed_on(self, node: str, preemptor: Object) -> int:
        """Return the cores on a node that pods of the other quota may be evicted from."""
        charged, cores = self.charged(), cpu_of(preemptor) * (nominated_in(preemptor) == node)
        for pod in self.server.pods().values():
            namespace = namespace_of(pod)
            if node_of(pod) != node or not runs(pod) or namespace == namespace_of(preemptor):
                continue
            if charged[namespace] - cpu_of(pod) >= BOUNDS[namespace][0]:
                charged[namespace] -= cpu_of(pod)
                cores += cpu_of(pod)
        return cores


def is_reclaimed_for(pod: Object) -> bool:
    """Return whether a held pod is nominated as others are evicted for it."""
    annotations = pod["metadata"].get("annotations") or {}
    is_reserved = bool(nominated_in(pod)) and RECLAIM_PLAN_ANNOTATION in annotations
    return bool(gates_of(pod)) and is_reserved
