"""What budgets are set for: ratios of two things that take turns, so that both have the same luck.

All times are CPU time. What a ratio is to, its floor, is one of:

- a plain score: the limits of all nodes weighed one by one in plain Python,
- the same on another cluster, or by another strategy,
- decoding the pods that an event or a cycle is about,
- a Python process that imports numpy.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import msgspec

from engine.batch import StartingGang, place_all, place_gang
from engine.model import api
from engine.model.decision import Decision, PlacementRequest
from engine.model.gang import GangTopology
from engine.model.pod import pod_of
from engine.model.time import micros
from engine.model.well_known import ZONE_LABEL
from engine.pipeline import Scope
from engine.placement import encode
from engine.policy import PolicySet, RuleContext, load_policies
from engine.report import decision_report, excerpt_of
from engine.simulation import SchedulerModel
from engine.view import WhatIf
from tests.bench import bench_start
from tests.bench.arrivals import Arrivals, running_in
from tests.bench.bench_cel import expression
from tests.bench.bench_policy_resources import policies_compiled
from tests.bench.bench_quota_queue import WaitingPods
from tests.bench.bench_reclaim import plan_for_a_full_node, situation_of, timed
from tests.bench.bench_simulate import SimulatedPods
from tests.bench.cel_rules import FILTERS, REQUEST, SCORES
from tests.bench.generate import GeneratedCluster
from tests.bench.load.reviews import Reviews
from tests.bench.measuring import baseline_of, clock, loaded, spare_the_collector
from tests.bench.replica import Replica
from tests.bench.shown_nodes import ShownNodes
from tests.bench.texts import NOW
from webhook.admission import wire
from webhook.admission.handler import pod_in
from webhook.admission.placement import PlacementReviews
from webhook.cluster import Cluster
from webhook.placement.explanations import Explanations
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

Spent: TypeAlias = Sequence[float]
"""CPU nanoseconds of a few calls."""

Pair: TypeAlias = tuple[Callable[[], Spent], Callable[[], Spent]]
"""What is measured, and its floor; each call of either measures a few."""

_NOW: Final = micros(NOW)
_POLICY: Final = Path(__file__).with_name("policy.yaml")
_BALANCED: Final = Path(__file__).parents[2] / "policies" / "balanced" / "policy.yaml"
_CALLS: Final = 12  # before it is the other's turn
_TURNS: Final = 4
_NODES_EXPLAINED: Final = 10  # as many as the webhook keeps
_EXPLANATIONS: Final = 256
_EVENTS: Final = 2_000  # different pods
_REVIEWS: Final = 500  # different ones
_BATCH: Final = 1_000  # pods
_EVEN: Final = 200  # pods
_GANGS, _MEMBERS = 100, 100  # of each
_BOUND_TEMPLATES: Final = 20
_ONE_ZONE: Final = GangTopology(ZONE_LABEL, required=True)
_CYCLES: Final = 3
_SIMULATED: Final = 1_000  # pods that arrive

_decode_pod = msgspec.json.Decoder(api.Pod).decode


def ratio(pair: Pair, turns: int = _TURNS) -> float:
    """Return the median of what is measured over that of its floor, in turns with it."""
    measured, floor = pair
    spent: list[float] = []
    floors: list[float] = []
    for _ in range(turns):
        floors += floor()
        spent += measured()
    return median(spent) / median(floors)


class _World:
    """A cluster of some size, with pods that arrive and end."""

    def __init__(self, nodes: int, pods: int) -> None:
        policies = load_policies([_POLICY])
        self.cluster = GeneratedCluster(nodes=nodes, pods=pods)
        self.state = loaded(self.cluster.objects(), policies)
        self.policies = policies
        self._replica = Replica(self.state, policies)
        self.arriving = Arrivals(self.cluster.workloads).as_rollouts()
        self._ended = cycle(running_in(self.cluster))

    def still(self) -> Spent:
        """Decide while nothing changes."""
        return self._replica.still(list(islice(self.arriving, _CALLS)))

    def amid_events(self) -> Spent:
        """Decide on a view of its own each time."""
        return self._replica.amid_events(list(islice(self.arriving, _CALLS)), self._ended)

    def plain_score(self) -> Spent:
        """Score all nodes in plain Python."""
        return [1e3 * baseline_of(self.state.view())]

    def patches(self) -> Spent:
        """Make patches of decisions."""
        view = self.state.view()
        return self._of_decisions(lambda decision, asked: encode(decision, asked, view))

    def explanations(self) -> Spent:
        """Explain decisions as somebody reads of them."""
        return self._of_decisions(
            lambda decision, _: decision_report(decision, most_nodes=_NODES_EXPLAINED)
        )

    def excerpts(self) -> Spent:
        """Make of decisions what the webhook keeps to explain them, once they have a patch."""
        view = self.state.view()
        spent = []
        for request in islice(self.arriving, _CALLS):
            decision = self._replica.decide(request, view)
            encode(decision, request, view)
            start = clock()
            msgspec.json.encode(excerpt_of(decision, _NODES_EXPLAINED))
            spent.append(clock() - start)
        return spent

    def _of_decisions(self, make: Callable[[Decision, PlacementRequest], object]) -> Spent:
        view = self.state.view()
        spent = []
        for request in islice(self.arriving, _CALLS):
            decision = self._replica.decide(request, view)
            start = clock()
            make(decision, request)
            spent.append(clock() - start)
        return spent


class _Strategy:
    """Decisions by the policy `balanced`, with any strategy of LimitAware and LoadAware."""

    def __init__(self, world: _World, strategy: str) -> None:
        text = _BALANCED.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, _BALANCED.name)
            file.write_text(text.replace("Balanced", strategy), encoding="utf-8")
            self._replica = Replica(world.state, load_policies([file]))
        self._arriving = world.arriving
        self._ended = cycle(running_in(world.cluster))

    def still(self) -> Spent:
        """Decide while nothing changes."""
        return self._replica.still(list(islice(self._arriving, _CALLS)))

    def amid_events(self) -> Spent:
        """Decide on a view of its own each time."""
        return self._replica.amid_events(list(islice(self._arriving, _CALLS)), self._ended)


class _Batches:
    """Many held pods that are decided together."""

    def __init__(self, world: _World) -> None:
        self._world = world
        arrivals = Arrivals(world.cluster.workloads)
        self._alike = list(islice(arrivals.all_of_one_workload(), _BATCH))
        self._even = list(islice(arrivals.spread_over(ZONE_LABEL), _EVEN))

    def of_one_template(self) -> Spent:
        """Decide for pods that differ in name alone."""
        return [self._decided(self._alike)]

    def of_even_pods(self) -> Spent:
        """Decide for pods of one template that must be even over zones."""
        return [self._decided(self._even)]

    def _decided(self, requests: Sequence[PlacementRequest]) -> int:
        view = self._world.state.view()
        start = clock()
        place_all(requests, self._world.policies, view, _NOW)
        return clock() - start


class _Gangs:
    """Gangs of pods of one template each, every one on the cluster as it is."""

    def __init__(self, world: _World, gangs: int) -> None:
        self._world = world
        pods = Arrivals(world.cluster.workloads).interleaved(gangs)
        members = list(islice(pods, gangs * _MEMBERS))
        self._gangs = [
            StartingGang(requests=members[number::gangs], topology=_ONE_ZONE)
            for number in range(gangs)
        ]

    def anywhere(self) -> Spent:
        """Find nodes for all members of each."""
        view, policies = self._world.state.view(), self._world.policies
        return [
            _spent(lambda: [place_all(gang.requests, policies, view, _NOW) for gang in self._gangs])
        ]

    def in_one_zone(self) -> Spent:
        """Find nodes in one zone for all members of each."""
        view, policies = self._world.state.view(), self._world.policies
        return [_spent(lambda: [place_gang(gang, policies, view, _NOW) for gang in self._gangs])]


class _Scheduler:
    """Pods of some templates that the model of the scheduler binds one after the other."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._arriving = Arrivals(world.cluster.workloads).interleaved(_BOUND_TEMPLATES)
        self._model = SchedulerModel(1)

    def bound(self) -> Spent:
        """Find nodes once every template is known; what is bound stays for this call."""
        what_if, spent = WhatIf(self._world.state.view()), []
        for request in islice(self._arriving, _BOUND_TEMPLATES + _CALLS):
            view, start = what_if.view, clock()
            node = self._model.place(request, view, _NOW)
            spent.append(clock() - start)
            if node:
                what_if.place(request.pod, view.rows[node])
        return spent[_BOUND_TEMPLATES:]


