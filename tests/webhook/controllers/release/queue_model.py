"""State machine of pods that wait for quota: two quotas share the nodes of a `HeldCluster`."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, EvictionMode
from engine.model.hold import HOLD_FOR_QUOTA, HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.quota import QuotaRequest, Reservation
from tests.fake_api_server.statuses import ApiFault
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.cluster_model import NAMES, HeldCluster
from tests.webhook.controllers.release.replica_model import ReplicaModel
from tests.webhook.controllers.release.scheduler_model import (
    cores_of,
    cpu_of,
    gates_of,
    node_of,
    runs,
)

BOUNDS = {"shop": (2, 5), "lab": (3, 8)}
"""Cores of min and max by namespace."""

_LONGEST_IDLE_SECONDS = 10.0
"""For which a pod may wait beside free room: a refused release is tried again after 5 s."""


def is_queued(pod: Object) -> bool:
    """Return whether a pod waits for quota."""
    annotations = pod["metadata"].get("annotations") or {}
    return HOLD_GATE in gates_of(pod) and HOLD_FOR_QUOTA in annotations.get(
        HOLD_REASONS_ANNOTATION, ""
    ).split(",")


def namespace_of(pod: Object) -> str:
    """Return the namespace of a pod."""
    return str(pod["metadata"]["namespace"])


class QueueCluster(HeldCluster):
    """Pods of namespaces with a quota, which all wait until it has room for them.

    The review of a release is modelled as exact, and sees what is stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle_since: dict[str, float] = {}

    def new_replica(self) -> ReplicaModel:
        replica = super().new_replica()
        for namespace, (least, most) in BOUNDS.items():
            replica.set_quota(
                ElasticQuota(
                    namespace=namespace,
                    name="team",
                    group=UPSTREAM_GROUP,
                    min={"cpu": 1000 * least},
                    max={"cpu": 1000 * most},
                    used={},
                    reclaim=EvictionMode.ON if self.reclaims else EvictionMode.OFF,
                    uid=f"uid-{namespace}",
                    version=1,
                )
            )
        return replica

    @initialize()
    def more_nodes(self) -> None:
        self.node_comes("node-c", 6)

    @rule(name=NAMES)
    def take_quota_reason(self, name: str) -> None:
        """Have a tenant say that a pod does not wait for quota; it is judged like a release."""
        pod = self.server.pods().get(name)
        if pod is not None and is_queued(pod):
            reasons = pod["metadata"]["annotations"][HOLD_REASONS_ANNOTATION].split(",")
            kept = ",".join(reason for reason in reasons if reason != HOLD_FOR_QUOTA)
            self.tenant_patches(
                name, {"metadata": {"annotations": {HOLD_REASONS_ANNOTATION: kept}}}
            )

    @rule(
        pods=st.lists(st.tuples(NAMES, st.integers(1, 4)), min_size=1, max_size=4),
        name=NAMES,
        cpu=st.integers(1, 4),
    )
    def overtake(self, pods: list[tuple[str, int]], name: str, cpu: int) -> None:
        """Create a pod that does not wait before those that do can be released."""
        for waiting, cores in pods:
            self._create(waiting, cores, 0, [HOLD_GATE])
        self.replicas[0].watch("nodes")
        self.replicas[0].watch("pods")
        self._create(name, cpu, 0, [])
        self.settle()

    def labels_of(self, name: str, gates: list[str]) -> tuple[str, dict[str, str]]:
        namespace = "shop" if name < "p-d" else "lab"
        _, annotations = super().labels_of(name, gates)
        if not gates:
            return namespace, annotations
        reasons = annotations.get(HOLD_REASONS_ANNOTATION, "placement")
        return namespace, {**annotations, HOLD_REASONS_ANNOTATION: f"{reasons},quota"}

    def admits(self, name: str, cpu: int, gates: list[str]) -> bool:
        """Judge a creation: of what waits it is only asked whether it can ever pass."""
        namespace, _ = self.labels_of(name, gates)
        used = 0 if HOLD_GATE in gates else self.charged()[namespace]
        if used + cpu > BOUNDS[namespace][1]:
            return False
        return HOLD_GATE in gates or self._lends(namespace, name, cpu)

    def _lends(self, namespace: str, name: str, cpu: int) -> bool:
        """Judge a pod that does not wait by min and by what all that wait leave."""
        replica, charged = self.replicas[0], self.charged()
        request = QuotaRequest(
            Reservation(self.next_uid(), name, {"cpu": 1000 * cpu, "pods": 1}), has_no_turn=True
        )
        used = {"cpu": 1000 * charged[namespace]}
        is_lent = replica.lending.judge(namespace, request, used).allowed
        room = sum(cores_of(node) for node in self.server.nodes().values())
        asked: Counter[str] = Counter()
        for pod in self.server.pods().values():
            if is_queued(pod) and cpu_of(pod) <= max(room, BOUNDS[namespace_of(pod)][0]):
                asked[namespace_of(pod)] += cpu_of(pod)
        waits = sum(min(n, BOUNDS[each][1] - charged[each]) for each, n in asked.items())
        is_within_min = charged[namespace] + cpu <= BOUNDS[namespace][0]
        # No min names a number of pods, so that is borrowed always: a node has room for many.
        may = room > 0 and (is_within_min or charged.total() + waits + cpu <= room)
        if replica.has_seen_all and is_lent is not may:
            self.problems.append(f"{name} is lent room: {is_lent}, where {waits} cores wait")
        return is_lent

    def charged(self) -> Counter[str]:
        """Return the cores that are charged to each namespace."""
        total: Counter[str] = Counter()
        for pod in self.server.pods().values():
            if runs(pod) and not is_queued(pod):
                total[namespace_of(pod)] += cpu_of(pod)
        return total

    def judge(self, old: Object, new: Object) -> None:
        super().judge(old, new)
        self.judge_quota(old, new)

    def judge_quota(self, old: Object, new: Object) -> None:
        namespace = namespace_of(old)
        if is_queued(old) and not is_queued(new):
            _, most = BOUNDS[namespace]
            if self.charged()[namespace] + cpu_of(old) > most:
                raise ApiFault(
                    403,
                    'admission webhook "quota.stowplan.dev" denied the request:'
                    " exceeded quota: team",
                )

    # What must be true.

    def must_be_released(self, pod: Object) -> bool:
        return not is_queued(pod) and super().must_be_released(pod)

    def check(self) -> None:
        for namespace, used in self.charged().items():
            if used > BOUNDS[namespace][1]:
                self.problems.append(f"{namespace} uses {used} cores")
        now = self.loop.time()
        if self.is_in_trouble() or not all(replica.is_ready for replica in self.replicas):
            self.idle_since = {}
        else:
            idle = self.idle()
            self.idle_since = {uid: self.idle_since.get(uid, now) for uid in idle}
        for uid, since in self.idle_since.items():
            calm_since = max(since, self.trouble_until + 80)
            if now > calm_since + _LONGEST_IDLE_SECONDS:
                self.problems.append(f"{uid} waits since {since:g} beside free room")
        super().check()

    def idle(self) -> set[str]:
        """Return the uids of the pods that wait though quota, cohort and a node have room."""
        pods = self.server.pods().values()
        if any(runs(pod) and not gates_of(pod) and not node_of(pod) for pod in pods):
            return set()  # it takes room, nobody knows where
        charged, free = self.charged(), self.free()
        waiting = [pod for pod in pods if is_queued(pod) and gates_of(pod) == [HOLD_GATE]]
        claims = {
            name: max(BOUNDS[name][0] - charged[name], 0) for name in map(namespace_of, waiting)
        }
        idle = set()
        for pod in waiting:
            name, cpu = namespace_of(pod), cpu_of(pod)
            least, most = BOUNDS[name]
            others = sum(claim for other, claim in claims.items() if other != name)
            room = sum(cores_of(node) for node in self.server.nodes().values())
            has_cohort_room = charged[name] + cpu <= least or charged.total() + others + cpu <= room
            is_within_max = charged[name] + cpu <= most
            if is_within_max and has_cohort_room and max(free.values(), default=0) >= cpu:
                idle.add(str(pod["metadata"]["uid"]))
        return idle

    def free(self) -> dict[str, int]:
        """Return the cores of each node that nobody has."""
        nodes = self.server.nodes()
        free = {name: cores_of(node) for name, node in nodes.items()}
        for pod in self.server.pods().values():
            if runs(pod) and node_of(pod) in free:
                free[node_of(pod)] -= cpu_of(pod)
        return free

    @rule(count=st.integers(1, 3))
    def finish_some(self, count: int) -> None:
        """Make room: pods that have run to their end."""
        running = [n for n, pod in self.server.pods().items() if node_of(pod) and runs(pod)]
        for name in running[:count]:
            self.finish(name)
