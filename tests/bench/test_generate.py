from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.view import Sum
from tests.bench.generate import GeneratedCluster, kubectl_list
from webhook.cluster import load_recorded


def small(seed: int = 1) -> GeneratedCluster:
    return GeneratedCluster(nodes=100, pods=3_000, seed=seed)


def test_the_same_seed_gives_the_same_cluster() -> None:
    assert list(small().objects()) == list(small().objects())
    assert list(small().pods()) != list(small(2).pods())


def test_a_generated_cluster_has_the_nodes_and_pods_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(b"".join(kubectl_list(small().objects())))
    recording = load_recorded([path])
    assert recording.problems == ()
    assert recording.loaded["Node"] == recording.loaded["NodeMetric"] == 100
    assert recording.loaded["Pod"] == 3_000

    view = recording.state.view()
    assert view.valid.all()
    cpu = view.axis.find("cpu")
    ratio = view.sums[Sum.LIMITS, cpu] / view.allocatable[cpu]
    # From 0.1 to 6 times what nodes have, but for a few; and all over that range.
    assert np.mean((ratio >= 0.1) & (ratio <= 6)) > 0.75
    assert ratio.min() < 0.5
    assert ratio.max() > 3
    # The reports know the pods of their nodes, finished ones among them.
    known = sum(len(usage.pods) for usage in view.usages if usage is not None)
    assert 0.95 * 3_000 < known <= 3_000