class _Plans:
    """A plan of reclaim in a cluster full of pods of quotas that borrow."""

    def __init__(self, nodes: int, pods: int) -> None:
        self._situation = situation_of(nodes, pods - pods % nodes, PolicySet())
        spare_the_collector()

    def whole(self) -> Spent:
        """Make it."""
        return [sum(self._steps())]

    def longest_steps(self) -> Spent:
        """Make it; what waits for it waits for a step."""
        return [max(self._steps())]

    def _steps(self) -> Spent:
        return timed(plan_for_a_full_node(self._situation))[1]


class _Rules:
    """The CEL rules of `bench_cel`, on a cluster."""

    def __init__(self, world: _World) -> None:
        self._state = world.state
        self._expressions = [expression(*item) for item in {**FILTERS, **SCORES}.items()]
        self._pod = next(pod for pod in running_in(world.cluster) if pod.node_name)
        self._usage = next(usage for usage in world.state.view().usages if usage is not None)

    def remembered(self) -> Spent:
        """Evaluate all rules while nothing changes."""
        return [self._evaluated() for _ in range(_CALLS)]

    def after_events(self) -> Spent:
        """Evaluate all rules after a pod and a report."""
        spent = []
        for _ in range(_CALLS):
            self._state.delete_pod(self._pod.key)
            self._state.set_pod(self._pod, seen_at=_NOW)
            self._state.set_usage(self._usage)
            spent.append(self._evaluated())
        return spent

    def _evaluated(self) -> int:
        view = self._state.view()
        context = RuleContext(REQUEST, view, _NOW)
        for each in self._expressions:  # what a pod is, is the same for all rules
            context.activation(each.program)
        start = clock()
        for each in self._expressions:
            each.column(context, view.valid)
        return clock() - start


