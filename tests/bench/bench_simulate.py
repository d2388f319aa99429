"""How long a simulation takes: recorded pods under the scheduler alone, and under a policy.

Run as `python -m tests.bench.bench_simulate [--nodes N] [--pods N]`; the default is the
promise of `stowplan simulate`: 20,000 pods on 1,000 nodes in two arms. Seconds are of the processor
and depend on the machine; the ratio is of one pod in both arms to a plain score of all nodes, see
`baseline_of`. Where that takes 0.2 ms, 60 s are a ratio of 15.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from msgspec import Raw

from engine.model.time import micros
from engine.policy import load_policies
from engine.report import ArmPlacement, SimulationReport
from engine.simulation import (
    Arm,
    RecordedCluster,
    Simulation,
    recorded_arrivals,
    simulate,
    what_if,
)
from engine.view import ClusterView
from tests.bench.bench_view import machine
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import baseline_of, clock, spare_the_collector
from tests.bench.texts import NOW
from webhook.cli.pods import PodCollector
from webhook.cluster.object_file import read_json
from webhook.cluster.watch.event_applier import EventApplier

_POLICIES = Path(__file__).parents[2] / "policies" / "balanced"
_NANOSECONDS = 1e9


class SimulatedPods:
    """Recorded pods that arrive once more, under two arms.

    Args:
        nodes: of the recording.
        pods: of the recording, those of DaemonSets among them.
        most: how many arrive; None for all.
        placement: of the arm with policies.

    Attributes:
        view: the recorded cluster.
        simulation: what is simulated.
    """

    def __init__(
        self,
        nodes: int,
        pods: int,
        most: int | None = None,
        placement: ArmPlacement = ArmPlacement.ADVICE,
    ) -> None:
        collector = PodCollector()
        applier = EventApplier(observers=[collector])
        for text in GeneratedCluster(nodes=nodes, pods=pods).objects():
            for found in read_json(text, "generated"):
                by_kind = applier.by_kind[found.group, found.kind]
                wire = found.decode(by_kind.kind.wire)
                if by_kind.prepare is None:
                    by_kind.apply(wire)
                else:
                    by_kind.prepare(wire, Raw(text))()
        self.view: ClusterView = applier.finished().view()
        cluster = RecordedCluster.of(self.view, collector.pods.values(), micros(NOW))
        arrivals = recorded_arrivals(cluster.pods)
        scenario = what_if(cluster, (), replace(arrivals, pods=arrivals.pods[:most]))
        arm = Arm(name="ours", placement=placement, policies=load_policies([_POLICIES]))
        # A replay is compared with the recording, which is a third arm: as if something changed.
        scenario = replace(scenario, changes=("none",))
        self.simulation = Simulation(scenario=scenario, arms=[arm])
        spare_the_collector()

    def run(self) -> tuple[SimulationReport, float]:
        """Simulate; return the report and the nanoseconds of one pod in both arms."""
        start = clock()
        report = simulate(self.simulation)
        return report, (clock() - start) / report.arrivals.pods

    def of_one_pod(self) -> list[float]:
        """Return the nanoseconds of one pod in both arms."""
        return [self.run()[1]]

    def plain_score(self) -> list[float]:
        """Score all nodes in plain Python."""
        return [1e3 * baseline_of(self.view)]


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=20_000)
    given = parser.parse_args()
    print(machine())
    # DaemonSets are a part of the pods that are generated, and do not arrive.
    pods = SimulatedPods(given.nodes, given.pods + 6 * given.nodes, given.pods, ArmPlacement.ADVICE)
    (floor,) = pods.plain_score()
    report, spent = pods.run()
    seconds = spent * report.arrivals.pods / _NANOSECONDS
    print(
        f"{report.arrivals.pods:,} pods on {given.nodes:,} nodes, stock and advice:"
        f" {seconds:.1f} s, {spent / 1e6:.2f} ms for each, {spent / floor:.1f} plain scores"
        f" of {floor / 1e6:.2f} ms"
    )


if __name__ == "__main__":
    main()
