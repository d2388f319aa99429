from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.model import api, topology_api
from engine.model.disk_io import NodeDisks
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import Sum
from webhook.cluster.watch.event_applier import READERS, EventApplier

NOW = Micros(1_700_000_000 * SECOND)
MEASURED = datetime(2023, 11, 14, tzinfo=UTC)


def pod(name: str, node: str = "n1", phase: str = "Running") -> api.Pod:
    resources = api.ResourceRequirements(requests={"cpu": "1"})
    return api.Pod(
        metadata=api.ObjectMeta(name=name, namespace="shop"),
        spec=api.PodSpec(containers=[api.Container(resources=resources)], node_name=node),
        status=api.PodStatus(phase=phase),
    )


def metric(node: str, cpu: str | None) -> api.NodeMetric:
    filled = cpu is not None
    usage = api.NodeMetricInfo(node_usage=api.ResourceMap(resources={"cpu": cpu}))
    return api.NodeMetric(
        metadata=api.ObjectMeta(name=node),
        status=api.NodeMetricStatus(
            update_time=MEASURED if filled else None, node_metric=usage if filled else None
        ),
    )


def cpu_of(intake: EventApplier, node: str) -> int | None:
    usage = intake.state.usage(node)
    return None if usage is None or usage.usage is None else usage.usage["cpu"]


def test_what_is_watched_can_be_forgotten_again() -> None:
    intake = EventApplier(now=lambda: NOW)
    taken: list[tuple[tuple[str, str], Any, str]] = [
        (("", "Node"), api.Node(metadata=api.ObjectMeta(name="n1")), ""),
        (("", "Pod"), pod("web"), "shop"),
        (("", "Namespace"), api.Namespace(metadata=api.ObjectMeta(name="shop")), ""),
        (("slo.koordinator.sh", "NodeMetric"), metric("n1", "1"), ""),
    ]
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        meta = api.ObjectMeta(name="team", namespace="shop")
        quota = api.ElasticQuota(api_version=f"{group}/v1alpha1", metadata=meta)
        taken.append(((group, "ElasticQuota"), quota, "shop"))
    for key, wire, _ in taken:
        READERS[key].take(intake, wire)
    view = intake.state.view()
    assert view.names == ("n1",)
    assert len(view.quotas["shop"]) == 2
    for key, wire, namespace in taken:
        forget = READERS[key].forget
        assert forget is not None
        forget(intake, namespace, wire.metadata.name)
    view = intake.state.view()
    assert not view.valid.any()
    assert (view.quotas, view.namespace_labels, view.namespace_requests) == ({}, {}, {})
    assert intake.state.usage("n1") is None


@pytest.mark.parametrize("now", [None, lambda: NOW])
def test_a_finished_pod_is_forgotten(now: None) -> None:
    intake = EventApplier(now=now)
    intake.pod(pod("web"))
    assert intake.state.pod_count == 1
    intake.pod(pod("web", phase="Succeeded"))
    assert intake.state.pod_count == 0
    assert not intake.state.view().sums[Sum.REQUESTS].any()


def test_nobody_else_measures_a_node_that_koordinator_does() -> None:
    intake = EventApplier(now=lambda: NOW)
    assert not intake.measured_by_koordinator("n1")
    intake.node_metric(metric("n1", "1"))
    assert intake.measured_by_koordinator("n1")
    intake.delete_node_metric("", "n1")
    assert not intake.measured_by_koordinator("n1")
    assert intake.state.usage("n1") is None


def test_reports_are_gathered_until_they_are_taken_up() -> None:
    intake = EventApplier(now=lambda: NOW, buffers_usage=True)
    intake.node_metric(metric("n1", "1"))
    intake.node_metric(metric("n1", "2"))
    intake.node_metric(metric("n2", "3"))
    intake.delete_node_metric("", "n2")
    assert intake.state.usage("n1") is None
    assert intake.measured_by_koordinator("n1")
    intake.flush_usage()
    assert cpu_of(intake, "n1") == 2000
    assert intake.state.usage("n2") is None


def test_many_reports_are_taken_up_at_once() -> None:
    """A list of all nodes must not become one long pause."""
    intake = EventApplier(now=lambda: NOW, buffers_usage=True)
    for number in range(100):
        intake.node_metric(metric(f"n{number}", "1"))
    taken = sum(intake.state.usage(f"n{number}") is not None for number in range(100))
    assert taken == 96  # three times 32


