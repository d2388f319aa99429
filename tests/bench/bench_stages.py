"""Where the CPU of a review goes: each stage of it, on a cluster that changes meanwhile.

Run as `python -m tests.bench.bench_stages [--nodes N --pods P --reviews R --policies PATH ...]`,
each time in a process of its own; `--profile` shows functions in place of stages. Every review is
an AdmissionReview as the API server sends it, answered by the handler of the server: all of it but
TLS and HTTP. Between two reviews the last pod is seen, bound to the best node it was advised to
take, another pod ends and nodes report. `--pause` is the time between two reviews: what runs on
the machine meanwhile displaces their data from the caches of the processor.

Every other review is watched: the functions where stages begin are timed, less what they call of
other stages. So stages add up to the review, which the others, unwatched, are compared with. Times
are CPU time in microseconds; compare the ratios, as in `bench_decide`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import cProfile
import pstats
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final, TypeAlias

import jsonpatch
import msgspec
import uvloop
from aiohttp import StreamReader, web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

import engine.pipeline
import engine.placement.patch
import webhook.admission.placement
import webhook.admission.wire
import webhook.placement.placer
from engine.model import api
from engine.model.advice import advice_in
from engine.model.pod import pod_of
from engine.model.ranking import Ranking
from engine.model.request import PlacementRequest
from engine.model.time import Micros, micros
from engine.pipeline import Scope
from engine.policy import FilterRule, PolicySet, ScoreRule, load_policies
from engine.view import ClusterState
from tests.bench.arrivals import Arrivals, reports_between, running_in
from tests.bench.bench_view import machine
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import Timings, baseline_of, clock, loaded
from tests.bench.texts import NOW
from webhook.admission.concurrency_limiter import ConcurrencyLimiter
from webhook.admission.handler import ReviewHandler, ReviewLimits
from webhook.admission.placement import PlacementReviews
from webhook.cluster import Cluster
from webhook.metrics import Metrics
from webhook.placement.explanations import Explanations
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts

_POLICY = Path(__file__).with_name("policy.yaml")
_NOW = micros(NOW)
_WARM_UP = 100
_EXPLANATIONS = 256  # kept, as by default
_FUNCTIONS_TOLD = 45
_UNWATCHED = "a whole review, unwatched"
_SHELL = "turn, deadline, counters"
_CREATE = {
    "kind": {"group": "", "version": "v1", "kind": "Pod"},
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
    "requestResource": {"group": "", "version": "v1", "resource": "pods"},
    "operation": "CREATE",
    "userInfo": {
        "username": "system:serviceaccount:kube-system:replicaset-controller",
        "uid": "00000000-0000-4000-8000-000000000000",
        "groups": ["system:serviceaccounts", "system:authenticated"],
    },
    "oldObject": None,
    "dryRun": False,
    "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
}

_Stage: TypeAlias = tuple[str, object, str]

_STAGES: Final[tuple[_Stage, ...]] = (
    ("decode", webhook.admission.wire, "decode"),
    ("decode", webhook.admission.wire.AdmissionRequest, "pod"),
    ("view", Cluster, "withdraw"),
    ("view", Cluster, "view"),
    ("match", PolicySet, "match"),
    ("filters", FilterRule, "outcome"),
    ("scores", ScoreRule, "outcome"),
    ("ranking", Ranking, "best"),
    ("the rest of the decision", webhook.placement.placer, "decide"),
    ("summary", engine.pipeline, "summary"),
    ("patch", engine.placement, "encode"),
    ("patch, tried", engine.placement.patch, "ensure_applies"),
    ("encode", webhook.admission.wire, "allowed"),
    ("encode", webhook.admission.wire, "encode"),
    ("explanation", webhook.placement.placer, "excerpt_of"),
    ("assumed", Cluster, "assume"),
    ("the rest of placement", PlacementReviews, "review"),
)
"""Stage by stage, the functions that begin it: where they are looked up, and their name there."""


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--reviews", type=int, default=2_000)
    parser.add_argument("--policies", type=Path, nargs="+", default=[_POLICY])
    parser.add_argument("--pause", type=float, default=0, help="seconds before each review")
    parser.add_argument("--profile", action="store_true", help="show functions, not stages")
    asked = parser.parse_args()
    print(machine())
    policies = load_policies(asked.policies)
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    state = loaded(cluster.objects(), policies)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        bench = _Bench(cluster, state, policies, () if asked.profile else _STAGES, asked.pause)
        how = bench.profiled if asked.profile else bench.by_stage
        runner.run(how(asked.reviews))


class _Stopwatch:
    """Times functions while it is on, each without what it calls of the others."""

    def __init__(self) -> None:
        self.on = False
        self._spent: dict[str, int] = defaultdict(int)
        self._inner = [0]  # what others took of each of the calls that are going on

    def taken(self) -> dict[str, int]:
        """Return the time each stage took, and forget it."""
        taken, self._spent = self._spent, defaultdict(int)
        return taken

    def watch(self, stage: str, place: object, name: str) -> None:
        """Put a function that tells its time in the place of one."""
        function: Callable[..., Any] = getattr(place, name)

        @wraps(function)
        def watched(*args: object, **kwargs: object) -> object:
            if not self.on:
                return function(*args, **kwargs)
            self._inner.append(0)
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                whole = clock() - start
                self._spent[stage] += whole - self._inner.pop()
                self._inner[-1] += whole

        setattr(place, name, watched)


class _Bench:
    """A webhook on a cluster that changes, and the reviews it gets."""

    def __init__(
        self,
        cluster: GeneratedCluster,
        state: ClusterState,
        policies: PolicySet,
        stages: Iterable[_Stage],
        pause: float,
    ) -> None:
        self._pause = pause
        self._watch = _Stopwatch()
        for stage in stages:  # before anyone takes hold of its function
            self._watch.watch(*stage)
        known = Cluster(state=state, now=lambda: _NOW, is_live=True)
        placer = Placer(
            view=known.view,
            now=known.now,
            scope=Scope(),
            encode=engine.placement.encode,
            clock=time.monotonic,
            explanations=Explanations(_EXPLANATIONS),
            assumed=known,
        )
        # Hours pass between two reviews: no decision is shared.
        hours = count(step=3_600.0)
        placement = PlacementReviews(placer, lambda: policies, lambda: next(hours), PolicyCounts())
        self._handler = ReviewHandler(
            "mutate",
            placement.review,
            fails_open=True,
            limits=ReviewLimits(default_timeout_seconds=10, deadline_fraction=0.6),
            limiter=ConcurrencyLimiter(128, time.monotonic),
            metrics=Metrics(),
            clock=time.monotonic,
        )
        self._state = state
        self._timings = Timings(baseline_of(state.view()))
        self._arrivals = Arrivals(cluster.workloads).as_rollouts()
        self._gone = cycle(running_in(cluster))
        usages = [usage for usage in state.view().usages if usage is not None]
        self._reports = reports_between(random.Random(1).sample(usages, len(usages)))

    async def by_stage(self, reviews: int) -> None:
        """Print how long each stage takes, and all of them beside an unwatched review."""
        for _ in range(_WARM_UP):
            await self._reviewed()
        for number in range(reviews):
            self._watch.on = number % 2 == 0
            spent = await self._reviewed()
            if not self._watch.on:
                self._timings.note(_UNWATCHED, spent)
                continue
            self._watch.on = False
            stages = self._watch.taken()
            for stage in dict.fromkeys(stage for stage, _, _ in _STAGES):
                self._timings.note(stage, stages[stage])
            self._timings.note(_SHELL, spent - sum(stages.values()))
            self._timings.note("all stages", spent)
        self._timings.show_heading()
        self._timings.show()

    async def profiled(self, reviews: int) -> None:
        """Print in which functions the time is spent."""
        for _ in range(_WARM_UP):
            await self._reviewed()
        profile = cProfile.Profile(clock, 1e-9)
        for _ in range(reviews):
            await self._reviewed(profile)
        stats = pstats.Stats(profile)
        print(f"of {reviews} reviews, each somewhat slower for being looked at:")
        stats.strip_dirs().sort_stats("tottime").print_stats(_FUNCTIONS_TOLD)

    async def _reviewed(self, profile: cProfile.Profile | None = None) -> int:
        """Have a pod reviewed and let it be created; returns the CPU time of the review."""
        asked = next(self._arrivals)
        pod = _as_sent(asked.object)
        request = _posted(pod, asked.pod.namespace, uid=asked.pod.uid)
        await asyncio.sleep(self._pause)
        if profile is not None:
            profile.enable()
        start = clock()
        response = await self._handler.handle(request)
        spent = clock() - start
        if profile is not None:
            profile.disable()
        self._let_things_happen(_patched(pod, response), asked)
        return spent

    def _let_things_happen(self, created: dict[str, Any], asked: PlacementRequest) -> None:
        """Let a pod be seen and bound, another one end, and some nodes report."""
        created["metadata"] |= {"name": asked.pod.name, "uid": asked.pod.uid}
        pod = pod_of(msgspec.convert(created, api.Pod))
        self._state.set_pod(pod, seen_at=_NOW)
        advice = advice_in(pod.annotations)
        if advice is not None and advice.nodes:
            node = advice.nodes[0]
            bound = msgspec.structs.replace(pod, node_name=node, scheduled_at=Micros(_NOW))
            self._state.set_pod(bound, seen_at=_NOW)
        self._state.delete_pod(next(self._gone).key)
        for usage in next(self._reports):
            self._state.set_usage(usage)


def _as_sent(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod as its ReplicaSet sends it: without a name of its own, a node or a status."""
    metadata = {
        key: value
        for key, value in pod["metadata"].items()
        if key not in {"name", "uid", "creationTimestamp"}
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def _posted(pod: dict[str, Any], namespace: str, *, uid: str) -> web.Request:
    """Return the request of the API server to review a pod; all of it has arrived."""
    body = msgspec.json.encode(
        {
            "apiVersion": webhook.admission.wire.API_VERSION,
            "kind": webhook.admission.wire.KIND,
            "request": {**_CREATE, "uid": uid, "namespace": namespace, "object": pod},
        }
    )
    loop = asyncio.get_running_loop()
    payload = StreamReader(BaseProtocol(loop), limit=2**16, loop=loop)
    payload.feed_data(body)
    payload.feed_eof()
    return make_mocked_request(
        "POST",
        "/mutate?timeout=10s",
        headers={"Content-Type": "application/json"},
        payload=payload,
    )


def _patched(pod: dict[str, Any], response: web.Response) -> dict[str, Any]:
    """Return the pod as the API server stores it after a review."""
    assert isinstance(response.body, bytes)
    answer = msgspec.json.decode(response.body)["response"]
    assert answer["allowed"], answer
    patch = msgspec.json.decode(base64.b64decode(answer.get("patch", "W10=")))
    patched: dict[str, Any] = jsonpatch.apply_patch(pod, patch)
    return patched


if __name__ == "__main__":
    main()
