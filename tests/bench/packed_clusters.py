"""Clusters that are as good as full, on which the scheduler leaves pods without a node.

They are of the kind of arXiv 2511.08373, "Priority Matters": equal nodes, ReplicaSets of one to
four pods whose requests and priorities are drawn evenly, and nodes that offer what all pods
together request, or a little more or less.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec
from msgspec import structs

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.node import Node
from engine.model.pod import pod_of
from engine.model.time import micros
from engine.simulation import RecordedCluster, RecordedPod, SchedulerModel
from engine.view import ClusterState
from tests.bench.texts import NOW

_LEAST, _MOST = 100, 1_000  # millicores, and MiB
_REPLICAS = 4


@dataclass(frozen=True, slots=True)
class Kind:
    """What a cluster is drawn by."""

    nodes: int
    pods_per_node: int
    priorities: int
    utilization: int  # percent of all nodes that all pods request


def packed_cluster(kind: Kind, seed: int) -> RecordedCluster:
    """Return a cluster on which the model of the scheduler has placed the pods, or left them.

    All pods arrive at once, and so in order of their priority: nobody is preempted.
    """
    random, now = Random(seed), micros(NOW)
    pods = _pods(random, kind)
    offers = {"pods": 110}
    for resource in ("cpu", "memory"):
        requested = sum(each.pod.shape.requests[resource] for each in pods)
        offers[resource] = -(-requested * 100 // (kind.utilization * kind.nodes))
    state = ClusterState()
    for number in range(kind.nodes):
        name = f"node-{number}"
        labels = {"kubernetes.io/hostname": name}
        state.set_node(Node(name=name, labels=labels, allocatable=offers))
    scheduler = SchedulerModel(seed)
    recorded = []
    for each in sorted(pods, key=lambda it: -it.pod.priority):
        request = PlacementRequest(pod=each.pod, raw=each.raw, namespace_labels={}, request={})
        node = scheduler.place(request, state.view(), now)
        placed = structs.replace(each.pod, node_name=node, phase="Running" if node else "Pending")
        if node:
            state.set_pod(placed, seen_at=now)
        recorded.append(RecordedPod(placed, each.raw))
    return RecordedCluster.of(state.view(), recorded, now)


def _pods(random: Random, kind: Kind) -> list[RecordedPod]:
    count, sets = kind.nodes * kind.pods_per_node, 0
    pods: list[RecordedPod] = []
    while len(pods) < count:
        requests = {
            "cpu": f"{random.randint(_LEAST, _MOST)}m",
            "memory": f"{random.randint(_LEAST, _MOST)}Mi",
        }
        priority = random.randrange(kind.priorities)
        for replica in range(min(random.randint(1, _REPLICAS), count - len(pods))):
            name = f"set-{sets}"
            wire = {
                "metadata": {
                    "name": f"{name}-{replica}",
                    "namespace": "shop",
                    "uid": f"uid-{sets}-{replica}",
                    "ownerReferences": [{"kind": "ReplicaSet", "name": name, "uid": name}],
                },
                "spec": {
                    "priority": priority,
                    "containers": [{"name": "c", "resources": {"requests": requests}}],
                },
            }
            raw = msgspec.json.encode(wire)
            pods.append(RecordedPod(pod_of(msgspec.json.decode(raw, type=api.Pod)), raw))
        sets += 1
    random.shuffle(pods)
    return pods
