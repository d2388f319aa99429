"""Pods that come to a generated cluster: as requests, and what else happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, cycle, islice

import msgspec

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import Pod, pod_of
from engine.model.usage import NodeUsage
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW, PodTemplate, Workload

_ROLLOUTS = 20  # at a time
_REPORTS_TAKEN_UP = 21  # each quarter of a second, of 5,000 nodes that report once a minute
_DECISIONS_BETWEEN = 125  # in a quarter of a second, of 500


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

    def interleaved(self, templates: int) -> Iterator[PlacementRequest]:
        """Yield pods of so many workloads, or of all if there are fewer, by turns."""
        chosen = self._random.sample(self._workloads, min(templates, len(self._workloads)))
        for template, workload in cycle([(PodTemplate(each), each) for each in chosen]):
            yield self._request(template, workload)

    def spread_over(self, key: str) -> Iterator[PlacementRequest]:
        """Yield pods of one workload that must be even over the values of a node label."""
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"bench": "even"}},
        }
        for request in self.all_of_one_workload():
            wire = msgspec.json.decode(request.raw)
            wire["metadata"].setdefault("labels", {})["bench"] = "even"
            wire["spec"]["topologySpreadConstraints"] = [constraint]
            raw = msgspec.json.encode(wire)
            yield PlacementRequest(pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw)

    def _request(self, template: PodTemplate, workload: Workload) -> PlacementRequest:
        self._created += 1
        ordinal = workload.pods + self._created
        raw = template.pod(ordinal, node="", bound_at=NOW, phase="Pending")
        return PlacementRequest(pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw)


def reports_between(usages: Sequence[NodeUsage]) -> Iterator[Iterable[NodeUsage]]:
    """Yield the reports that are taken up between one decision and the next: all now and then."""
    endless = cycle(usages)
    for decision in count(1):
        yield islice(endless, 0 if decision % _DECISIONS_BETWEEN else _REPORTS_TAKEN_UP)


def running_in(cluster: GeneratedCluster) -> list[Pod]:
    """Return some pods that are there, in random order."""
    texts = islice(cluster.pods(), 0, None, max(1, cluster.pod_count // 5_000))
    pods = [pod_of(msgspec.json.decode(text, type=api.Pod)) for text in texts]
    random.Random(1).shuffle(pods)
    return pods
