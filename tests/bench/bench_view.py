"""How fast the cluster view is filled and kept up to date, and what it costs to hold.

Run as `python -m tests.bench.bench_view [--nodes N --pods P]`, each time in a process of its own.
Times are medians in microseconds and depend on the machine: compare the ratios, which are to
decoding the same events in the same run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any, TypeAlias

import msgspec
import numpy as np

import webhook.serving.composition  # noqa: F401 (a replica holds it beside the view)
from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.node import node_of
from engine.model.pod import pod_of
from engine.model.selectors import LabelSelector, Operator, Requirement
from engine.model.time import micros
from engine.model.usage import usage_of_node_metric
from engine.plugins.load_aware.estimation import LoadProfile
from engine.view import ClusterState, ClusterView, PodQuery, pods_matching
from tests.bench.generate import GeneratedCluster
from tests.bench.measuring import resident_mib
from tests.bench.texts import NOW
from webhook.cluster.client.envelopes import Meta, meta_of

_Step: TypeAlias = Callable[[Any], Any]

_ROUNDS = 3
_PODS = 2_000  # of a round: each time others, so that none of them is in a cache
_WARM_PODS, _WARM_ROUNDS = 50, 60
_BURST = 50  # events between two views
_GC_THRESHOLDS = (50_000, 20, 50)  # those of the server
_PROFILE = LoadProfile(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)))
_RUNNING = b'"phase":"Running"'
_NOW = micros(NOW)

_clock = time.perf_counter_ns
_decode_node = msgspec.json.Decoder(api.Node).decode
_decode_pod = msgspec.json.Decoder(api.Pod).decode
_decode_metric = msgspec.json.Decoder(api.NodeMetric).decode
_decode_quota = msgspec.json.Decoder(api.ElasticQuota).decode


def main() -> None:
    """Run the benchmark and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=150_000)
    size = parser.parse_args()
    print(machine())
    cluster = GeneratedCluster(nodes=size.nodes, pods=size.pods)
    next(cluster.node_metrics())  # what it prepares for this is not the view's
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)

    print(f"filling the view with {size.nodes:,} nodes and {size.pods:,} pods")
    before = resident_mib()
    state = filled(cluster)
    start = time.perf_counter()
    state.view()
    print(f"  first view with the sums of LoadAware {time.perf_counter() - start:8.2f} s")
    gc.collect()
    gc.freeze()
    after = resident_mib()
    print(f"resident memory: {after:.0f} MiB, {after - before:.0f} MiB of it the view")
    _time_events(state, cluster)
    _time_views(state, cluster)
    _time_existing_pods(state, cluster)


def machine() -> str:
    """Return what the figures depend on, in one line."""
    return (
        f"machine: {os.cpu_count()} cpus, {platform.machine()}, python {platform.python_version()},"
        f" numpy {np.__version__}, msgspec {msgspec.__version__}"
    )


def filled(cluster: GeneratedCluster) -> ClusterState:
    """Return the state of a cluster, and print what each step took."""
    state = ClusterState()
    state.track_sums([_PROFILE])
    total = 0.0

    def load(name: str, texts: Iterable[bytes], decode: _Step, make: _Step, apply: _Step) -> None:
        nonlocal total
        spent = [0, 0, 0]
        count = 0
        for text in texts:
            for step, duration in enumerate(_timed(text, decode, make, apply)):
                spent[step] += duration
            count += 1
        total += sum(spent)
        decoding, making, applying = (nanoseconds / 1e3 / count for nanoseconds in spent)
        print(
            f"  {name:8} {sum(spent) / 1e9:8.2f} s, each: decode {decoding:6.1f},"
            f" make {making:6.1f}, apply {applying:6.1f} us"
        )

    load("quotas", cluster.quotas(), _decode_quota, quota_of, state.set_quota)
    load("nodes", cluster.nodes(), _decode_node, node_of, state.set_node)
    load("usage", cluster.node_metrics(), _decode_metric, usage_of_node_metric, state.set_usage)
    load("pods", cluster.pods(), _decode_pod, pod_of, lambda pod: state.set_pod(pod, seen_at=_NOW))
    print(f"  {'all':8} {total / 1e9:8.2f} s")
    return state


@dataclass(frozen=True)
class _Event:
    """Events of one kind: the objects as they come, and what is done with each."""

    name: str
    texts: Sequence[bytes]
    decode: _Step
    make: _Step
    apply: _Step


