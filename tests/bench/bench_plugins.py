"""How much CPU each plugin takes of a decision.

Run as `python -m tests.bench.bench_plugins [--nodes N --pods P]`, each time in a process of its
own. Each call is for another pod, with all that depends on nodes alone remembered; so a call in a
cluster that changes takes somewhat more. Times depend on the machine: compare the ratios, which are
to one addition of two columns of the nodes in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from engine.model import api
from engine.model.node import node_of
from engine.model.pod import Pod, pod_of
from engine.model.time import micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.plugins import PLUGINS
from engine.view import ClusterState, ClusterView, PodSumProfile
from tests.bench.bench_view import machine
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW
from tests.bench.topology import (
    add_network,
    add_node_topology,
    peer,
    wanting_all,
    wanting_devices,
    with_zones,
    zone_of,
)

_NOW = micros(NOW)
_PODS = 200  # asked about, of as many workloads
_ROUNDS = 7
_BUDGET_US = 1_000  # of one call for 5,000 nodes
_IMAGES = 50
_IMAGE_BYTES = 500 << 20
_ZONES = (2, 4, 8)  # of a node
_STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
_NEW_PODS = 50  # of as many requests
_BALANCED: Mapping[str, Mapping[str, Any]] = {
    "LimitAware": {"strategy": "Balanced"},
    "LoadAware": {"strategy": "Balanced"},
    "NodeResourcesFit": {"scoringStrategy": {"type": "Balanced"}},
}
_DEVIATION = 8  # the part of its usage by which that of a node varies


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    size = parser.parse_args()
    print(machine())
    cluster = GeneratedCluster(nodes=size.nodes, pods=size.pods)
    calls: dict[str, Callable[[Pod, ClusterView], object]] = {}
    state = ClusterState()
    profiles: list[PodSumProfile] = []
    for name, plugin in PLUGINS.items():
        args = plugin.args.model_validate(_args(cluster).get(name, {}))
        profiles += plugin.sum_profiles(args)
        if plugin.filter:
            calls[f"{name}, filter"] = _filtering(plugin.filter(args))
        if plugin.score:
            calls[f"{name}, score"] = _scoring(plugin.score(args))
    for name, own in _BALANCED.items():
        args = PLUGINS[name].args.model_validate({**_args(cluster).get(name, {}), **own})
        score = PLUGINS[name].score
        assert score is not None
        calls[f"{name}, score Balanced"] = _scoring(score(args))
    state.track_sums(profiles)
    pods = _filled(state, cluster)
    _report(calls, pods, state.view())
    _report_zones(size.nodes)


def _args(cluster: GeneratedCluster) -> Mapping[str, Mapping[str, Any]]:
    """Return args that give each plugin all of its work; none where its defaults do."""
    models = {cluster.node_name(row): {"k1": 20, "k2": 0.03} for row in range(cluster.node_count)}
    return {
        "LimitAware": {"defaultLimitToAllocatableRatio": {"cpu": "400%", "memory": "150%"}},
        "NodeMetadata": {
            "metadataKey": "node.alpha.kubernetes.io/ttl",
            "metadataSource": "Annotation",
            "metadataType": "Number",
            "scoringStrategy": "Lowest",
        },
        "Peaks": {"nodePowerModel": models},
    }


def _filtering(rule: Any) -> Callable[[Pod, ClusterView], object]:  # noqa: ANN401 (a filter)
    return lambda pod, view: rule.filter(pod, view, _NOW)


def _scoring(rule: Any) -> Callable[[Pod, ClusterView], object]:  # noqa: ANN401 (a scorer)
    return lambda pod, view: rule.normalize(rule.score(pod, view, _NOW).values)


def _filled(state: ClusterState, cluster: GeneratedCluster) -> Sequence[Pod]:
    """Fill the state; return new pods, no two of one workload."""
    for text in cluster.node_metrics():
        state.set_usage(
            _varying(usage_of_node_metric(msgspec.json.decode(text, type=api.NodeMetric)))
        )
    new: dict[int, Pod] = {}
    for number, text in enumerate(cluster.pods()):
        wire = msgspec.json.decode(text, type=api.Pod)
        pod = pod_of(peer(wire, number))
        state.set_pod(pod, seen_at=_NOW)
        if len(new) < _PODS and not pod.is_daemon_set:
            new.setdefault(id(pod.shape), pod_of(wanting_all(wire)))
    images = sorted({image for pod in new.values() for image in pod.images})
    zones: set[str] = set()
    for row, text in enumerate(cluster.nodes()):
        node = node_of(msgspec.json.decode(text, type=api.Node))
        state.set_node(replace(node, images=_held(row, images)))
        add_node_topology(state, node)
        zones.add(zone_of(node))
    add_network(state, zones)
    return list(new.values())


def _held(row: int, images: Sequence[str]) -> tuple[api.ContainerImage, ...]:
    """Return which of these images the node of a row holds, as many as a kubelet reports."""
    picked = {images[(row + 7 * number) % len(images)] for number in range(_IMAGES)}
    return tuple(api.ContainerImage(names=(name,), size_bytes=_IMAGE_BYTES) for name in picked)


def _varying(usage: NodeUsage) -> NodeUsage:
    """Return a report as one with a history has it."""
    amounts = usage.usage or {}
    deviation = {name: amount // _DEVIATION for name, amount in amounts.items()}
    return replace(usage, average=amounts, deviation=deviation)


def _report(
    calls: Mapping[str, Callable[[Pod, ClusterView], object]],
    pods: Sequence[Pod],
    view: ClusterView,
) -> None:
    column = np.arange(len(view))
    plain = _microseconds(lambda _, __: column + column, pods, view)
    print(f"CPU of one call for {len(view):,} nodes, best of {_ROUNDS} rounds      us    ratio")
    print(f"  {'adding two columns':40} {plain:20.1f} {1:8.1f}")
    total = 0.0
    for name, call in calls.items():
        call(pods[0], view)  # so that what depends on nodes alone is remembered
        spent = _microseconds(call, pods, view)
        total += spent
        over = f", above {_BUDGET_US:,} us" if spent > _BUDGET_US else ""
        print(f"  {name:40} {spent:20.1f} {spent / plain:8.1f}{over}")
    print(f"  {'all of them':40} {total:20.1f} {total / plain:8.1f}")


def _report_zones(nodes: int) -> None:
    """Print what NodeResourceTopologyMatch takes of pods of two containers that want devices.

    First of pods that ask for what none before them did, then of pods whose like was asked about.
    """
    topology = PLUGINS["NodeResourceTopologyMatch"]
    print(f"NodeResourceTopologyMatch, {nodes:,} nodes     us, new request      us, known one")
    for count in _ZONES:
        view = with_zones(count, nodes).view()
        calls: dict[str, Callable[[Pod, ClusterView], object]] = {}
        for strategy in _STRATEGIES:
            args = topology.args.model_validate({"scoringStrategy": {"type": strategy}})
            if topology.filter and "filter" not in calls:
                calls["filter"] = _filtering(topology.filter(args))
            if topology.score:
                calls[strategy] = _scoring(topology.score(args))
        for name, call in calls.items():
            call(wanting_devices(0), view)
            new = min(
                _microseconds(call, [*map(wanting_devices, range(at, at + _NEW_PODS))], view, 1)
                for at in range(1, _ROUNDS * _NEW_PODS, _NEW_PODS)
            )
            known = _microseconds(call, [wanting_devices(1)] * _NEW_PODS, view)
            over = f", above {_BUDGET_US:,} us" if new > _BUDGET_US else ""
            print(f"  {f'{count} zones, {name}':34} {new:20.1f} {known:18.1f}{over}")


def _microseconds(
    call: Callable[[Pod, ClusterView], object],
    pods: Sequence[Pod],
    view: ClusterView,
    rounds: int = _ROUNDS,
) -> float:
    """Return the CPU time of one call, the best round's mean."""
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time_ns()
        for pod in pods:
            call(pod, view)
        best = min(best, (time.process_time_ns() - start) / len(pods) / 1e3)
    return best


if __name__ == "__main__":
    main()
