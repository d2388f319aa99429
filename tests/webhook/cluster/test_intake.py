from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from engine.model import api
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import Sum
from webhook.cluster.intake import READERS, Intake

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


def cpu_of(intake: Intake, node: str) -> int | None:
    usage = intake.state.usage(node)
    return None if usage is None or usage.usage is None else usage.usage["cpu"]


def test_what_is_watched_can_be_forgotten_again() -> None:
    intake = Intake(now=lambda: NOW)
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
    intake = Intake(now=now)
    intake.pod(pod("web"))
    assert intake.state.pod_count == 1
    intake.pod(pod("web", phase="Succeeded"))
    assert intake.state.pod_count == 0
    assert not intake.state.view().sums[Sum.REQUESTS].any()


def test_nobody_else_measures_a_node_that_koordinator_does() -> None:
    intake = Intake(now=lambda: NOW)
    assert not intake.measured_by_koordinator("n1")
    intake.node_metric(metric("n1", "1"))
    assert intake.measured_by_koordinator("n1")
    intake.forget_node_metric("", "n1")
    assert not intake.measured_by_koordinator("n1")
    assert intake.state.usage("n1") is None


def test_a_report_that_was_never_filled_does_not_stand_in_the_way() -> None:
    intake = Intake(now=lambda: NOW)
    intake.state.set_usage(NodeUsage(node_name="n1", usage={"cpu": 500}))
    intake.node_metric(metric("n1", None))
    assert not intake.measured_by_koordinator("n1")
    assert cpu_of(intake, "n1") == 500
    intake.forget_node_metric("", "n1")
    assert cpu_of(intake, "n1") == 500
    intake.node_metric(metric("n1", "2"))
    assert cpu_of(intake, "n1") == 2000


def test_a_report_that_was_never_filled_is_known_to_be_there() -> None:
    """LoadAware tells a node without a report from one whose report is empty."""
    intake = Intake(now=lambda: NOW)
    intake.node_metric(metric("n1", None))
    assert intake.state.usage("n1") is not None
    assert not intake.measured_by_koordinator("n1")
    intake.forget_node_metric("", "n1")
    assert intake.state.usage("n1") is None


def test_a_report_that_is_emptied_is_nobodys() -> None:
    intake = Intake(now=lambda: NOW)
    intake.node_metric(metric("n1", "1"))
    intake.node_metric(metric("n1", None))
    assert not intake.measured_by_koordinator("n1")
    assert cpu_of(intake, "n1") is None
