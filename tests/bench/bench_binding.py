"""How much CPU a pod costs the process that decides bindings: its events, decision and answer.

Run as `python -m tests.bench.bench_binding [--nodes N --pods P --bindings B --policies PATH ...]`.
Times are CPU time in microseconds and depend on the machine: compare the ratios, which are to one
score of LimitAware's kind for all nodes in plain Python, in the same run. The scheduler's choice
is a random node, so most pods are moved.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from engine.binding import BindingAction, BindingDecision, BindingLedger, encode_binding
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.policy_resource import PlacementAt
from engine.model.time import Micros, micros
from engine.pipeline import Scope, decide
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState
from tests.bench.arrivals import Arrivals
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import Timings, baseline_of, clock, loaded
from tests.bench.texts import NOW
from webhook.admission import wire
from webhook.binding import BindingDecider, BindingRecords, DeciderParts, SeenBindings
from webhook.binding.decider import AskedBinding
from webhook.cluster.watch.event_applier import EventApplier
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

_POLICIES = Path(__file__).parents[2] / "policies" / "balanced"
_NOW = micros(NOW)
_SCOPE = Scope()
_HOT_PERCENT = 80
_WARM_UP = 50
_STEPS = "the pod is seen", "the binding is decided", "the binding is seen"
_ALONE = "a decision alone"


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--bindings", type=int, default=1_000)
    parser.add_argument("--policies", type=Path, nargs="+", default=[_POLICIES])
    asked = parser.parse_args()
    policies = PolicySet(
        replace(policy, placement=replace(policy.placement, at=PlacementAt.BINDING))
        for policy in load_policies(asked.policies)
    )
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    bench = _Bench(loaded(cluster.objects(), policies), policies)
    requests = Arrivals(cluster.workloads).as_rollouts()
    for request in islice(requests, _WARM_UP):
        bench.bind(request)
    bench.timings = Timings(baseline_of(bench.state.view()))
    for request in islice(requests, asked.bindings):
        bench.bind(request)
    bench.show()


class _Bench:
    """The process that decides, and the scheduler that binds anywhere."""

    def __init__(self, state: ClusterState, policies: PolicySet) -> None:
        self.state = state
        self.timings = Timings(1)
        self._policies = policies
        self._nodes = [name for name in state.view().names if name]
        self._random = random.Random(1)
        ledger = BindingLedger(state, scope=_SCOPE)
        ledger.lead_begins(_NOW, None)
        seen = SeenBindings(lambda _: None, lambda: _NOW)
        seen.follow(ledger)
        prepare = EventApplier(state, now=lambda: _NOW, observers=[seen]).by_kind["", "Pod"].prepare
        assert prepare is not None  # that of pods is
        self._prepare: Callable[[Any, msgspec.Raw], Callable[[], None]] = prepare
        self._decider = BindingDecider(
            DeciderParts(
                placer=Placer(view=state.view, now=lambda: _NOW, scope=_SCOPE),
                ledger=ledger,
                seen=seen,
                policies=lambda: policies,
                counts=PolicyCounts(),
                records=BindingRecords(),
                hot_percent=_HOT_PERCENT,
                lead_seconds_left=lambda: 10.0,
                succeeds=lambda: False,
                hand_over=lambda: None,
                is_ready=lambda: True,
                seen_until=lambda: Micros(0),
                now=lambda: _NOW,
            )
        )

    def bind(self, request: PlacementRequest) -> None:
        """Let a pod be seen, bound somewhere by the scheduler, decided, and seen bound."""
        self._see(_STEPS[0], request.raw)

        start = clock()
        decide(request, self._policies, self.state.view(), _NOW, scope=_SCOPE)
        self.timings.take(_ALONE, start)

        node_name = self._decide(request)
        bound = msgspec.json.decode(request.raw)
        bound["spec"]["nodeName"] = node_name
        self._see(_STEPS[2], msgspec.json.encode(bound))

    def _see(self, step: str, raw: bytes) -> None:
        start = clock()
        self._prepare(msgspec.json.decode(raw, type=api.Pod), msgspec.Raw(raw))()
        self.timings.take(step, start)

    def _decide(self, request: PlacementRequest) -> str:
        """Return the node that a binding ends on."""
        pod, target = request.pod, self._random.choice(self._nodes)
        metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        sent = {"metadata": metadata, "target": {"kind": "Node", "name": target}}
        asked = AskedBinding(**metadata, node=target)

        def encode(decision: BindingDecision) -> bytes:
            return wire.json_patch(encode_binding(decision, sent))

        start = clock()
        made = self._decider.decide(asked, self._decider.note(asked), encode, in_haste=False)
        self.timings.take(_STEPS[1], start)
        assert made is not None  # the clock stands still, so it is not late
        self._decider.answered(made, is_lost=False)
        return made.decision.node_name

    def show(self) -> None:
        """Print the figures."""
        self.timings.show_heading()
        self.timings.add("all of a pod", *_STEPS)
        alone, decided = self.timings.median(_ALONE), self.timings.median(_STEPS[1])
        self.timings.show()
        print(f"  {'a binding, to a decision alone':32} {decided / alone:9.3f}")
        decisions = self._decider.counters.decided.items()
        moved = sum(count for (action, _), count in decisions if action is BindingAction.MOVE)
        print(f"  {'moved':32} {moved:9}")


if __name__ == "__main__":
    main()