def test_a_report_that_was_never_filled_does_not_stand_in_the_way() -> None:
    intake = EventApplier(now=lambda: NOW)
    intake.state.set_usage(NodeUsage(node_name="n1", usage={"cpu": 500}))
    intake.node_metric(metric("n1", None))
    assert not intake.measured_by_koordinator("n1")
    assert cpu_of(intake, "n1") == 500
    intake.delete_node_metric("", "n1")
    assert cpu_of(intake, "n1") == 500
    intake.node_metric(metric("n1", "2"))
    assert cpu_of(intake, "n1") == 2000


def test_a_report_that_was_never_filled_is_known_to_be_there() -> None:
    """LoadAware tells a node without a report from one whose report is empty."""
    intake = EventApplier(now=lambda: NOW)
    intake.node_metric(metric("n1", None))
    assert intake.state.usage("n1") is not None
    assert not intake.measured_by_koordinator("n1")
    intake.delete_node_metric("", "n1")
    assert intake.state.usage("n1") is None


def test_a_report_that_is_emptied_is_nobodys() -> None:
    intake = EventApplier(now=lambda: NOW)
    intake.node_metric(metric("n1", "1"))
    intake.node_metric(metric("n1", None))
    assert not intake.measured_by_koordinator("n1")
    assert cpu_of(intake, "n1") is None


def disks(name: str, node: str, left: str = "5") -> topology_api.NodeDiskIO:
    bandwidth = topology_api.DiskBandwidth(total=left, read=left, write=left)
    return topology_api.NodeDiskIO(
        metadata=api.ObjectMeta(name=name, namespace="io"),
        spec=topology_api.NodeDiskIOSpec(node_name=node),
        status=topology_api.NodeDiskIOStatus(allocatable_bandwidth={"d": bandwidth}),
    )


def test_what_only_some_rules_read_is_taken_and_forgotten() -> None:
    intake = EventApplier(now=lambda: NOW)
    meta = api.ObjectMeta(name="n1", namespace="default", creation_timestamp=MEASURED)
    taken: list[tuple[tuple[str, str], Any]] = [
        (
            ("topology.node.k8s.io", "NodeResourceTopology"),
            topology_api.NodeResourceTopology(metadata=api.ObjectMeta(name="n1")),
        ),
        (("appgroup.diktyo.x-k8s.io", "AppGroup"), topology_api.AppGroup(metadata=meta)),
        (
            ("networktopology.diktyo.x-k8s.io", "NetworkTopology"),
            topology_api.NetworkTopology(metadata=meta),
        ),
        (("diskio.x-k8s.io", "NodeDiskIOStats"), disks("n1-stats", "n1")),
    ]
    for key, wire in taken:
        READERS[key].take(intake, wire)
    keys = {(kind.__name__, key) for kind, key in intake.state.view().extras}
    assert keys == {
        ("NodeZones", "n1"),
        ("AppGroup", "default/n1"),
        ("NetworkTopology", "default/n1"),
        ("NodeDisks", "n1"),
    }
    assert intake.newest > 0
    for key, wire in taken:
        forget = READERS[key].forget
        assert forget is not None
        for _ in range(2):
            forget(intake, wire.metadata.namespace, wire.metadata.name)
    assert not intake.state.view().extras


def test_an_object_that_tells_of_another_node_now_no_longer_tells_of_the_old_one() -> None:
    intake = EventApplier(now=lambda: NOW)
    reader = READERS["diskio.x-k8s.io", "NodeDiskIOStats"]
    for node, left in (("n1", "5"), ("n1", "7"), ("n2", "7")):
        reader.take(intake, disks("stats", node, left))
    view = intake.state.view()
    assert view.lookup(NodeDisks, "n1") is None
    found = view.lookup(NodeDisks, "n2")
    assert found is not None
    assert found.disks[0].total == 7
    assert reader.forget is not None
    reader.forget(intake, "io", "stats")
    assert not intake.state.view().extras


def test_an_object_that_cannot_be_read_changes_nothing() -> None:
    intake = EventApplier(now=lambda: NOW)
    reader = READERS["diskio.x-k8s.io", "NodeDiskIOStats"]
    reader.take(intake, disks("stats", "n1"))
    with pytest.raises(ValueError, match="not a quantity"):
        reader.take(intake, disks("stats", "n2", "much"))
    assert intake.state.view().lookup(NodeDisks, "n1") is not None
