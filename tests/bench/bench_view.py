"""How fast the cluster view is filled and kept up to date, and what it costs to hold.

Run as `python -m tests.bench.bench_view [--nodes N --pods P]`, each time in a process of its own.
Times depend on the machine: compare the ratios, which are to decoding one pod in the same run.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

import webhook.server  # noqa: F401 (a replica holds it beside the view)
from engine.model import api
from engine.model.elastic_quota import quota_of
from engine.model.node import Node, node_of
from engine.model.pod import Pod, pod_of
from engine.model.time import micros
from engine.model.usage import NodeUsage, usage_of_node_metric
from engine.view import ClusterState, LoadProfile
from tests.bench.generate import GeneratedCluster
from tests.bench.texts import NOW

_Step: TypeAlias = Callable[[Any], Any]

_ROUNDS = 7
_SAMPLE = 4_000  # events of a kind per round
_GC_THRESHOLDS = (50_000, 20, 50)  # those of the server
_PROFILE = LoadProfile(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70)))
_RUNNING = b'"phase":"Running"'
_NOW = micros(NOW)

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
    before = _resident_mib()
    state = filled(cluster)
    start = time.perf_counter()
    state.view()
    print(f"  first view with the sums of LoadAware {time.perf_counter() - start:8.2f} s")
    gc.collect()
    after = _resident_mib()
    print(f"resident memory: {after:.0f} MiB, {after - before:.0f} MiB of it the view")
    _time_events(state, cluster)


def machine() -> str:
    """Return what the figures depend on, in one line."""
    return (
        f"machine: {os.cpu_count()} cpus, {platform.machine()}, python {platform.python_version()},"
        f" numpy {np.__version__}, msgspec {msgspec.__version__}"
    )


def filled(cluster: GeneratedCluster) -> ClusterState:
    """Return the state of a cluster, and print what each step took."""
    state = ClusterState()
    state.track([_PROFILE])
    total = 0.0

    def load(name: str, texts: Iterable[bytes], decode: _Step, make: _Step, apply: _Step) -> None:
        nonlocal total
        spent = [0.0, 0.0, 0.0]
        count = 0
        for text in texts:
            start = time.perf_counter()
            decoded = decode(text)
            read = time.perf_counter()
            made = make(decoded)
            ready = time.perf_counter()
            apply(made)
            done = time.perf_counter()
            spent[0] += read - start
            spent[1] += ready - read
            spent[2] += done - ready
            count += 1
        total += sum(spent)
        decoding, making, applying = (1e6 * seconds / count for seconds in spent)
        print(
            f"  {name:8} {sum(spent):8.2f} s, each: decode {decoding:6.1f},"
            f" make {making:6.1f}, apply {applying:6.1f} us"
        )

    load("quotas", cluster.quotas(), _decode_quota, quota_of, state.set_quota)
    load("nodes", cluster.nodes(), _decode_node, node_of, state.set_node)
    load("usage", cluster.node_metrics(), _decode_metric, usage_of_node_metric, state.set_usage)
    load("pods", cluster.pods(), _decode_pod, pod_of, lambda pod: state.set_pod(pod, seen_at=_NOW))
    print(f"  {'all':8} {total:8.2f} s")
    return state


def _time_events(state: ClusterState, cluster: GeneratedCluster) -> None:
    """Print what single events cost, in random order.

    Each object is decoded anew just before, as it would be, so it is at hand and the view is not.
    """
    source = random.Random(1)
    share = _SAMPLE / cluster.pod_count
    pods = [text for text in cluster.pods() if _RUNNING in text and source.random() < share]
    source.shuffle(pods)
    nodes = list(islice(cluster.nodes(), _SAMPLE))
    source.shuffle(nodes)
    metrics = list(islice(cluster.node_metrics(), _SAMPLE // 10))
    shapes = cycle([_pod(text).shape for text in pods[1:] + pods[:1]])

    def resized(text: bytes) -> Pod:
        return msgspec.structs.replace(_pod(text), shape=next(shapes))

    def set_pod(pod: Pod) -> None:
        state.set_pod(pod, seen_at=_NOW)

    def set_usage_and_view(usage: NodeUsage) -> None:
        state.set_usage(usage)
        state.view()

    # What is done before the clock starts, and what it measures. Each step leaves what the next
    # one needs.
    steps: Sequence[tuple[str, Sequence[bytes], _Step, _Step]] = [
        ("decode a pod", pods, lambda text: text, _decode_pod),
        ("make the engine's pod of it", pods, _decode_pod, pod_of),
        ("a pod that did not change", pods, _pod, set_pod),
        ("a pod deleted", pods, _pod, lambda pod: state.delete_pod(pod.key)),
        ("a pod added", pods, _pod, set_pod),
        ("a pod with other amounts", pods, resized, set_pod),
        ("the same pods as before", pods, _pod, set_pod),
        ("a heartbeat of a node", nodes, _node, state.set_node),
        ("a node cordoned", nodes, _cordoned, state.set_node),
        ("a node uncordoned", nodes, _node, state.set_node),
        ("make usage of a NodeMetric", metrics, _decode_metric, usage_of_node_metric),
        ("a usage report", metrics, _usage, state.set_usage),
        ("a usage report, then a view", metrics, _usage, set_usage_and_view),
    ]
    best = [float("inf")] * len(steps)
    for _ in range(_ROUNDS):
        for number, (_, texts, prepare, call) in enumerate(steps):
            seconds = 0.0
            for text in texts:
                prepared = prepare(text)
                start = time.perf_counter()
                call(prepared)
                seconds += time.perf_counter() - start
            best[number] = min(best[number], seconds / len(texts) * 1e6)
            state.view()  # so that no step pays for the rows that others changed
    print(f"events in random order, best of {_ROUNDS} rounds      us   ratio")
    for (name, *_), each in zip(steps, best, strict=True):
        print(f"  {name:32} {each:16.2f} {each / best[0]:7.2f}")


def _pod(text: bytes) -> Pod:
    return pod_of(_decode_pod(text))


def _node(text: bytes) -> Node:
    return node_of(_decode_node(text))


def _cordoned(text: bytes) -> Node:
    node = _node(text)
    return replace(node, unschedulable=not node.unschedulable)


def _usage(text: bytes) -> NodeUsage:
    return usage_of_node_metric(_decode_metric(text))


def _resident_mib() -> float:
    """Return the resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