def _time_events(state: ClusterState, cluster: GeneratedCluster) -> None:
    """Print what single events cost, of objects that no cache of the processor holds, and others.

    Each is decoded just before, as it would be, so it is at hand and the view is not.
    """
    share = 2 * _ROUNDS * _PODS / cluster.pod_count
    source = random.Random(1)
    pods = [text for text in cluster.pods() if _RUNNING in text and source.random() < share]
    source.shuffle(pods)
    nodes = list(islice(cluster.nodes(), _PODS))
    source.shuffle(nodes)
    metrics = list(islice(cluster.node_metrics(), _PODS // 10))
    source.shuffle(metrics)

    print(f"{'events, us':44} decode    make   apply   apply/decode")
    cold = [pods[number * _PODS : (number + 1) * _PODS] for number in range(_ROUNDS)]
    _print_medians(
        "cold", state, ([*_lives(state, some), *_others(state, nodes, metrics)] for some in cold)
    )
    warm = pods[-_WARM_PODS:]
    _print_medians(
        "warm",
        state,
        (
            [*_lives(state, warm), *_others(state, nodes[:_WARM_PODS], metrics[:_WARM_PODS])]
            for _ in range(_WARM_ROUNDS)
        ),
    )


def _lives(state: ClusterState, running: Sequence[bytes]) -> Iterator[_Event]:
    """Yield what happens to pods that run, and then run again; each needs what came before."""

    def pods(name: str, texts: Sequence[bytes]) -> _Event:
        return _Event(
            name, texts, _decode_pod, pod_of, lambda pod: state.set_pod(pod, seen_at=_NOW)
        )

    def forget(meta: Meta) -> None:
        state.delete_pod(meta.key)

    bound = [_earlier(text, is_bound=True) for text in running]
    pending = [_earlier(text, is_bound=False) for text in running]
    yield pods("a pod: only its status changed", running)
    yield _Event("a pod: deleted", running, lambda text: meta_of(msgspec.Raw(text)), _same, forget)
    yield pods("a pod: created", pending)
    yield pods("a pod: bound", bound)
    yield pods("a pod: running", running)


def _others(
    state: ClusterState, nodes: Sequence[bytes], metrics: Sequence[bytes]
) -> Iterator[_Event]:
    """Yield what happens to nodes."""
    other = [text.replace(b'/region":', b'/country":', 1) for text in nodes]
    yield _Event("a node: heartbeat", nodes, _decode_node, node_of, state.set_node)
    yield _Event("a node: another label", other, _decode_node, node_of, state.set_node)
    yield _Event("a node: as before", nodes, _decode_node, node_of, state.set_node)
    make = usage_of_node_metric
    yield _Event("a usage report", metrics, _decode_metric, make, state.set_usage)


def _earlier(text: bytes, *, is_bound: bool) -> bytes:
    """Return a running pod as it was before it ran, and before it was bound."""
    pod = msgspec.json.decode(text)
    conditions = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
    pod["status"] = {"phase": "Pending", "qosClass": pod["status"]["qosClass"]}
    if is_bound:
        pod["status"]["conditions"] = conditions
    else:
        del pod["spec"]["nodeName"]
    return msgspec.json.encode(pod)


def _print_medians(name: str, state: ClusterState, rounds: Iterable[Sequence[_Event]]) -> None:
    spent: dict[str, list[tuple[int, int, int]]] = {}
    for events in rounds:
        for event in events:
            times = spent.setdefault(event.name, [])
            for text in event.texts:
                times.append(_timed(text, event.decode, event.make, event.apply))
            state.view()  # so that no kind pays for the rows that others changed
    for kind, times in spent.items():
        decode, make, apply = (median(column) / 1e3 for column in zip(*times, strict=True))
        print(f"  {name}  {kind:34} {decode:8.2f}{make:8.2f}{apply:8.2f}{apply / decode:15.2f}")


def _time_views(state: ClusterState, cluster: GeneratedCluster) -> None:
    """Print what a view costs after events, while nobody holds the one before."""
    texts = [text for text in islice(cluster.pods(), 40_000) if _RUNNING in text]
    source = random.Random(1)
    pods = [pod_of(_decode_pod(text)) for text in source.sample(texts, _PODS)]
    metrics = list(islice(cluster.node_metrics(), _PODS // 10))
    usages = [usage_of_node_metric(_decode_metric(text)) for text in metrics]
    for events in (1, _BURST):
        spent = []
        for start in range(0, len(pods), events):
            for pod in pods[start : start + events]:
                state.delete_pod(pod.key)
            spent.append(_timed(None, lambda _: state.view(), _same, _same)[0])
        for pod in pods:
            state.set_pod(pod, seen_at=_NOW)
        state.view()
        print(f"a view after {events:3} pods went {median(spent) / 1e3:16.1f} us")
    spent = []
    for usage in usages:
        state.set_usage(usage)
        spent.append(_timed(None, lambda _: state.view(), _same, _same)[0])
    print(f"a view after a usage report {median(spent) / 1e3:15.1f} us")


def _time_existing_pods(state: ClusterState, cluster: GeneratedCluster) -> None:
    """Print what it takes to count the pods that a selector selects, on every node."""
    pods = [pod_of(_decode_pod(text)) for text in islice(cluster.pods(), 0, 40_000, 200)]
    first, again = [], []
    for pod in pods:
        if not pod.labels:
            continue
        key, value = next(iter(pod.labels.items()))
        selector = LabelSelector((Requirement(key, Operator.IN, frozenset({value})),))
        queries = (PodQuery(frozenset({pod.namespace}), selector),)

        def count(view: ClusterView, queries: tuple[PodQuery, ...] = queries) -> object:
            return pods_matching(view, queries, terminating=True)

        first.append(_timed(state.view(), count, _same, _same)[0])
        state.delete_pod(pod.key)
        again.append(_timed(state.view(), count, _same, _same)[0])
        state.set_pod(pod, seen_at=_NOW)
    print(f"pods of a selector that is new {median(first) / 1e3:12.1f} us")
    print(f"the same after a pod went {median(again) / 1e3:17.1f} us")


def _timed(text: Any, decode: _Step, make: _Step, apply: _Step) -> tuple[int, int, int]:  # noqa: ANN401 (what the first step takes)
    """Return how many nanoseconds three steps took, each with what the one before gave."""
    start = _clock()
    decoded = decode(text)
    read = _clock()
    made = make(decoded)
    ready = _clock()
    apply(made)
    done = _clock()
    return read - start, ready - read, done - ready


def _same(anything: Any) -> Any:  # noqa: ANN401 (what the step before gave)
    return anything


if __name__ == "__main__":
    main()
