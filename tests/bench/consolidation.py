"""What consolidating saves: node hours of a generated day, with an autoscaler, arm by arm.

Run as `python -m tests.bench.consolidation [--nodes N] [--cores N ...] [--seeds N ...]
[--karpenter] [--placement advice|binding] [--buffer N]`: the scheduler alone, `balanced` and
`consolidate`, on as many made-up clusters. Pods of 30 Deployments, of 0.1 to 4 cores, request half
of all cores and use half of that; two of the Deployments are not to be evicted. Nodes belong to
Cluster Autoscaler, or to Karpenter; it keeps room for N more of the largest pod.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from engine.model import api
from engine.model.disruption_budget import (
    DO_NOT_DISRUPT_ANNOTATION,
    NODE_POOL_LABEL,
    SAFE_TO_EVICT_ANNOTATION,
)
from engine.model.node import Node
from engine.model.pod import pod_of
from engine.model.time import micros
from engine.model.usage import NodeUsage, PodUsage, PodUsages
from engine.policy import load_policies
from engine.report import ArmPlacement, ArmReport
from engine.simulation import (
    Arm,
    RecordedCluster,
    RecordedPod,
    Simulation,
    generated_arrivals,
    placeholders,
    simulate,
    what_if,
)
from engine.view import ClusterState
from tests.bench.texts import NOW

_POLICIES = Path(__file__).parents[2] / "policies"
_DEPLOYMENTS, _KEPT = 30, 2
_REQUESTED = 0.5  # of all cores
_USED = 0.5  # of what is requested
_GI = 2**30


def recorded(*, nodes: int, sizes: Sequence[int], seed: int, karpenter: bool) -> RecordedCluster:
    """Return a made-up cluster; its nodes have any of some sizes, in cores."""
    random = np.random.default_rng(seed)
    state, now = ClusterState(), micros(NOW)
    cores = random.choice(sizes, nodes).tolist()
    for number, size in enumerate(cores):
        labels = {"kubernetes.io/hostname": f"node-{number}"}
        labels |= {NODE_POOL_LABEL: "default"} if karpenter else {}
        offers = {"cpu": 1_000 * size, "memory": 4 * _GI * size, "pods": 110}
        state.set_node(Node(name=f"node-{number}", labels=labels, allocatable=offers))
    pods = []
    left = iter(_pods(random, int(1_000 * _REQUESTED * sum(cores))))
    for on_node, size in enumerate(cores):
        room, used = int(1_000 * _REQUESTED * size), dict[str, PodUsage]()
        while room > 0 and (raw := next(left, None)) is not None:
            raw["spec"]["nodeName"] = f"node-{on_node}"
            text = msgspec.json.encode(raw)
            pod = pod_of(msgspec.json.decode(text, type=api.Pod))
            state.set_pod(pod, seen_at=now)
            pods.append(RecordedPod(pod, text))
            requests = pod.shape.requests
            room -= requests["cpu"]
            in_use = {name: int(_USED * it) for name, it in requests.items()}
            used[pod.key] = PodUsage(in_use, is_prod=True)
        usage = {
            name: sum(each.amounts[name] for each in used.values()) for name in ("cpu", "memory")
        }
        state.set_usage(
            NodeUsage(
                node_name=f"node-{on_node}", update_time=now, usage=usage, pods=PodUsages(used)
            )
        )
    return RecordedCluster.of(state.view(), pods, now)


def _pods(random: np.random.Generator, millicores: int) -> Iterator[dict[str, dict[str, object]]]:
    """Yield pods until so much is requested, those of Deployments mixed."""
    sizes = np.clip(random.lognormal(np.log(500), 1.0, _DEPLOYMENTS), 100, 4_000).astype(int)
    memory = (sizes * random.uniform(2, 6, _DEPLOYMENTS)).astype(int)  # MiB
    number = 0
    while millicores > 0:
        app = int(random.integers(_DEPLOYMENTS))
        millicores -= int(sizes[app])
        kept = {SAFE_TO_EVICT_ANNOTATION: "false", DO_NOT_DISRUPT_ANNOTATION: "true"}
        requests = {"cpu": f"{sizes[app]}m", "memory": f"{memory[app]}Mi"}
        yield {
            "metadata": {
                "name": f"app-{app}-{number}",
                "namespace": "shop",
                "uid": f"uid-{number}",
                "labels": {"app": f"app-{app}"},
                "annotations": kept if app < _KEPT else {},
                "ownerReferences": [{"kind": "ReplicaSet", "name": f"app-{app}", "uid": str(app)}],
            },
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": {"phase": "Running"},
        }
        number += 1


def day(
    cluster: RecordedCluster, arms: Sequence[Arm], seed: int, *, spare: int
) -> tuple[ArmReport, ...]:
    """Return how a generated day with an autoscaler goes, the scheduler alone first.

    Args:
        cluster: at the beginning.
        arms: the others.
        seed: of the day.
        spare: how many more of the largest pod there is to be room for.
    """
    largest = max(cluster.pods, key=lambda each: each.pod.shape.requests["cpu"])
    simulation = Simulation(
        scenario=what_if(cluster, (), generated_arrivals(cluster.pods, seed)),
        arms=arms,
        seed=seed,
        autoscale=True,
        buffer=placeholders(largest, spare),
    )
    return simulate(simulation).arms


def main() -> None:
    """Run the days and print their figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--cores", type=int, nargs="*", default=[8, 16])
    parser.add_argument("--seeds", type=int, nargs="*", default=[4, 5, 6])
    parser.add_argument("--karpenter", action="store_true")
    parser.add_argument("--placement", type=ArmPlacement, default=ArmPlacement.ADVICE)
    parser.add_argument("--buffer", type=int, default=0)
    parser.add_argument("--policies", nargs="*", default=["balanced", "consolidate"])
    given = parser.parse_args()
    arms = [
        Arm(
            name=Path(name).name,
            placement=given.placement,
            policies=load_policies([_POLICIES / name]),
        )
        for name in given.policies
    ]
    for seed in given.seeds:
        cluster = recorded(
            nodes=given.nodes, sizes=given.cores, seed=seed, karpenter=given.karpenter
        )
        for arm in day(cluster, arms, seed, spare=given.buffer):
            time = arm.node_time
            assert time is not None
            print(
                f"seed {seed}, {arm.name}: {time.node_hours:,} node hours,"
                f" {time.core_hours:,} core hours, {time.evictions:,} evictions, pods waited"
                f" {time.waiting_hours} h, the longest {time.longest_wait} s; hot {arm.hot_nodes}",
                flush=True,
            )


if __name__ == "__main__":
    main()
