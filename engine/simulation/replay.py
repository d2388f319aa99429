"""One arm from its first pod to its last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np

from engine.model.time import SECOND
from engine.report import Crowd, HottestNode, Measure, NodeTime, Sample, owner_of
from engine.simulation.arms import ArmCluster, ArmDecider, Creation, Landing
from engine.simulation.arrivals import DAY_SECONDS, RESOURCES, Arrival, Arrivals, owner_name
from engine.simulation.autoscaler import SCAN_SECONDS, Autoscaler
from engine.simulation.bounds import NodeBounds, node_bounds
from engine.simulation.figures import (
    Leasts,
    NodeClock,
    Percents,
    hot_nodes,
    hottest,
    largest_crowd,
    least_spreads,
    percents,
    shown,
    sizes,
    spreads,
)
from engine.view import IntColumn

REPORT_SECONDS: Final = 60
"""Time between two measurements of a node; pods that arrive in between count by estimates."""

SAMPLE_SECONDS: Final = DAY_SECONDS // 96
"""Time between two samples, where pods end."""

_NOWHERE: Final = -1
_PROGRESS_EVERY: Final = 64  # pods


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """How the pods of an arm fared."""

    nodes: IntColumn  # for each arrival the index of the node that it last landed on, -1 for none
    # of the arrivals, in order: the first for one that landed, else the latest try
    landings: list[Landing]
    levels: Percents  # at the moment of the figures
    least_spreads: Leasts  # that these could have
    nodes_used: int  # nodes that run a simulated pod at that moment
    bounds: NodeBounds  # for the pods of that moment
    hottest: HottestNode | None  # of the hot nodes at that moment
    crowd: Crowd  # the most replicas of one owner on one node at that moment
    waiting: tuple[int, ...]  # arrivals without a node at that moment, by index
    samples: tuple[Sample, ...]  # over time
    node_time: NodeTime | None  # None where nodes neither come nor go


class _Moment(NamedTuple):
    levels: Percents
    nodes_used: int
    bounds: NodeBounds
    hottest: HottestNode | None
    crowd: Crowd
    waiting: tuple[int, ...]


class Replay:
    """Places pods in order of arrival, ends them, and tries those again that found no node."""

    def __init__(
        self,
        arrivals: Arrivals,
        cluster: ArmCluster,
        decider: ArmDecider,
        creation: Creation | None,
        *,
        nodes: tuple[str, ...],
        thresholds: Mapping[str, float],
        autoscaler: Autoscaler | None = None,
    ) -> None:
        self._arrivals = arrivals
        self._autoscaler = autoscaler
        self._clock = NodeClock()
        self._next_scan = SCAN_SECONDS * SECOND
        self._number_of = {each.pod.key: number for number, each in enumerate(arrivals.pods)}
        self._cluster = cluster
        self._decider = decider
        self._creation = creation
        self._names = nodes
        self._row_of = {name: row for row, name in enumerate(nodes)}
        self._thresholds = thresholds
        self._fixed, self._offered = percents(cluster, nodes), sizes(cluster, nodes)
        self._owners = {owner for each in arrivals.pods if (owner := owner_of(each.pod))}
        self._landed = np.full(len(arrivals.pods), _NOWHERE, np.int64)
        self._landings: list[Landing] = []
        self._waiting: dict[int, Arrival] = {}
        self._ends: list[tuple[int, int]] = []  # moment and number of an arrival, a heap
        self._samples: list[Sample] = []
        self._next_report = REPORT_SECONDS * SECOND
        self._next_sample = 0
        self._is_due = False  # whether those that wait are tried again once nodes are measured

    def run(self, progress: Callable[[int], None]) -> ReplayResult:
        """Place all pods."""
        figures_at, moment = self._arrivals.figures_at, None
        samples = any(arrival.ends_at is not None for arrival in self._arrivals.pods)
        for number, arrival in enumerate(self._arrivals.pods):
            if moment is None and arrival.at > figures_at:
                moment = self._moment()
            self._scale_until(arrival.at, samples=samples)
            self._advance(arrival.at, samples=samples)
            self._landings.append(self._try(number, arrival))
            if number % _PROGRESS_EVERY == _PROGRESS_EVERY - 1:
                progress(_PROGRESS_EVERY)
        progress(len(self._arrivals.pods) % _PROGRESS_EVERY)
        if samples:
            self._sample(self._arrivals.pods[-1].at)
        levels, nodes_used, bounds, hottest_node, crowd, waiting = moment or self._moment()
        return ReplayResult(
            nodes=self._landed,
            landings=self._landings,
            levels=levels,
            least_spreads=least_spreads(levels, self._fixed, self._offered),
            nodes_used=nodes_used,
            bounds=bounds,
            hottest=hottest_node,
            crowd=crowd,
            waiting=waiting,
            samples=tuple(self._samples),
            node_time=None if self._autoscaler is None else self._clock.figures(),
        )

    def _scale_until(self, at: int, *, samples: bool) -> None:
        """Let nodes come and go until a moment."""
        if self._autoscaler is None:
            return
        while self._next_scan <= at:
            moment, self._next_scan = self._next_scan, self._next_scan + SCAN_SECONDS * SECOND
            self._advance(moment, samples=samples)
            self._clock.pass_to(moment, self._autoscaler.nodes.values())
            self._scale(self._autoscaler, moment)
        self._clock.pass_to(at, self._autoscaler.nodes.values())

    def _scale(self, autoscaler: Autoscaler, at: int) -> None:
        """Let nodes come for pods that wait, and others go whose pods fit elsewhere."""
        hopeless = set()
        for number, arrival in [*self._waiting.items()]:
            # Of a pod that is denied the scheduler says nothing, so that no autoscaler sees it.
            is_seen = number in self._waiting and not self._landings[number].is_denied
            if not is_seen or arrival.pod.shape in hopeless:
                continue
            if autoscaler.add_for(arrival.pod, at):
                self._try_again(at)
            else:
                hopeless.add(arrival.pod.shape)
        autoscaler.refill(at)
        for _, pods in autoscaler.leaving(at):
            for pod in pods:
                number = self._number_of[pod.key]
                arrival = self._arrivals.pods[number]
                self._clock.evicted()
                self._settle(number, arrival, self._place_again(number, arrival), at)

    def _advance(self, at: int, *, samples: bool) -> None:
        """Let time pass until a moment."""
        while self._ends and self._ends[0][0] <= at:
            moment, number = heappop(self._ends)
            if samples:
                self._sample_before(moment)
            self._end(number, moment)
        if samples:
            self._sample_before(at)
        if at < self._next_report:
            return
        self._cluster.report()
        self._next_report = at + REPORT_SECONDS * SECOND
        if self._is_due:
            self._is_due = False
            self._try_again(at)

    def _try(self, number: int, arrival: Arrival) -> Landing:
        """Place a pod, or let it wait."""
        if self._creation is None:
            landing = self._decider.place(arrival, self._cluster)
        else:
            landing = self._creation.place(arrival, self._cluster, self._decider)
        self._settle(number, arrival, landing, arrival.at)
        if arrival.ends_at is not None and not landing.is_refused:
            heappush(self._ends, (arrival.ends_at, number))
        return landing

    def _settle(self, number: int, arrival: Arrival, landing: Landing, at: int) -> None:
        """Bind a pod to its node, or let it wait for one."""
        if landing.node in self._row_of:
            self._bind(number, arrival, landing.node)
        elif not landing.is_refused:
            self._waiting[number] = arrival
            self._clock.waits(number, at)
            self._is_due |= landing.is_denied

    def _try_again(self, at: int) -> None:
        """Try pods that wait, in order; of one shape until one of them finds no node again."""
        hopeless = set()
        for number, arrival in [*self._waiting.items()]:
            if arrival.pod.shape in hopeless:
                continue
            landing = self._place_again(number, arrival)
            if not landing.node:
                hopeless.add(arrival.pod.shape)
                self._is_due |= landing.is_denied
                continue
            del self._waiting[number]
            self._clock.waits_no_more(number, at)
            self._bind(number, arrival, landing.node)

    def _place_again(self, number: int, arrival: Arrival) -> Landing:
        """Return where a pod goes; one that is refused now is made again, and so waits."""
        landing = self._decider.place(arrival, self._cluster)
        if landing.is_refused:
            landing = landing._replace(is_refused=False, is_denied=True)
        self._landings[number] = landing
        return landing

    def _bind(self, number: int, arrival: Arrival, node: str) -> None:
        self._cluster.bind(arrival.pod, node, like=arrival.like)
        self._landed[number] = self._row_of[node]

    def _end(self, number: int, at: int) -> None:
        """End a pod, whether it runs or waits."""
        self._clock.waits_no_more(number, at)
        if self._waiting.pop(number, None) is None:
            key = self._arrivals.pods[number].pod.key
            self._cluster.remove(key, self._names[self._landed[number]])
            self._is_due = True

    def _moment(self) -> _Moment:
        levels = percents(self._cluster, self._names)
        used = sum(map(bool, self._cluster.running.values()))
        crowd = largest_crowd(self._cluster.pods(), self._owners)
        bounds = node_bounds(
            self._cluster.placed(), levels, self._fixed, self._offered, self._thresholds
        )
        return _Moment(levels, used, bounds, self._hottest(levels), crowd, tuple(self._waiting))

    def _hottest(self, levels: Percents) -> HottestNode | None:
        """Return the hottest of the hot nodes, and whose pods use most of it."""
        found = hottest(levels, self._thresholds)
        if found is None:
            return None
        row, resource = found
        at, key = RESOURCES.index(resource), (Measure.LOAD, resource)
        used, pods = Counter[str](), Counter[str]()
        for pod, load in self._cluster.placed():
            if pod.node_name == self._names[row]:
                raw = self._arrivals.pods[self._number_of[pod.key]].raw
                owner = owner_name(pod, raw) or f"{pod.namespace}/{pod.display_name}"
                used[owner] += int(load[at])
                pods[owner] += 1
        owner, amount = max(used.items(), key=lambda each: each[1], default=("", 0))
        return HottestNode(
            node=self._names[row],
            resource=resource,
            percent=shown(levels[key][row]),
            owner=owner,
            owner_pods=pods[owner],
            owner_percent=shown(100 * amount / self._offered[key][row]),
        )

    def _sample_before(self, moment: int) -> None:
        """Take the samples that are due before a moment."""
        while self._next_sample < moment:
            self._sample(self._next_sample)
            self._next_sample += SAMPLE_SECONDS * SECOND

    def _sample(self, moment: int) -> None:
        levels = percents(self._cluster, self._names)
        self._samples.append(
            Sample(
                seconds=moment // SECOND,
                running=sum(map(len, self._cluster.running.values())),
                waiting=len(self._waiting),
                hot_nodes=hot_nodes(levels, self._thresholds),
                spreads=spreads(levels),
            )
        )
