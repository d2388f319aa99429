"""One process with the real release controller, and what its watches have shown it so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from engine.eviction import NodeFit
from engine.gang import DEFAULT_RESERVE_AFTER_SECONDS
from engine.model import api
from engine.model.elastic_quota import ElasticQuota, EvictionMode
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.time import SECOND, Micros
from engine.pipeline import Scope, policies_for
from engine.policy import PolicySet
from engine.quota.queueing import CohortLending, QueueRules
from engine.release import HeldPod
from engine.view import FRESH, ClusterState, ClusterView, Sum
from tests.fake_api_server.resources import Key
from tests.fake_api_server.store import Change, Object
from tests.webhook.controllers.release.gangs import controllers
from tests.webhook.controllers.release.memory_server import MemoryConnection, MemoryServer
from tests.webhook.controllers.release.reclaiming import evictions_beside
from tests.webhook.controllers.release.scheduler_model import (
    cpu_of,
    gates_of,
    node_of,
    nominated_in,
    runs,
)
from webhook.cluster.client.watched_objects import ConfigMapStore
from webhook.cluster.watch.event_applier import EventApplier
from webhook.controllers.eviction import Guards, RunningPods
from webhook.controllers.gang import GangOutcome
from webhook.controllers.release import (
    GangDecider,
    ReleaseContext,
    ReleasedPods,
    ReleaseRules,
)
from webhook.placement.explanations import Explanations
from webhook.placement.held_pods import GangMembers, HeldPods
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer
from webhook.quota import ObservedPods

HOLD_SECONDS, RECLAIM_AFTER_SECONDS = 20, 10


class ReplicaModel:
    """A process that watches, and releases while it leads.

    Args:
        server: the API server.
        loop: of its tasks, and its clock.
        policies: in force.
        now: the time of day.
        doubtful: uids of pods that may have given their room back, as a write has failed.
        reclaims: whether pods are evicted for others of other quotas.
        preempts: whether they are evicted for others of higher priority, too.
        reserve_after_seconds: after which gangs without room reserve it.

    Attributes:
        is_behind: whether its watches show nothing for now.
        is_ready: whether its policies are loaded.
        pods: as its watch has shown them, by name.
        nodes: the same of nodes.
        nominated: the nodes that it last nominated pods to, by uid.
        counted: the same, but none where the nomination was seen to change since.
        lending: judges new pods that do not wait.
        gangs: those that are held.
    """

    def __init__(  # noqa: PLR0913 - named parts, most of them left out
        self,
        server: MemoryServer,
        loop: asyncio.AbstractEventLoop,
        policies: PolicySet,
        now: Callable[[], Micros],
        doubtful: set[str],
        *,
        reclaims: bool = False,
        preempts: bool = False,
        reserve_after_seconds: float = DEFAULT_RESERVE_AFTER_SECONDS,
    ) -> None:
        self.is_behind = False
        self.is_ready = True
        self.pods: dict[str, Object] = {}
        self.nodes: dict[str, Object] = {}
        self.nominated: dict[str, str] = {}
        self.counted: dict[str, str] = {}
        self._doubtful = doubtful
        self.connection = MemoryConnection(server)
        self.held = HeldPods(now, hold_seconds=HOLD_SECONDS)
        self.unbound = ReleasedPods(clock=loop.time)
        self.annotations: dict[str, str] = {}
        self._server, self._loop, self._now = server, loop, now
        self._seen = {"pods": 0, "nodes": 0}
        state = ClusterState(leave_out_queued=True)
        self.gang_members = GangMembers()
        self.gang_outcomes: list[GangOutcome] = []
        self.running = RunningPods()
        observed = ObservedPods()
        self.lending = CohortLending(
            QueueRules(),
            state.view,
            state.assumed_pods,
            counted=state.requests,
            version_of=observed.version,
            clock=loop.time,
        )
        self._applier = EventApplier(
            state,
            now=now,
            observers=[self.held, self.unbound, self.gang_members, self.running, observed],
        )
        self._applier.state.track_sums(policies.sum_profiles)
        self._policies = policies
        release = self._release(reclaims=reclaims, preempts=preempts)
        self.records = release.pods
        explanations = Explanations(limit=10)
        placer = Placer(view=state.view, now=now, scope=Scope(), explanations=explanations)
        controller, self.gangs = controllers(
            release,
            GangDecider(placer, lambda: policies, release.nominations, PolicyCounts()),
            self.gang_members,
            is_ready=lambda: self.is_ready,
            count=self.gang_outcomes.append,
            reserve_after_seconds=reserve_after_seconds,
        )
        self._duties = [controller.run]
        config_map = ConfigMapStore(
            self.connection, namespace="system", name="guards", may_write=lambda: self.leads
        )
        self.guards = Guards(config_map, now)
        if reclaims:
            reclaiming = evictions_beside(
                release,
                running=self.running,
                guards=self.guards,
                policies=policies,
                is_ready=lambda: self.is_ready,
                after=Micros(RECLAIM_AFTER_SECONDS * SECOND),
                gangs=self.gangs,
            )
            self._duties.insert(0, reclaiming.run)
        self._task: asyncio.Task[None] | None = None

    def _release(self, *, reclaims: bool, preempts: bool) -> ReleaseContext:
        return ReleaseContext(
            connection=self.connection,
            identity="me",
            may_write=lambda: self.leads,
            annotate=self.annotations.__setitem__,
            state=self._applier.state,
            held=self.held,
            unbound=self.unbound,
            now=self._now,
            rules=ReleaseRules(reclaims=reclaims, preempts=preempts),
            clock=self._loop.time,
            fit=self._fit,
            preemption_of=self._preemption_of,
        )

    def _fit(self, held: HeldPod, view: ClusterView) -> NodeFit:
        return NodeFit(held.placement_request, self._policies, view, self._now(), Scope(), FRESH)

    def _preemption_of(self, held: HeldPod) -> EvictionMode:
        applied = policies_for(held.placement_request, self._policies, self._now(), scope=Scope())
        return applied[0].placement.preemption if applied else EvictionMode.OFF

    # As a process.

    @property
    def leads(self) -> bool:
        """Whether it releases."""
        return self._task is not None and not self.connection.has_ended

    def lead(self) -> None:
        """Begin to release."""
        self._task = self._loop.create_task(self._do_duties())

    async def _do_duties(self) -> None:
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                group.create_task(duty())

    def stop(self) -> None:
        """Release no longer; its view stays."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            self._loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            self._doubtful |= self.nominated.keys()
            self.nominated.clear()
            self.counted.clear()

    # What it sees.

    def watch(self, kind: str, most: int | None = None) -> None:
        """See the next changes of a kind, all if not said otherwise."""
        changes, seen = self._server.changes[kind], self._seen[kind]
        for change in changes[seen:] if most is None else changes[seen : seen + most]:
            self._seen[kind] += 1
            self._see(kind, change)

    def list_all(self) -> None:
        """See what there is now, as a process does that starts."""
        for kind in self._seen:
            self._seen[kind] = len(self._server.changes[kind])
            for key, raw in self._server.raw(kind).items():
                self._see(kind, Change(0, key, None, raw))

    @property
    def has_seen_all(self) -> bool:
        """Whether nothing happened that it has not seen."""
        return all(seen == len(self._server.changes[kind]) for kind, seen in self._seen.items())

    def _see(self, kind: str, change: Change) -> None:
        applier, raw = self._applier, change.after
        known = self.pods if kind == "pods" else self.nodes
        if raw is None:
            known.pop(change.key.name, None)
            if kind == "pods":
                applier.delete_pod(change.key.namespace, change.key.name)
            else:
                applier.state.delete_node(change.key.name)
        elif kind == "pods":
            self._note_pod(change.key, msgspec.json.decode(raw))
            applier.prepare_pod(msgspec.json.decode(raw, type=api.Pod), raw)()
        else:
            known[change.key.name] = msgspec.json.decode(raw)
            applier.node(msgspec.json.decode(raw, type=api.Node))

    def _note_pod(self, key: Key, pod: Object) -> None:
        before = self.pods.get(key.name, pod)
        if nominated_in(before) != nominated_in(pod):
            self.counted.pop(pod["metadata"]["uid"], None)
        self.pods[key.name] = pod

    def set_quota(self, quota: ElasticQuota) -> None:
        """See a quota."""
        self._applier.state.set_quota(quota)

    # What it counts.

    def cores_used(self, node_name: str, *, without: str) -> int:
        """Return the cores that are certainly taken or promised on a node, as it knows them."""
        return sum(
            cpu_of(pod)
            for pod in self.pods.values()
            if pod["metadata"]["uid"] != without and runs(pod) and self._node(pod) == node_name
        )

    def _node(self, pod: Object) -> str:
        annotations = pod["metadata"].get("annotations") or {}
        if node_of(pod):
            return node_of(pod)
        if not gates_of(pod) and RELEASED_ANNOTATION not in annotations:
            return ""
        uid = pod["metadata"]["uid"]
        return "" if uid in self._doubtful else self.counted.get(uid, nominated_in(pod))

    def view_cores(self) -> dict[str, int]:
        """Return the cores that its view counts on each node."""
        self._applier.state.release_assumed(self._now())
        view = self._applier.state.view()
        millis = view.amount(view.sums[Sum.REQUESTS], "cpu")
        return {name: int(millis[row]) // 1000 for name, row in view.rows.items()}
