"""How fast expressions are evaluated for all nodes of a cluster.

Run as `python -m tests.bench.bench_cel [--nodes N]`. CPU time in microseconds for all nodes: with
nothing remembered, after one pod and one usage report have changed, and warm; and how many times
longer the closure takes that is asked of one ready-made node after the other in the same run.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from engine.cel import CelError, Program, compile_program
from engine.model import api
from engine.model.node import node_of
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.time import micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.policy import PolicyContext
from engine.policy.activation import NODE_FIELDS, node_value
from engine.policy.environment import Where, environment
from engine.policy.expressions import NodeExpression, node_condition, node_number
from engine.view import ClusterState, ClusterView
from engine.view.column_cache import ColumnCache
from engine.view.dictionary import Dictionaries
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW

_NOW = micros(NOW)
_ROUNDS = 15
_PODS_PER_NODE = 4
_ENVIRONMENT = environment(Where.RULES)
_ZONE = "node.labels['topology.kubernetes.io/zone']"
_TYPE = "node.labels['node.kubernetes.io/instance-type']"
_HOST = "node.labels['kubernetes.io/hostname']"

FILTERS: Final = {
    "label equals": f"{_ZONE} == 'eu-west-1a'",
    "label in list": f"{_TYPE} in ['m6i.4xlarge', 'c6i.8xlarge', 'r6i.2xlarge']",
    "label of the pod": f"{_ZONE} == pod.labels.zone",
    "label, if any": "has(node.labels.gpu) && node.labels.gpu == 'a100'",
    "label of every node": f"node.name.startsWith('node-1') || {_HOST}.matches('[05]$')",
    "free cpu and memory": (
        "node.allocatable.cpu - node.requested.cpu >= pod.requests.cpu"
        " && node.allocatable.memory - node.requested.memory >= pod.requests.memory"
    ),
    "taints": (
        "node.taints.all(t, t.effect == 'PreferNoSchedule'"
        " || pod.tolerations.exists(x, x.key == t.key))"
    ),
    "usage": "!has(node.usage) || node.usage.cpu / node.allocatable.cpu < 0.65",
    "quantity": (
        "quantity(node.annotations['node.alpha.kubernetes.io/ttl'])"
        ".isGreaterThan(quantity(pod.annotations.least))"
    ),
    "extended resource": "!('nvidia.com/gpu' in node.allocatable) || node.ready",
}
SCORES: Final = {
    "least usage": "100.0 * (1.0 - node.usage.memory / node.allocatable.memory)",
    "tiers": f"node.unschedulable ? 0.0 : {_TYPE}.startsWith('m6i') ? 10.0 : 5.0",
    "pods": "-double(node.podCount)",
    "balance": (
        "math.least((node.requested.cpu + pod.requests.cpu) / node.allocatable.cpu,"
        " (node.requested.memory + pod.requests.memory) / node.allocatable.memory)"
    ),
}
SLOW: Final = {
    "node selector": "pod.nodeSelector.all(k, node.labels[?k].orValue('') == pod.nodeSelector[k])",
    "own host": f"{_HOST} != pod.labels.host",
}


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    nodes = parser.parse_args().nodes
    print(
        f"machine: {os.cpu_count()} cpus, {platform.machine()}, python {platform.python_version()},"
        f" numpy {np.__version__}"
    )
    state, pods, usages = _cluster(nodes)
    print(f"{nodes:,} nodes, best of {_ROUNDS}       cold us  changed us    warm us  scalar/warm")
    for name, text in {**FILTERS, **SCORES, **SLOW}.items():
        expression = _expression(name, text)
        times = _times([expression], state, pods, usages)
        scalar = _scalar_time(expression.program, state.view()) / times[-1]
        print(f"  {name:24} {_told(times)} {scalar:12.0f}")
    rules = [_expression(name, text) for name, text in {**FILTERS, **SCORES}.items()]
    print(f"  {f'all {len(rules)} rules':24} {_told(_times(rules, state, pods, usages))}")


def _told(times: Sequence[float]) -> str:
    cold, changed, warm = times
    return f"{cold:12.0f} {changed:11.0f} {warm:10.1f}"


def _expression(name: str, text: str) -> NodeExpression:
    program = compile_program(text, _ENVIRONMENT)
    return (node_number if name in SCORES else node_condition)(program, _ENVIRONMENT)


def _cluster(nodes: int) -> tuple[ClusterState, list[Pod], list[NodeUsage]]:
    made = GeneratedCluster(nodes=nodes, pods=nodes * _PODS_PER_NODE)
    state = ClusterState()
    for text in made.nodes():
        state.set_node(node_of(msgspec.json.decode(text, type=api.Node)))
    usages = [
        usage_of_node_metric(msgspec.json.decode(text, type=api.NodeMetric))
        for text in made.node_metrics()
    ]
    for usage in usages:
        state.set_usage(usage)
    pods = [pod_of(msgspec.json.decode(text, type=api.Pod)) for text in made.pods()]
    for pod in pods:
        state.set_pod(pod, seen_at=_NOW)
    return state, [pod for pod in pods if pod.node_name], usages


def _request() -> PlacementRequest:
    pod = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "labels": {"zone": "eu-west-1b", "host": "x"},
            "annotations": {"least": "250"},
        },
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            "tolerations": [{"key": "dedicated"}, {"key": "spot", "operator": "Exists"}],
            "nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
    }
    raw = msgspec.json.encode(pod)
    return PlacementRequest(
        pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw, namespace_labels={}, request={}
    )


_REQUEST = _request()


def _fresh(view: ClusterView) -> ClusterView:
    """Return the same view without anything remembered."""
    caches = (ColumnCache(_ROUNDS), ColumnCache(_ROUNDS))
    return replace(view, caches=caches, dictionaries=Dictionaries(_ROUNDS), memory={})


def _with_changes(state: ClusterState, pods: list[Pod], usages: list[NodeUsage]) -> ClusterView:
    state.delete_pod(pods[0].key)
    state.set_pod(pods[0], seen_at=_NOW)
    state.set_usage(usages[0])
    return state.view()


def _times(
    expressions: Sequence[NodeExpression],
    state: ClusterState,
    pods: list[Pod],
    usages: list[NodeUsage],
) -> tuple[float, float, float]:
    """Return the times with nothing remembered, after a change, and warm."""
    return (
        _best(expressions, lambda: _fresh(state.view())),
        _best(expressions, lambda: _with_changes(state, pods, usages)),
        _best(expressions, state.view),
    )


def _best(expressions: Sequence[NodeExpression], prepare: Callable[[], ClusterView]) -> float:
    """Return the least time that expressions take for a view and a new request."""
    best = float("inf")
    for _ in range(_ROUNDS):
        view = prepare()
        context = PolicyContext(None, _REQUEST)
        for expression in expressions:  # what a pod is, is the same for all rules
            context.activation(expression.program)
        start = time.process_time_ns()
        for expression in expressions:
            expression.column(context, view, view.valid, _NOW)
        best = min(best, (time.process_time_ns() - start) / 1000)
    return best


def _scalar_time(program: Program, view: ClusterView) -> float:
    """Return how long it takes to ask one node after the other; the nodes are there already."""
    activation = PolicyContext(None, _REQUEST).activation(program)
    activations = [
        {**activation, "node": node_value(NODE_FIELDS, view, row, _NOW)} for row in range(len(view))
    ]
    start = time.process_time_ns()
    for one in activations:
        try:
            program.evaluate(one)
        except CelError:
            continue
    return (time.process_time_ns() - start) / 1000


if __name__ == "__main__":
    main()