class _PodEvents:
    """Pods that end and come again, in random order."""

    def __init__(self, world: _World) -> None:
        self._state = world.state
        every = max(1, world.cluster.pod_count // _EVENTS)
        texts = list(islice(world.cluster.pods(), 0, None, every))
        random.Random(1).shuffle(texts)
        self._texts = cycle(texts)
        self._batch: list[bytes] = []

    def decoded(self) -> Spent:
        """Decode what the next events are about."""
        self._batch = list(islice(self._texts, _CALLS))
        spent = []
        for text in self._batch:
            start = clock()
            _decode_pod(text)
            spent.append(clock() - start)
        return spent

    def applied(self) -> Spent:
        """Let a pod be gone, and let it be there: half of the time of both."""
        spent = []
        for pod in [pod_of(_decode_pod(text)) for text in self._batch]:
            start = clock()
            self._state.delete_pod(pod.key)
            self._state.set_pod(pod, seen_at=_NOW)
            spent.append((clock() - start) / 2)
        self._state.view()  # so that nobody else pays for the rows that changed
        return spent


class _WholeReviews:
    """Reviews from their first to their last byte, without a server."""

    def __init__(self, world: _World) -> None:
        self._known = Cluster(state=world.state, now=lambda: _NOW, is_live=True)
        counts = PolicyCounts()
        placer = Placer(
            view=self._known.view,
            now=self._known.now,
            scope=Scope(),
            clock=time.monotonic,
            explanations=Explanations(_EXPLANATIONS),
            assumed=self._known,
            rule_times=counts.rule_times,
        )
        self._review = PlacementReviews(
            placer, lambda: world.policies, time.monotonic, counts
        ).review
        self._bodies = iter(Reviews(world.cluster.workloads, _REVIEWS))

    def answered(self) -> Spent:
        """Answer with advice; nothing ever comes of the pods."""
        spent = []
        for body in islice(self._bodies, _CALLS):
            start = clock()
            request = wire.decode(body)
            wire.encode(self._review(request).response)
            spent.append(clock() - start)
            self._known.withdraw(pod_in(request))
        return spent


class _Queues:
    """Pods that wait for a tenth as many quotas, all of them without room."""

    def __init__(self, pods: int) -> None:
        self._waiting = WaitingPods(pods, max(1, pods // 10), free=0.0)
        self._waiting.cycle()

    def cycles(self) -> Spent:
        """Look for pods that may go, in the queue order."""
        return [_spent(self._waiting.cycle) for _ in range(_CYCLES)]

    def decoded(self) -> Spent:
        """Decode the pods."""
        return [_spent(self._waiting.decode) for _ in range(_CYCLES)]


def _spent(step: Callable[[], object]) -> float:
    start = clock()
    step()
    return clock() - start


def pairs(nodes: int, pods: int, *, gangs: int = _GANGS) -> dict[str, Pair]:
    """Return all that is measured on a cluster, on one of a tenth of its pods and a larger one."""
    world = _World(nodes, pods)
    few_pods = _World(nodes, pods // 10)
    more_nodes = _World(2 * nodes, pods // 5)  # as many pods on each as in `few_pods`
    batches, all_gangs = _Batches(world), _Gangs(world, gangs)
    balanced, plain = (_Strategy(world, name) for name in ("Balanced", "LeastAllocated"))
    scheduler = _Scheduler(world)
    plans = _Plans(nodes, pods * 2 // 3)
    rules, events, reviews = _Rules(world), _PodEvents(world), _WholeReviews(world)
    shown = ShownNodes(world.state, _NOW)
    queues = _Queues(pods // 15)
    simulated = SimulatedPods(nodes // 5, pods // 20, _SIMULATED)
    return {
        "a decision": (world.still, world.plain_score),
        "a view and a decision, amid events": (world.amid_events, world.plain_score),
        "a batch of 1,000 pods, one template": (batches.of_one_template, world.plain_score),
        "a batch of 200 pods, even over zones": (batches.of_even_pods, world.plain_score),
        "100 gangs of 100 pods": (all_gangs.anywhere, world.plain_score),
        "100 gangs of 100 pods, in one zone": (all_gangs.in_one_zone, world.plain_score),
        "a pod by the model of the scheduler": (scheduler.bound, world.plain_score),
        "a plan of reclaim among 100,000 pods": (plans.whole, world.plain_score),
        "the longest step of that": (plans.longest_steps, world.plain_score),
        "a patch": (world.patches, world.plain_score),
        "an explanation": (world.explanations, world.plain_score),
        "what is kept to explain one": (world.excerpts, world.plain_score),
        "a whole review": (reviews.answered, world.plain_score),
        "a report of all nodes": (shown.reported, world.plain_score),
        "a page of all nodes": (shown.whole, world.plain_score),
        "an update of that": (shown.update, world.plain_score),
        "14 CEL rules, remembered": (rules.remembered, world.plain_score),
        "14 CEL rules, after two events": (rules.after_events, world.plain_score),
        "a pod event": (events.applied, events.decoded),
        "a cycle of pods that wait for quota": (queues.cycles, queues.decoded),
        "200 policies of the API, compiled": (policies_compiled, world.plain_score),
        "a simulated pod, in two arms": (simulated.of_one_pod, simulated.plain_score),
        "the version on the command line": (bench_start.version, bench_start.numpy),
        "lint of one policy": (bench_start.lint, bench_start.numpy),
        "a decision, strategy Balanced": (balanced.still, plain.still),
        "amid events, strategy Balanced": (balanced.amid_events, plain.amid_events),
        "a decision, twice the nodes": (more_nodes.still, few_pods.still),
        "amid events, twice the nodes": (more_nodes.amid_events, few_pods.amid_events),
        "a decision, ten times the pods": (world.still, few_pods.still),
        "amid events, ten times the pods": (world.amid_events, few_pods.amid_events),
    }
