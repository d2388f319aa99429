"""How much CPU a decision takes, and what it costs to keep its cluster up to date meanwhile.

Run as `python -m tests.bench.bench_decide [--nodes N --pods P --decisions D --policies PATH ...]`,
each time in a process of its own. Times are CPU time in microseconds and depend on the machine, and
on what else it does at the moment: compare the ratios, which are to one score of LimitAware's kind
for all nodes in plain Python, in the same run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path

import msgspec
import numpy as np

import webhook.server  # noqa: F401 (a replica holds it beside the view)
from engine.explain import explanation, summary
from engine.model import api
from engine.model.decision import Decision
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.time import Micros, micros
from engine.model.usage import NodeUsage
from engine.pipeline import decide
from engine.placement import patch_for
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, ClusterView, Sum
from engine.view.axis import CPU, MEMORY
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW, PodTemplate, Workload
from webhook.cluster.intake import READERS, Intake
from webhook.cluster.json_objects import read_json

_POLICIES = Path(__file__).parents[2] / "policies" / "balanced"
_NOW = micros(NOW)
_GC_THRESHOLDS = (50_000, 20, 50)  # those of the server
_ROLLOUTS = 20  # at a time
_REPORTS_PER_DECISION = 83 / 500  # 5,000 nodes report once a minute, 500 pods are created a second
_WARM_UP = 50
_NODES_EXPLAINED = 10  # as many as the webhook keeps

_clock = time.process_time_ns


class Arrivals:
    """New pods of a cluster's workloads, and requests to create them."""

    def __init__(self, workloads: Sequence[Workload], seed: int = 1) -> None:
        self._workloads = [one for one in workloads if one.kind == "ReplicaSet"]
        self._random = random.Random(seed)
        self._created = 0

    def each_of_another_workload(self) -> Iterator[PlacementRequest]:
        """Yield pods no two of which are of one workload."""
        for workload in self._random.sample(self._workloads, len(self._workloads)):
            yield self._request(PodTemplate(workload), workload)

    def all_of_one_workload(self) -> Iterator[PlacementRequest]:
        """Yield pods that differ in name alone."""
        workload = self._random.choice(self._workloads)
        template = PodTemplate(workload)
        while True:
            yield self._request(template, workload)

    def as_rollouts(self) -> Iterator[PlacementRequest]:
        """Yield pods of a few workloads by turns, each of as many pods as it has."""
        going: list[tuple[PodTemplate, Workload, int]] = []
        while True:
            while len(going) < _ROLLOUTS:
                workload = self._random.choice(self._workloads)
                going.append((PodTemplate(workload), workload, workload.pods))
            template, workload, left = going.pop(self._random.randrange(len(going)))
            yield self._request(template, workload)
            if left > 1:
                going.append((template, workload, left - 1))

    def _request(self, template: PodTemplate, workload: Workload) -> PlacementRequest:
        self._created += 1
        ordinal = workload.pods + self._created
        raw = template.pod(ordinal, node="", bound_at=NOW, phase="Pending")
        return PlacementRequest(pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw)


