"""What happens in a cluster all the time: pods come and go, nodes and their agents report.

Of the events that are asked for, nodes send one heartbeat each in five minutes, as kubelets do; the
rest are pods. One life of a pod is five events: created, bound, running, and either told to end and
gone, or finished and gone. As many end as come, on the node of the one that ended, so the cluster
keeps its size and its unevenness. Beside these events each NodeMetric is renewed once a minute.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tests.bench.generate import GeneratedCluster
from tests.bench.texts import PodTemplate, Workload
from tests.fake_api_server import FakeApiServer

_Json: TypeAlias = dict[str, Any]

_BEAT_SECONDS = 0.02
_HEARTBEAT_SECONDS = 300  # of one node
_REPORT_SECONDS = 60  # of one NodeMetric
_LABEL_CHANGE_EVERY = 100  # heartbeats
_EVENTS_OF_A_LIFE = 5
_BOUND_AFTER, _RUNNING_AFTER, _GONE_AFTER = 0.2, 2.0, 3.0  # seconds
_FINISHES = 0.1  # of the pods that end; the others are deleted
_SILENT_EVERY = 100  # nodes; the generated cluster has as many whose agent is silent


class Running(NamedTuple):
    """A pod that may end.

    Attributes:
        node: where it runs.
    """

    namespace: str
    name: str
    node: str


class Churn:
    """Lets things happen in a cluster that an API server holds.

    Args:
        server: holds the generated cluster.
        cluster: as it was generated.
        running: those of its pods that may end.
        events: of pods and nodes per second.

    Attributes:
        happening: whether anything happens.
        events: how many events of pods and nodes there were.
    """

    def __init__(
        self,
        server: FakeApiServer,
        cluster: GeneratedCluster,
        running: Iterable[Running],
        events: float,
    ) -> None:
        self.happening = False
        self.events = 0
        self._server = server
        self._random = random.Random(2)
        names = [cluster.node_name(row) for row in range(cluster.node_count)]
        self._workloads = [one for one in cluster.workloads if one.kind == "ReplicaSet"]
        self._running = list(running)
        self._ordinal = itertools.count(1)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._gone: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self._come: dict[str, list[_Json]] = defaultdict(list)
        heartbeats = cluster.node_count / _HEARTBEAT_SECONDS
        self._streams = (
            _Stream(max(0.0, events - heartbeats) / _EVENTS_OF_A_LIFE, self._replace_a_pod),
            _Stream(heartbeats, self._heartbeat),
            _Stream(cluster.node_count / _REPORT_SECONDS, self._report),
        )
        self._next_heartbeat = enumerate(itertools.cycle(names))
        reporting = [name for row, name in enumerate(names) if row % _SILENT_EVERY != 99]
        self._next_report = itertools.cycle(reporting)

    async def run(self) -> None:
        """Let things happen for ever, while `happening` is set."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            now = time.monotonic()
            passed, before = now - before, now
            if self.happening:
                self.happen(passed, now)

    def happen(self, seconds: float, now: float) -> None:
        """Let happen what does in some seconds, and what was to follow by a monotonic moment."""
        for stream in self._streams:
            stream.flow(seconds)
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()

    # Pods.

    def _replace_a_pod(self) -> None:
        """Begin the end of some pod and the life of another one in its place."""
        at = self._random.randrange(len(self._running))
        self._running[at], self._running[-1] = self._running[-1], self._running[at]
        ended = self._running.pop()
        self._end(ended)
        self._begin(self._random.choice(self._workloads), ended.node)

    def _begin(self, workload: Workload, node: str) -> None:
        ordinal = workload.pods + next(self._ordinal)
        text = PodTemplate(workload).pod(
            ordinal, node="", bound_at=datetime.now(UTC), phase="Pending"
        )
        pod: _Json = msgspec.json.decode(text)
        status = pod["status"]
        conditions, started = status.pop("conditions"), status.pop("containerStatuses")
        status.pop("startTime")
        self._create(pod)

        def bind() -> None:
            pod["spec"]["nodeName"] = node
            stamp = _stamp()
            status["conditions"] = [
                {**one, "lastTransitionTime": stamp}
                for one in conditions
                if one["type"] == "PodScheduled"
            ]
            self._write(pod)
            self._later(_RUNNING_AFTER, run)

        def run() -> None:
            status.update(
                phase="Running",
                startTime=_stamp(),
                containerStatuses=started,
                conditions=[
                    *({**one, "lastTransitionTime": _stamp()} for one in conditions[:-1]),
                    *status["conditions"],
                ],
            )
            self._write(pod)
            name = pod["metadata"]["name"]
            self._running.append(Running(workload.namespace, name, node))
            self._come[node].append(_pod_metric(workload, name))

        self._later(_BOUND_AFTER, bind)

    def _end(self, one: Running) -> None:
        pod = self._server.read("pods", one.namespace, one.name)
        if self._random.random() < _FINISHES:
            pod["status"]["phase"] = "Succeeded"
        else:
            pod["metadata"]["deletionTimestamp"] = _stamp()
            pod["metadata"]["deletionGracePeriodSeconds"] = 30
        self._write(pod)
        self._gone[one.node].add((one.namespace, one.name))
        self._later(_GONE_AFTER, lambda: self._delete(one))

    def _delete(self, one: Running) -> None:
        self._server.delete("pods", one.namespace, one.name)
        self.events += 1

    def _create(self, pod: _Json) -> None:
        self._server.create(pod)
        self.events += 1

    def _write(self, obj: _Json) -> None:
        """Write an object over the stored one, whatever version that has."""
        obj["metadata"].pop("resourceVersion", None)
        self._server.replace(obj)
        self.events += 1

    def _later(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._serial), happen))

    # Nodes.

    def _heartbeat(self) -> None:
        number, name = next(self._next_heartbeat)
        node = self._server.read("nodes", "", name)
        for condition in node["status"]["conditions"]:
            condition["lastHeartbeatTime"] = _stamp()
        if number % _LABEL_CHANGE_EVERY == 0:
            node["metadata"]["labels"]["example.com/batch"] = str(number)
        self._write(node)

    def _report(self) -> None:
        """Renew the NodeMetric of the next node: other usage, and the pods that are there now."""
        name = next(self._next_report)
        metric = self._server.read("nodemetrics.slo.koordinator.sh", "", name)
        status = metric["status"]
        status["updateTime"] = _stamp()
        cpu = status["nodeMetric"]["nodeUsage"]["resources"]
        cpu["cpu"] = f"{int(int(cpu['cpu'].removesuffix('m')) * self._random.uniform(0.9, 1.1))}m"
        gone, come = self._gone.pop(name, set()), self._come.pop(name, [])
        reported = [*status["podsMetric"], *come]
        status["podsMetric"] = [
            one for one in reported if (one["namespace"], one["name"]) not in gone
        ]
        metric["metadata"].pop("resourceVersion")
        self._server.replace(metric)


class _Stream:
    """Something that happens at a steady rate."""

    def __init__(self, rate: float, happen: Callable[[], None]) -> None:
        self._rate = rate
        self._happen = happen
        self._owed = 0.0

    def flow(self, seconds: float) -> None:
        """Let it happen as often as it should have in the time that passed."""
        self._owed += self._rate * seconds
        while self._owed >= 1:
            self._owed -= 1
            self._happen()


def _pod_metric(workload: Workload, name: str) -> _Json:
    usage = {"cpu": f"{workload.cpu_limit // 4}m", "memory": f"{workload.mib_limit * 512}Ki"}
    return {
        "namespace": workload.namespace,
        "name": name,
        "priority": "koord-prod",
        "podUsage": {"resources": usage},
    }


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
