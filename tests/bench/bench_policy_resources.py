"""How soon policies of the API are in force, and how long reviews wait meanwhile.

Run as `python -m tests.bench.bench_policy_resources [--nodes N --pods P --policies C]`. Policies
made of the shipped ones come at once to a replica of a generated cluster, then a single one of them
changes: what is printed is the time until they are in force, of the clock and of the processor, and
the longest time in which nothing else could run, as that is what a review waits for. Then: what a
match costs beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import msgspec
import yaml

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.model.time import micros
from engine.pipeline import Scope
from engine.policy import PolicySet, compile_resource
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import loaded
from tests.bench.texts import NOW
from webhook.cluster import Cluster
from webhook.placement.live_policies import LivePolicies, WarmUp
from webhook.placement.placer import Placer
from webhook.placement.policy_files import PolicyResources

_SHIPPED: Final = sorted((Path(__file__).parents[2] / "policies").glob("*/policy.yaml"))
_NOW: Final = micros(NOW)
_POD: Final = b'{"metadata": {"name": "a", "namespace": "team-0"}, "spec": {}}'
_MATCHES: Final = 2_000
_PROMISED: Final = 200  # policies that are in force within 2 s
_PAUSE_SECONDS: Final = 0.001


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--policies", type=int, default=_PROMISED)
    asked = parser.parse_args()
    cluster = GeneratedCluster(nodes=asked.nodes, pods=asked.pods)
    for is_namespaced in (False, True):
        asyncio.run(_run(cluster, asked.policies, is_namespaced=is_namespaced))


async def _run(cluster: GeneratedCluster, count: int, *, is_namespaced: bool) -> None:
    state = loaded(cluster.objects(), PolicySet())
    known = Cluster(state=state, now=lambda: _NOW, is_live=False)
    placer = Placer(view=known.view, now=known.now, scope=Scope(), clock=time.monotonic)
    resources = PolicyResources()
    live = LivePolicies(
        (),
        resources=resources,
        track=state.track_sums,
        prepare=state.prepare_sums,
        warm_up=WarmUp(known, placer.decide).steps,
    )
    written = list(_policies(count, is_namespaced=is_namespaced))
    plural = written[0].kind.plural
    for each in written:
        resources.set(each)
    await _timed(f"{count} {plural} in force", live, resources)
    if len(live.current) != count:
        raise AssertionError("not all of them are in force")
    changed = written[0]
    resources.set(replace(changed, spec={**changed.spec, "priority": 77}))
    await _timed(f"one of {count} {plural} changed", live, resources)
    _time_match(plural, live.current)


async def _timed(what: str, live: LivePolicies, resources: PolicyResources) -> None:
    """Print how long it takes, and the longest time in which nothing else could run."""
    longest, done = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            before = time.perf_counter()
            await asyncio.sleep(_PAUSE_SECONDS)
            longest = max(longest, time.perf_counter() - before - _PAUSE_SECONDS)

    watching = asyncio.create_task(watch())
    began, processor = time.perf_counter(), time.process_time()
    await live.take_up(resources)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    done.set()
    await watching
    print(f"{what:50} {seconds:6.2f} s", end=", ")
    print(f"of the processor {processor:6.2f} s, longest step {longest * 1e3:5.1f} ms", flush=True)


def _time_match(plural: str, policies: PolicySet) -> None:
    pod = pod_of(msgspec.json.decode(_POD, type=api.Pod))
    request = PlacementRequest(pod=pod, raw=_POD, namespace_labels={"team": "0"})
    began = time.process_time()
    for _ in range(_MATCHES):
        matched = policies.match(request, _NOW)
    micro = (time.process_time() - began) / _MATCHES * 1e6
    found = len(matched.enforced) + len(matched.audited)
    print(f"a match of {found} among {len(policies)} {plural} {micro:13.1f} us", flush=True)


def policies_compiled() -> list[float]:
    """Return the nanoseconds of the processor that it takes to compile as many as are promised."""
    written = _policies(_PROMISED, is_namespaced=False)
    began = time.process_time_ns()
    for each in written:
        if compile_resource(each).policy is None:
            raise AssertionError("a shipped policy has mistakes")
    return [float(time.process_time_ns() - began)]


def _policies(count: int, *, is_namespaced: bool) -> list[PolicyResource]:
    """Return policies made of the shipped ones, ten to a namespace where they have one."""
    specs = [yaml.safe_load(file.read_text(encoding="utf-8"))["spec"] for file in _SHIPPED]
    if is_namespaced:
        specs = [_of_a_namespace(spec) for spec in specs]
    return [
        PolicyResource(
            kind=PolicyKind.NAMESPACED if is_namespaced else PolicyKind.CLUSTER,
            namespace=f"team-{number // 10}" if is_namespaced else "",
            name=f"p{number}",
            spec={**spec, "priority": number},
        )
        for number, spec in enumerate(islice(cycle(specs), count))
    ]


def _of_a_namespace(spec: dict[str, object]) -> dict[str, object]:
    """Return a spec without what such a policy may not have."""
    match = dict(spec.get("match") or {})  # type: ignore[call-overload]
    match.pop("namespaceSelector", None)
    return {**spec, "match": match}


if __name__ == "__main__":
    main()