class Timings:
    """CPU times of several things, in nanoseconds, printed as they are asked for."""

    def __init__(self, baseline: float) -> None:
        self._baseline = baseline
        self._spent: dict[str, list[int]] = {}

    def take(self, name: str, start: int) -> int:
        """Note the time since `start` under a name; return the time now."""
        now = _clock()
        self._spent.setdefault(name, []).append(now - start)
        return now

    def add(self, name: str, *parts: str) -> None:
        """Note the sums of other timings, one by one, under a name."""
        self._spent[name] = [sum(each) for each in zip(*map(self._spent.get, parts), strict=True)]

    def show(self) -> None:
        """Print the percentiles of all that was noted, and forget it."""
        for name, spent in self._spent.items():
            p50, p90, p99 = np.percentile(spent, (50, 90, 99)) / 1000
            ratio = p50 / self._baseline
            print(f"  {name:32} {p50:9.1f} {p90:9.1f} {p99:9.1f} {ratio:9.3f}", flush=True)
        self._spent.clear()


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--decisions", type=int, default=1_000, help="of each kind")
    parser.add_argument("--policies", type=Path, nargs="+", default=[_POLICIES])
    asked = parser.parse_args()
    print(
        f"machine: {os.cpu_count()} cpus, {platform.machine()}, python {platform.python_version()},"
        f" numpy {np.__version__}"
    )
    policies = load_policies(asked.policies)
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    state = _loaded(cluster, policies)
    gc.collect()
    print(f"{asked.nodes:,} nodes, {asked.pods:,} pods: {_resident_mib():.0f} MiB resident")
    baseline = _baseline(state.view())
    print(f"{f'baseline {baseline:.0f} us':34} {'p50':>9} {'p90':>9} {'p99':>9} {'ratio':>9}")

    bench = _Bench(state, policies, Timings(baseline))
    arrivals = Arrivals(cluster.workloads)
    bench.decisions("decide, cold shape", arrivals.each_of_another_workload(), asked.decisions)
    bench.decisions("decide, warm shape", arrivals.all_of_one_workload(), asked.decisions)
    bench.what_follows(islice(arrivals.as_rollouts(), asked.decisions // 10))
    bench.mix(list(islice(arrivals.as_rollouts(), asked.decisions)), _running(cluster))
    print(f"after all that: {_resident_mib():.0f} MiB resident")


class _Bench:
    """The cluster and the policies that everything is timed on."""

    def __init__(self, state: ClusterState, policies: PolicySet, timings: Timings) -> None:
        self._state = state
        self._policies = policies
        self._timings = timings

    def decisions(self, name: str, requests: Iterator[PlacementRequest], most: int) -> None:
        """Time decisions on a cluster that does not change."""
        view = self._state.view()
        for request in islice(requests, _WARM_UP):
            decide(request, self._policies, view, _NOW)
        for request in islice(requests, most):
            start = _clock()
            decide(request, self._policies, view, _NOW)
            self._timings.take(name, start)
        self._timings.show()

    def what_follows(self, requests: Iterable[PlacementRequest]) -> None:
        """Time what is made of a decision."""
        view = self._state.view()
        steps: dict[str, Callable[[Decision, PlacementRequest], object]] = {
            "patch": lambda decision, request: patch_for(decision, request, view),
            "summary": lambda decision, _: summary(decision),
            f"explanation, {_NODES_EXPLAINED} nodes": lambda decision, _: explanation(
                decision, most_nodes=_NODES_EXPLAINED
            ),
            "explanation, all nodes": lambda decision, _: explanation(decision),
        }
        for request in requests:
            decision = decide(request, self._policies, view, _NOW)
            for name, step in steps.items():
                start = _clock()
                step(decision, request)
                self._timings.take(name, start)
        self._timings.show()

    def mix(self, requests: Sequence[PlacementRequest], running: Sequence[Pod]) -> None:
        """Time decisions while each pod is created and bound, others end, and nodes report."""
        state, timings = self._state, self._timings
        usages = [usage for usage in state.view().usages if usage is not None]
        reports = _now_and_then(random.Random(1).sample(usages, len(usages)))
        for request, ended in zip(requests, cycle(running)):
            start = _clock()
            view = state.view()
            start = timings.take("a view after the events", start)
            decision = decide(request, self._policies, view, _NOW)
            timings.take("decide, in the mix", start)
            bound = self._bound(request.pod, decision)
            del view, decision  # as an answer is sent before the next event is looked at

            start = _clock()
            state.set_pod(request.pod, seen_at=_NOW)
            start = timings.take("event: a pod created", start)
            state.set_pod(bound, seen_at=_NOW)
            start = timings.take("event: a pod bound", start)
            state.delete_pod(ended.key)
            timings.take("event: a pod gone", start)
            for usage in next(reports):
                start = _clock()
                state.set_usage(usage)
                timings.take("event: a usage report", start)
        timings.add("view and decide, in the mix", "a view after the events", "decide, in the mix")
        timings.show()

    def _bound(self, pod: Pod, decision: Decision) -> Pod:
        """Return the pod as it is when the scheduler follows the advice; pending without any."""
        if not decision.candidates.size:
            return pod
        best = decision.names[int(decision.candidates[0])]
        return msgspec.structs.replace(pod, node_name=best, scheduled_at=Micros(_NOW))


def _now_and_then(usages: Sequence[NodeUsage]) -> Iterator[Iterable[NodeUsage]]:
    """Yield the reports that come between one decision and the next."""
    due, endless = 0.0, cycle(usages)
    while True:
        due += _REPORTS_PER_DECISION
        yield islice(endless, int(due))
        due -= int(due)


def _loaded(cluster: GeneratedCluster, policies: PolicySet) -> ClusterState:
    """Return the state of a cluster, read object by object as recorded files are."""
    intake = Intake()
    for text in cluster.objects():
        for found in read_json(text, "generated"):
            reader = READERS[found.group, found.kind]
            reader.take(intake, found.decode(reader.wire))
    state = intake.finished()
    state.track(policies.load_profiles)
    state.view()
    return state


def _running(cluster: GeneratedCluster) -> list[Pod]:
    """Return some pods that are there, in random order."""
    texts = islice(cluster.pods(), 0, None, max(1, cluster.pod_count // 5_000))
    pods = [pod_of(msgspec.json.decode(text, type=api.Pod)) for text in texts]
    random.Random(1).shuffle(pods)
    return pods


def _baseline(view: ClusterView) -> float:
    """Return how long it takes to score all nodes one by one by their limits, in microseconds."""
    offered = view.allocatable[[CPU, MEMORY]].T.tolist()
    limits = view.sums[Sum.LIMITS][[CPU, MEMORY]].T.tolist()
    spent = []
    for _ in range(20):
        start = _clock()
        for (cpu, memory), (cpu_limits, memory_limits) in zip(offered, limits, strict=True):
            cpu_left = (cpu - cpu_limits) * 100 // cpu
            memory_left = (memory - memory_limits) * 100 // memory
            _ = (cpu_left + memory_left) // 2
        spent.append(_clock() - start)
    return float(np.median(spent)) / 1000


def _resident_mib() -> float:
    """Return the resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
