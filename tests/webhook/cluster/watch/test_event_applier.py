from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.node import DeviceClass
from engine.model.pod import Pod
from engine.model.scheduler_plugins import NodeDisks
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import Sum
from webhook.cluster.watch.event_applier import EventApplier

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


def cpu_of(applier: EventApplier, node: str) -> int | None:
    usage = applier.state.usage(node)
    return None if usage is None or usage.usage is None else usage.usage["cpu"]


def test_what_is_watched_can_be_forgotten_again() -> None:
    applier = EventApplier(now=lambda: NOW)
    applied: list[tuple[tuple[str, str], Any, str]] = [
        (("", "Node"), api.Node(metadata=api.ObjectMeta(name="n1")), ""),
        (("", "Pod"), pod("web"), "shop"),
        (("", "Namespace"), api.Namespace(metadata=api.ObjectMeta(name="shop")), ""),
        (("slo.koordinator.sh", "NodeMetric"), metric("n1", "1"), ""),
    ]
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        meta = api.ObjectMeta(name="team", namespace="shop")
        quota = api.ElasticQuota(api_version=f"{group}/v1alpha1", metadata=meta)
        applied.append(((group, "ElasticQuota"), quota, "shop"))
    for key, wire, _ in applied:
        applier.by_kind[key].apply(wire)
    view = applier.state.view()
    assert view.names == ("n1",)
    assert len(view.namespaces.quotas["shop"]) == 2
    for key, wire, namespace in applied:
        applier.by_kind[key].delete(namespace, wire.metadata.name)
    view = applier.state.view()
    assert not view.valid.any()
    assert (view.namespaces.quotas, view.namespaces.labels, view.namespaces.requested) == (
        {},
        {},
        {},
    )
    assert applier.state.usage("n1") is None


@pytest.mark.parametrize("now", [None, lambda: NOW])
def test_a_finished_pod_is_forgotten(now: None) -> None:
    applier = EventApplier(now=now)
    applier.pod(pod("web"))
    assert len([*applier.state.pods_containing("")]) == 1
    applier.pod(pod("web", phase="Succeeded"))
    assert len([*applier.state.pods_containing("")]) == 0
    assert not applier.state.view().sums[Sum.REQUESTS].any()


def test_nobody_else_measures_a_node_that_koordinator_does() -> None:
    applier = EventApplier(now=lambda: NOW)
    assert not applier.measured_by_koordinator("n1")
    applier.node_metric(metric("n1", "1"))
    assert applier.measured_by_koordinator("n1")
    applier.delete_node_metric("", "n1")
    assert not applier.measured_by_koordinator("n1")
    assert applier.state.usage("n1") is None


def test_reports_are_gathered_until_they_are_applied_up() -> None:
    applier = EventApplier(now=lambda: NOW, buffers_usage=True)
    applier.node_metric(metric("n1", "1"))
    applier.node_metric(metric("n1", "2"))
    applier.node_metric(metric("n2", "3"))
    applier.delete_node_metric("", "n2")
    assert applier.state.usage("n1") is None
    assert applier.measured_by_koordinator("n1")
    applier.flush_usage()
    assert cpu_of(applier, "n1") == 2000
    assert applier.state.usage("n2") is None


def test_many_reports_are_applied_up_at_once() -> None:
    """A list of all nodes must not become one long pause."""
    applier = EventApplier(now=lambda: NOW, buffers_usage=True)
    for number in range(100):
        applier.node_metric(metric(f"n{number}", "1"))
    applied = sum(applier.state.usage(f"n{number}") is not None for number in range(100))
    assert applied == 96  # three times 32


def test_a_report_that_was_never_filled_does_not_stand_in_the_way() -> None:
    applier = EventApplier(now=lambda: NOW)
    applier.state.set_usage(NodeUsage(node_name="n1", usage={"cpu": 500}))
    applier.node_metric(metric("n1", None))
    assert not applier.measured_by_koordinator("n1")
    assert cpu_of(applier, "n1") == 500
    applier.delete_node_metric("", "n1")
    assert cpu_of(applier, "n1") == 500
    applier.node_metric(metric("n1", "2"))
    assert cpu_of(applier, "n1") == 2000


def test_a_report_that_was_never_filled_is_known_to_be_there() -> None:
    """LoadAware tells a node without a report from one whose report is empty."""
    applier = EventApplier(now=lambda: NOW)
    applier.node_metric(metric("n1", None))
    assert applier.state.usage("n1") is not None
    assert not applier.measured_by_koordinator("n1")
    applier.delete_node_metric("", "n1")
    assert applier.state.usage("n1") is None


def test_a_report_that_is_emptied_is_nobodys() -> None:
    applier = EventApplier(now=lambda: NOW)
    applier.node_metric(metric("n1", "1"))
    applier.node_metric(metric("n1", None))
    assert not applier.measured_by_koordinator("n1")
    assert cpu_of(applier, "n1") is None


