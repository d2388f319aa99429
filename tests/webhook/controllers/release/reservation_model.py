"""State machine of reservations: gangs of two namespaces beside single pods that come and go."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.model.gang import WHEN_NO_ROOM_ANNOTATION
from engine.model.hold import HOLD_GATE
from tests.webhook.controllers.release.gang_model import GANGS, MINIMUM, GangCluster, gang_in
from tests.webhook.controllers.release.replica_model import ReplicaModel
from tests.webhook.controllers.release.scheduler_model import (
    cores_of,
    cpu_of,
    gates_of,
    node_of,
    nominated_in,
    runs,
)
from webhook.controllers.gang import GangState

SINGLES = ("s-a", "s-b", "s-c", "s-d", "s-e")

_RESERVE_AFTER_SECONDS = 5.0
_REPAIR_SECONDS = 20.0
"""In which a nomination is taken back that a node has no room for any more, or that is the last of
a gang which was released in part."""


class ReservationCluster(GangCluster):
    """Gangs that wait for room, and reserve it; single pods are there from the start."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered_at: dict[str, float] = {}  # when the first member was created, by gang
        self.kept_since: dict[str, float] = {}  # by uid, of members that are held and nominated
        self.crowded_since: dict[str, float] = {}  # by node
        self.divided_since: float | None = None

    def new_replica(self) -> ReplicaModel:
        return ReplicaModel(
            *(self.server, self.loop, self.policies, self.now, self.doubtful),
            reserve_after_seconds=_RESERVE_AFTER_SECONDS,
        )

    @initialize(cpu=st.lists(st.integers(1, 3), min_size=3, max_size=5))
    def singles_run(self, cpu: list[int]) -> None:
        """Create single pods, so that nodes are busy when gangs come."""
        for name, cores in zip(SINGLES, cpu, strict=False):
            self._create(name, cores, 0, [])
        self.settle()

    @rule(
        name=st.sampled_from(SINGLES),
        cpu=st.integers(1, 3),
        priority=st.sampled_from([0, 0, 0, 1]),
        gates=st.sampled_from([[HOLD_GATE], [HOLD_GATE], []]),
    )
    def single_comes(self, name: str, cpu: int, priority: int, gates: list[str]) -> None:
        self._create(name, cpu, priority, gates)
        self.settle()

    @rule(names=st.lists(st.sampled_from(SINGLES), min_size=1, max_size=3))
    def singles_end(self, names: list[str]) -> None:
        for name in names:
            pod = self.server.pods().get(name)
            if pod is not None and node_of(pod):
                self.server.delete("pods", name)
        self.settle()

    @rule(gang=st.sampled_from(sorted(MINIMUM)), cpu=st.integers(2, 3))
    def gather_for_long(self, gang: str, cpu: int) -> None:
        """Let a gang wait for as long as a reservation takes to begin."""
        self.gather(gang, cpu)
        self.time_passes(_RESERVE_AFTER_SECONDS + 2.0)

    def labels_of(self, name: str, gates: list[str]) -> tuple[str, dict[str, str]]:
        _, annotations = super().labels_of(name, gates)
        namespace = "lab" if GANGS.get(name) == "large" else "shop"
        return namespace, {
            key: value for key, value in annotations.items() if key != WHEN_NO_ROOM_ANNOTATION
        }

    # What must be true.

    def check(self) -> None:
        now = self.loop.time()
        if self.is_in_trouble() or not all(replica.is_ready for replica in self.replicas):
            self.trouble_until = now
        pods = self.server.pods()
        gangs = {gang_in(pod) for pod in pods.values()}
        self.gathered_at = {gang: self.gathered_at.get(gang, now) for gang in gangs}
        keeping = self.keeping()
        uids = {pods[name]["metadata"]["uid"]: name for each in keeping.values() for name in each}
        self.kept_since = {uid: self.kept_since.get(uid, now) for uid in uids}
        self.crowded_since = {n: self.crowded_since.get(n, now) for n in self._crowded(keeping)}
        in_part = [gang for gang, names in keeping.items() if len(names) < MINIMUM.get(gang, 0)]
        if len(in_part) < 2:
            self.divided_since = None
        elif self.divided_since is None:
            self.divided_since = now
        self._judge_times(uids, now)
        super().check()

    def _judge_times(self, kept: dict[str, str], now: float) -> None:
        """Check that what may not last has not."""
        begin = self.trouble_until
        for uid, since in self.kept_since.items():
            gang = GANGS.get(kept[uid], "")
            waited = since - self.gathered_at.get(gang, since)
            if now > max(since, begin) + waited + _REPAIR_SECONDS:
                self.problems.append(f"{kept[uid]} keeps room for longer than {gang} has waited")
        for name, since in self.crowded_since.items():
            if now > max(since, begin) + _REPAIR_SECONDS:
                self.problems.append(f"{name} has no room for those that are nominated to it")
        if self.divided_since is not None and now > max(self.divided_since, begin) + 12:
            self.problems.append("two gangs keep a part of their room")

    def _crowded(self, keeping: dict[str, list[str]]) -> list[str]:
        """Return the nodes that have less room than members that are nominated to them need."""
        pods = self.server.pods()
        reserved = {name for names in keeping.values() for name in names}
        crowded = []
        for node_name in {nominated_in(pods[name]) for name in reserved}:
            node = self.server.nodes().get(node_name)
            used = sum(
                cpu_of(pod)
                for name, pod in pods.items()
                if runs(pod)
                if node_of(pod) == node_name
                or (name in reserved and nominated_in(pod) == node_name)
            )
            if node is None or used > cores_of(node):
                crowded.append(node_name)
        return crowded

    def drain(self) -> None:
        super().drain()
        if self.problems:
            return
        # A gang that is incomplete keeps nothing.
        whole = [gang for gang in MINIMUM if self._held(gang) == MINIMUM[gang]]
        for gang in whole:
            self.server.delete("pods", next(name for name, of in GANGS.items() if of == gang))
        self.pass_time(20.0, step=1.0)
        assert not self.keeping(), f"{self.keeping()} keep room for gangs that are incomplete"

        # Beside room for each of them in turn, each starts.
        for name, pod in self.server.pods().items():
            if node_of(pod) or name in SINGLES:
                self.server.delete("pods", name)
        for name in ("node-a", "node-b", "node-c"):
            if name in self.server.nodes():
                self.server.delete("nodes", name)
            self.node_comes(name, 6)
        for gang in whole:
            self.gather(gang, 3)
        self.pass_time(60.0, step=1.0)
        waiting = [gang for gang in whole if self._held(gang)]
        assert not waiting, f"{waiting} wait beside free nodes"
        states = [each.gangs.counts[GangState.RESERVING] for each in self.replicas]
        assert not any(states), states

    def _held(self, gang: str) -> int:
        pods = self.server.pods().values()
        return sum(gang_in(pod) == gang and gates_of(pod) == [HOLD_GATE] for pod in pods)
