"""A generated cluster whose nodes change and come, for benchmarks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, cycle, islice

import msgspec

from engine.model import api
from engine.model.node import node_of
from engine.model.pod import pod_of
from engine.model.time import micros
from engine.model.usage import usage_of_node_metric
from engine.model.well_known import HOSTNAME_LABEL
from engine.view import ClusterState, ClusterView
from engine.view.cluster_view import Memo
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW

_NOW = micros(NOW)
_PODS_PER_NODE = 4
_CHANGED = 40  # nodes


class ChangingCluster:
    """A generated cluster whose nodes change."""

    def __init__(self, nodes: int) -> None:
        """Make one of so many nodes."""
        made = GeneratedCluster(nodes=nodes, pods=nodes * _PODS_PER_NODE)
        self.state = ClusterState()
        self._nodes = [node_of(msgspec.json.decode(text, type=api.Node)) for text in made.nodes()]
        for node in self._nodes:
            self.state.set_node(node)
        self._usages = {}
        for text in made.node_metrics():
            usage = usage_of_node_metric(msgspec.json.decode(text, type=api.NodeMetric))
            self.state.set_usage(usage)
            self._usages[usage.node_name] = usage
        self._pods = {}
        for text in made.pods():
            pod = pod_of(msgspec.json.decode(text, type=api.Pod))
            self.state.set_pod(pod, seen_at=_NOW)
            self._pods[pod.node_name] = pod
        self._rounds = count()
        self._likenesses = cycle(self._nodes)

    def change(self) -> None:
        """Let some nodes change, each with a pod and its usage report."""
        change = str(next(self._rounds))
        for node in self._nodes[:_CHANGED]:
            self.state.set_node(replace(node, labels={**node.labels, "change": change}))
            pod = self._pods.get(node.name)
            if pod is not None:
                self.state.delete_pod(pod.key)
                self.state.set_pod(pod, seen_at=_NOW)
            if node.name in self._usages:
                self.state.set_usage(self._usages[node.name])

    def add(self, nodes: int) -> None:
        """Let some nodes come, each like another one."""
        for like in islice(self._likenesses, nodes):
            name = f"new-{next(self._rounds)}"
            labels = {**like.labels, HOSTNAME_LABEL: name}
            self.state.set_node(replace(like, name=name, labels=labels))


def forgetful(view: ClusterView) -> ClusterView:
    """Return the same view without anything remembered."""
    return replace(view, memo=Memo(), scratch={})
