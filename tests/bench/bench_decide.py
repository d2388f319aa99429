"""How much CPU a decision takes, and what it costs to keep its cluster up to date meanwhile.

Run as `python -m tests.bench.bench_decide [--nodes N --pods P --decisions D --policies PATH ...]`,
each time in a process of its own. Times are CPU time in microseconds and depend on the machine, and
on what else it does at the moment: compare the ratios, which are to one score of LimitAware's kind
for all nodes in plain Python, in the same run.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from engine.model.decision import Decision, PlacementRequest
from engine.model.pod import Pod
from engine.model.time import micros
from engine.pipeline import Scope, decide, policies_for
from engine.placement import encode, hold_patch
from engine.policy import PolicySet, load_policies
from engine.report import decision_report, summary
from engine.view import ClusterState
from tests.bench.arrivals import Arrivals, reports_between, running_in
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import Timings, baseline_of, clock, loaded, resident_mib
from tests.bench.replica import bound_as_advised
from tests.bench.texts import NOW

_POLICIES = Path(__file__).parents[2] / "policies" / "balanced"
_NOW = micros(NOW)
_WARM_UP = 50
_RARE = 100  # decisions with a rest before each
_NODES_EXPLAINED = 10  # as many as the webhook keeps


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
    state = loaded(cluster.objects(), policies)
    print(f"{asked.nodes:,} nodes, {asked.pods:,} pods: {resident_mib():.0f} MiB resident")
    timings = Timings(baseline_of(state.view()))
    timings.show_heading()
    bench = _Bench(state, policies, timings)
    arrivals = Arrivals(cluster.workloads)
    bench.decisions("decide, cold shape", arrivals.each_of_another_workload(), asked.decisions)
    bench.decisions("decide, warm shape", arrivals.all_of_one_workload(), asked.decisions)
    rare = islice(arrivals.as_rollouts(), _WARM_UP + _RARE)
    bench.decisions("decide, five a second", rare, _RARE, rest=0.2)
    bench.wishes(islice(arrivals.as_rollouts(), _WARM_UP + asked.decisions))
    bench.what_follows(islice(arrivals.as_rollouts(), asked.decisions // 10))
    bench.mix(list(islice(arrivals.as_rollouts(), asked.decisions)), running_in(cluster))
    siblings = islice(arrivals.all_of_one_workload(), _WARM_UP + asked.decisions)
    bench.wishes(siblings, after_siblings=True)
    print(f"after all that: {resident_mib():.0f} MiB resident")


class _Bench:
    """The cluster and the policies that everything is timed on."""

    def __init__(self, state: ClusterState, policies: PolicySet, timings: Timings) -> None:
        self._state = state
        self._policies = policies
        self._timings = timings

    def decisions(
        self, name: str, requests: Iterator[PlacementRequest], most: int, *, rest: float = 0
    ) -> None:
        """Time decisions on a cluster that does not change.

        Args:
            name: of the figures.
            requests: to decide, after a few to warm up.
            most: how many.
            rest: seconds before each, in which others use the caches of the processor.
        """
        view = self._state.view()
        for request in islice(requests, _WARM_UP):
            decide(request, self._policies, view, _NOW)
        for request in islice(requests, most):
            time.sleep(rest)
            start = clock()
            decide(request, self._policies, view, _NOW)
            self._timings.take(name, start)
        self._timings.show()

    def wishes(self, requests: Iterable[PlacementRequest], *, after_siblings: bool = False) -> None:
        """Time decisions with what the pods ask for and without it, one after the other.

        Args:
            requests: to decide, the first few to warm up.
            after_siblings: whether each pod is bound before the next of its template is decided.
        """
        without = PolicySet(
            replace(policy, placement=replace(policy.placement, scheduler_scores=()))
            for policy in self._policies
        )
        when = ", after siblings" if after_siblings else ""
        kinds = {f"wishes included{when}": self._policies, f"without wishes{when}": without}
        for number, request in enumerate(requests):
            view = self._state.view()
            # By turns, for the first of a template makes the columns that both read.
            for name in reversed(kinds) if number % 2 else kinds:
                start = clock()
                decision = decide(request, kinds[name], view, _NOW)
                if number >= _WARM_UP:
                    self._timings.take(name, start)
            if after_siblings:
                bound = bound_as_advised(request.pod, decision)
                del view, decision  # so that the event need not copy the columns
                self._state.set_pod(bound, seen_at=_NOW)
        included, bare = map(self._timings.median, kinds)
        self._timings.show()
        print(f"  {'wishes included, to without':32} {included / bare:9.3f}")

    def what_follows(self, requests: Iterable[PlacementRequest]) -> None:
        """Time what is made of a decision."""
        view = self._state.view()
        steps: dict[str, Callable[[Decision, PlacementRequest], object]] = {
            "patch": lambda decision, request: encode(decision, request, view),
            "summary": lambda decision, _: summary(decision),
            f"explanation, {_NODES_EXPLAINED} nodes": lambda decision, _: decision_report(
                decision, most_nodes=_NODES_EXPLAINED
            ),
            "explanation, all nodes": lambda decision, _: decision_report(decision),
            "hold in place of a decision": lambda _, request: self._hold(request),
        }
        for request in requests:
            decision = decide(request, self._policies, view, _NOW)
            for name, step in steps.items():
                start = clock()
                step(decision, request)
                self._timings.take(name, start)
        self._timings.show()

    def _hold(self, request: PlacementRequest) -> None:
        """Do what a review does for a pod that is decided at its release."""
        policies_for(request, self._policies, _NOW, scope=Scope())
        hold_patch(request.pod, request.raw, reasons="placement", now=_NOW, seconds=60)

    def mix(self, requests: Sequence[PlacementRequest], running: Sequence[Pod]) -> None:
        """Time decisions while each pod is created and bound, others end, and nodes report."""
        state, timings = self._state, self._timings
        usages = [usage for usage in state.view().usages if usage is not None]
        reports = reports_between(random.Random(1).sample(usages, len(usages)))
        for request, ended in zip(requests, cycle(running)):
            start = clock()
            view = state.view()
            start = timings.take("a view after the events", start)
            decision = decide(request, self._policies, view, _NOW)
            timings.take("decide, in the mix", start)
            bound = bound_as_advised(request.pod, decision)
            del view, decision  # as an answer is sent before the next event is looked at

            start = clock()
            state.set_pod(request.pod, seen_at=_NOW)
            start = timings.take("event: a pod created", start)
            state.set_pod(bound, seen_at=_NOW)
            start = timings.take("event: a pod bound", start)
            state.delete_pod(ended.key)
            timings.take("event: a pod gone", start)
            for usage in next(reports):
                start = clock()
                state.set_usage(usage)
                timings.take("event: a usage report", start)
        timings.add("view and decide, in the mix", "a view after the events", "decide, in the mix")
        timings.show()


if __name__ == "__main__":
    main()