def disks(name: str, node: str, left: str = "5") -> api.NodeDiskIO:
    bandwidth = api.DiskBandwidth(total=left, read=left, write=left)
    return api.NodeDiskIO(
        metadata=api.ObjectMeta(name=name, namespace="io"),
        spec=api.NodeDiskIOSpec(node_name=node),
        status=api.NodeDiskIOStatus(allocatable_bandwidth={"d": bandwidth}),
    )


def test_what_only_some_rules_read_is_applied_and_forgotten() -> None:
    applier = EventApplier(now=lambda: NOW)
    meta = api.ObjectMeta(name="n1", namespace="default", creation_timestamp=MEASURED)
    applied: list[tuple[tuple[str, str], Any]] = [
        (
            ("topology.node.k8s.io", "NodeResourceTopology"),
            api.NodeResourceTopology(metadata=api.ObjectMeta(name="n1")),
        ),
        (("appgroup.diktyo.x-k8s.io", "AppGroup"), api.AppGroup(metadata=meta)),
        (
            ("networktopology.diktyo.x-k8s.io", "NetworkTopology"),
            api.NetworkTopology(metadata=meta),
        ),
        (("diskio.x-k8s.io", "NodeDiskIOStats"), disks("n1-stats", "n1")),
        (("scheduling.x-k8s.io", "PodGroup"), api.PodGroup(metadata=meta)),
        (
            ("scheduling.sigs.k8s.io", "PodGroup"),
            api.KoordinatorPodGroup(metadata=meta),
        ),
    ]
    for key, wire in applied:
        applier.by_kind[key].apply(wire)
    keys = {(kind.__name__, key) for kind, key in applier.state.view().extras}
    assert keys == {
        ("NodeZones", "n1"),
        ("AppGroup", "default/n1"),
        ("NetworkTopology", "default/n1"),
        ("NodeDisks", "n1"),
        ("PodGroup", "scheduling.x-k8s.io/default/n1"),
        ("PodGroup", "scheduling.sigs.k8s.io/default/n1"),
    }
    assert applier.newest > 0
    for key, wire in applied:
        for _ in range(2):
            applier.by_kind[key].delete(wire.metadata.namespace, wire.metadata.name)
    assert not applier.state.view().extras


def test_a_resource_is_left_to_devices_while_any_class_stands_for_it() -> None:
    applier = EventApplier(now=lambda: NOW)
    classes = applier.by_kind["resource.k8s.io", "DeviceClass"]

    def stands_for(name: str, resource: str | None) -> None:
        meta = api.ObjectMeta(name=name)
        spec = api.DeviceClassSpec(extended_resource_name=resource)
        classes.apply(api.DeviceClass(metadata=meta, spec=spec))

    def has_class() -> bool:
        return applier.state.view().lookup(DeviceClass, "x.com/gpu") is not None

    stands_for("none", None)
    assert not has_class()
    stands_for("one", "x.com/gpu")
    stands_for("two", "x.com/gpu")
    classes.delete("", "one")
    assert has_class()
    stands_for("two", "x.com/other")
    assert not has_class()
    classes.delete("", "two")
    classes.delete("", "gone")
    assert not applier.state.view().extras.keys() - {(DeviceClass, "x.com/gpu")}


def test_an_object_that_tells_of_another_node_now_no_longer_tells_of_the_old_one() -> None:
    applier = EventApplier(now=lambda: NOW)
    stats = applier.by_kind["diskio.x-k8s.io", "NodeDiskIOStats"]
    for node, left in (("n1", "5"), ("n1", "7"), ("n2", "7")):
        stats.apply(disks("stats", node, left))
    view = applier.state.view()
    assert view.lookup(NodeDisks, "n1") is None
    found = view.lookup(NodeDisks, "n2")
    assert found is not None
    assert found.disks[0].total == 7
    stats.delete("io", "stats")
    assert not applier.state.view().extras


def test_an_object_that_cannot_be_read_changes_nothing() -> None:
    applier = EventApplier(now=lambda: NOW)
    stats = applier.by_kind["diskio.x-k8s.io", "NodeDiskIOStats"]
    stats.apply(disks("stats", "n1"))
    with pytest.raises(ValueError, match="not a quantity"):
        stats.apply(disks("stats", "n2", "much"))
    assert applier.state.view().lookup(NodeDisks, "n1") is not None


def test_observers_get_a_pod_as_it_was_sent() -> None:
    raws: list[bytes] = []

    class Observer:
        def pod_changed(self, _pod: Pod, _version: int, raw: bytes | msgspec.Raw) -> None:
            raws.append(bytes(raw))

        def pod_deleted(self, _namespace: str, _name: str) -> None: ...

    applier = EventApplier(observers=[Observer()])
    sent = b'{"metadata":{"name":"web","namespace":"shop"},"spec":{"hostname":"unmodelled"}}'
    prepare = applier.by_kind["", "Pod"].prepare
    assert prepare is not None
    prepare(msgspec.json.decode(sent, type=api.Pod), msgspec.Raw(sent))()
    applier.pod(pod("web"))
    assert raws == [sent, b""]
