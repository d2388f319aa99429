from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage, PodUsage
from engine.view import ClusterState
from tests.webhook.cluster.polling import NOW, Polling
from webhook.cluster import load_recorded
from webhook.cluster.usage import UsageSourceError

Json = dict[str, Any]


def listed(kind: str, *items: Json) -> Json:
    """Return what `kubectl get --raw /apis/metrics.k8s.io/v1beta1/...` prints."""
    return {"kind": f"{kind}List", "apiVersion": "metrics.k8s.io/v1beta1", "items": list(items)}


def node_metrics(name: str = "node1", **fields: object) -> Json:
    usage = {"cpu": "1500000001n", "memory": "2048Ki"}
    base = {"timestamp": "2026-01-01T09:00:00Z", "window": "20.5s", "usage": usage}
    return {"metadata": {"name": name}, **base, **fields}


def pod_metrics(name: str, *containers: Json) -> Json:
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "timestamp": "2026-01-01T08:59:50Z",
        "window": "15s",
        "containers": [{"name": "c", "usage": usage} for usage in containers],
    }


def pod(name: str, on: str, priority: int | None = None) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"nodeName": on, "priority": priority},
    }


def usages(folder: Path, *documents: Json) -> dict[str, NodeUsage]:
    """Return the usage reports in a recording, by node."""
    for number, document in enumerate(documents):
        (folder / f"{number}.json").write_text(json.dumps(document))
    recording = load_recorded([folder])
    assert recording.problems == ()
    return {usage.node_name: usage for usage in recording.state.view().usages if usage is not None}


def test_usage_of_a_node_is_rounded_up_from_nanocores(tmp_path: Path) -> None:
    usage = usages(tmp_path, listed("NodeMetrics", node_metrics()))["node1"]
    # 1.500000001 cores are 1501 millicores, as Kubernetes rounds.
    assert usage.usage == {"cpu": 1501, "memory": 2 * 2**20}
    assert usage.update_time == 1_767_258_000 * SECOND


@pytest.mark.parametrize(("window", "seconds"), [("20.5s", 21), ("1m0s", 60), ("", 60), ("0s", 60)])
def test_the_window_stands_for_the_interval_of_reports(
    tmp_path: Path, window: str, seconds: int
) -> None:
    usage = usages(tmp_path, listed("NodeMetrics", node_metrics(window=window)))["node1"]
    assert usage.report_interval_seconds == seconds


def test_usage_of_pods_is_that_of_their_containers_on_their_node(tmp_path: Path) -> None:
    reading = pod_metrics("web", {"cpu": "400000n", "memory": "1Mi"}, {"cpu": "300000n"})
    elsewhere = pod_metrics("elsewhere", {"cpu": "1"})
    unknown = pod_metrics("unknown", {"cpu": "1"})
    found = usages(
        tmp_path,
        listed("PodMetrics", reading, elsewhere, unknown),
        listed("NodeMetrics", node_metrics()),
        pod("web", "node1"),
        pod("elsewhere", "node2"),
    )
    # 400,000 + 300,000 nanocores are 0.7 millicores, rounded up once.
    web = PodUsage({"cpu": 1, "memory": 2**20}, is_prod=False)
    assert found["node1"].pods == {"shop/web": web}
    assert found.keys() == {"node1"}


def test_a_recording_of_nodes_alone_does_not_measure_pods(tmp_path: Path) -> None:
    nodes = listed("NodeMetrics", node_metrics())
    assert not usages(tmp_path, nodes, pod("web", "node1"))["node1"].pods_measured
    reading = pod_metrics("web", {"cpu": "1m"})
    found = usages(tmp_path, nodes, pod("web", "node1"), listed("PodMetrics", reading))
    assert found["node1"].pods_measured


def test_a_pod_is_production_by_its_own_class(tmp_path: Path) -> None:
    found = usages(
        tmp_path,
        listed("NodeMetrics", node_metrics()),
        listed("PodMetrics", *(pod_metrics(name, {"cpu": "1"}) for name in ("a", "b"))),
        pod("a", "node1", priority=9500),  # koord-prod
        pod("b", "node1", priority=5500),  # koord-batch
    )
    assert {name: one.is_prod for name, one in found["node1"].pods.items()} == {
        "shop/a": True,
        "shop/b": False,
    }


def test_a_report_of_koordinators_wins(tmp_path: Path) -> None:
    by_koordinator = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "node1"},
        "status": {"nodeMetric": {"nodeUsage": {"resources": {"cpu": "3"}}}},
    }
    readings = listed("NodeMetrics", node_metrics("node1"), node_metrics("node2"))
    found = usages(tmp_path, by_koordinator, readings)
    assert found["node1"].usage == {"cpu": 3000}
    assert found["node2"].usage == {"cpu": 1501, "memory": 2 * 2**20}


def test_a_report_that_was_never_filled_leaves_room(tmp_path: Path) -> None:
    empty = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": "node1"},
    }
    found = usages(tmp_path, empty, listed("NodeMetrics", node_metrics()))
    assert found["node1"].usage == {"cpu": 1501, "memory": 2 * 2**20}


class _Source:
    """Reads what it is given, or fails with it."""

    def __init__(self) -> None:
        self.skipped = 0
        self.readings: list[NodeUsage] = []
        self.error: Exception | None = None

    async def read(self) -> Sequence[NodeUsage]:
        if self.error is not None:
            raise self.error
        return self.readings

    async def backfill(self) -> AsyncIterator[Sequence[NodeUsage]]:
        for ago in (200, 100):
            yield [reading(Micros(NOW - ago * SECOND))]


def reading(at: Micros) -> NodeUsage:
    return NodeUsage(node_name="a", update_time=at, usage={"cpu": 100, "memory": 1})


async def test_no_error_ends_the_polling(caplog: pytest.LogCaptureFixture) -> None:
    source = _Source()
    source.readings = [reading(NOW)]
    source.error = RuntimeError("something new")
    polled = Polling(source, ClusterState())
    await polled.look(lambda: setattr(source, "error", None))
    assert "something new" in caplog.text
    assert polled.usages().keys() == {"a"}
    assert (polled.status.last_error, polled.status.synced) == ("", True)


async def test_a_failure_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = _Source()
    source.error = UsageSourceError("out of order")
    polled = Polling(source, ClusterState())
    with caplog.at_level(logging.INFO):
        await polled.look(lambda: None, lambda: None, lambda: setattr(source, "error", None))
    assert caplog.messages == [
        "no usage from metrics.k8s.io: out of order",
        "usage from metrics.k8s.io is back",
    ]


async def test_the_past_adds_to_the_history_of_the_first_reading() -> None:
    source = _Source()
    source.readings = [reading(NOW)]
    polled = Polling(source, ClusterState())
    await polled.look()
    # 200 s before now, 100 s before and now span half of five minutes.
    assert [window.duration_ns for window in polled.usages()["a"].aggregated] == [300 * 10**9]
    assert polled.status.events == 1
