from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.doctor.fake_installation import (
    NAME,
    FakeInstallation,
    deployment,
    fake_installation,
    refusing,
)

Json = dict[str, Any]
GUARD = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/stowplan-hold-gate"
OK = ("ok", "pods of 1 namespace queue for quota, nothing is in the way")


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    """An installation whose namespace `shop` has a quota that queues; nothing is in the way."""
    async with fake_installation() as found:
        server = found.server
        server.replace(deployment(HOLD="true", QUOTA_MODE="Enforce"))
        server.create(namespace("shop", mode="Queue"))
        server.create(namespace("mail"))
        server.create(quota("shop", minimum={"cpu": "6"}, maximum={"cpu": "8", "pods": 20}))
        server.create(quota("mail", minimum={"cpu": "100"}))
        server.create(node("node-b", cpu="8"))
        server.play("GET", GUARD, lambda _: {"metadata": {"name": f"{NAME}-hold-gate"}})
        for name in ("shop", "empty"):
            path = f"/api/v1/namespaces/{name}/resourcequotas"
            server.play("GET", path, lambda _: {"items": []})
        yield found


def namespace(name: str, mode: str = "") -> Json:
    annotations = {"stowplan.dev/quota-mode": mode} if mode else {}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def quota(
    name: str,
    minimum: Json | None = None,
    maximum: Json | None = None,
    **annotations: str,
) -> Json:
    figures = {f"stowplan.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": name, "name": "team", "annotations": figures},
        "spec": {"min": minimum or {}, "max": maximum or {"cpu": "8"}},
    }


def node(name: str, cpu: str, **labels: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": "?"}},
    }


def rollout(name: str, seconds: int | None = None) -> Json:
    spec: Json = {"selector": {}, "template": {"metadata": {}}}
    if seconds is not None:
        spec["progressDeadlineSeconds"] = seconds
    metadata = {"namespace": "shop", "name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


async def _found(installation: FakeInstallation, folder: Path) -> list[tuple[str, str]]:
    found = await installation.run_checks(folder)
    return [(finding.level.value, finding.message) for finding in found["quota queues"]]


async def test_a_queue_that_works_needs_nothing(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    assert await _found(installation, tmp_path) == [OK]


async def test_where_nothing_queues_nothing_is_said(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(namespace("shop"))
    assert await _found(installation, tmp_path) == []


async def test_without_held_pods_nothing_can_queue(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment(QUOTA_MODE="Enforce"))
    assert await _found(installation, tmp_path) == [
        (
            "problem",
            (
                "quota mode is Queue in shop, and `hold.enabled` is off: pods are denied, as with"
                " Enforce"
            ),
        )
    ]


async def test_a_namespace_that_asks_for_a_queue_needs_a_quota(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(namespace("empty", mode="Queue"))
    found = await _found(installation, tmp_path)
    assert found == [("warning", "quota mode is Queue and there is no ElasticQuota in empty")]


async def test_a_quota_that_may_not_reclaim_hard_is_named(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(
        quota("shop", {"cpu": "6"}, {"cpu": "8", "pods": 20}, reclaim="Hard")
    )
    assert await _found(installation, tmp_path) == [
        ("warning", "`stowplan.dev/reclaim: Hard` of shop/team counts as On")
    ]
    allowed = {"HOLD": "true", "QUOTA_MODE": "Enforce", "HARD_RECLAIM_NAMESPACES": "mail,shop"}
    installation.server.replace(deployment(**allowed))
    assert await _found(installation, tmp_path) == [OK]


async def test_quotas_may_not_be_guaranteed_more_than_nodes_have(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    # With Queue for all, 6 + 100 cores are guaranteed, and node-b has 8.
    installation.server.replace(deployment(HOLD="true", QUOTA_MODE="Queue"))
    installation.server.play("GET", "/api/v1/namespaces/mail/resourcequotas", lambda _: {})
    assert await _found(installation, tmp_path) == [
        ("warning", "ElasticQuotas are guaranteed 106 of `cpu`, of which nodes have 8")
    ]
    settings = {"HOLD": "true", "QUOTA_MODE": "Queue", "QUOTA_COHORT": "SumOfMin"}
    installation.server.replace(deployment(**settings))
    assert [level for level, _ in await _found(installation, tmp_path)] == ["ok"]


async def test_only_nodes_of_the_cohort_count(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    settings = {"HOLD": "true", "QUOTA_COHORT_NODES": "pool=batch"}
    installation.server.replace(deployment(**settings))
    installation.server.create(node("node-c", cpu="5500m", pool="batch"))
    assert await _found(installation, tmp_path) == [
        ("warning", "ElasticQuotas are guaranteed 6 of `cpu`, of which nodes have 5500m")
    ]


@pytest.mark.parametrize(
    ("hard", "named"),
    [
        ({"requests.cpu": "8"}, "cpu"),
        ({"cpu": "9", "requests.memory": "1Gi"}, ""),
        ({"count/pods": "20"}, "count/pods"),
        ({"pods": "21", "requests.cpu": "lots"}, ""),
    ],
)
async def test_a_resource_quota_must_leave_room_for_what_waits(
    hard: Json, named: str, installation: FakeInstallation, tmp_path: Path
) -> None:
    found = {"metadata": {"namespace": "shop", "name": "all"}, "status": {"hard": hard}}
    path = "/api/v1/namespaces/shop/resourcequotas"
    installation.server.play("GET", path, lambda _: {"items": [found]})
    expected = (
        "warning",
        f"ResourceQuota shop/all allows no more ({named}) than ElasticQuota team: no pod can wait",
    )
    assert await _found(installation, tmp_path) == [expected if named else OK]


@pytest.mark.parametrize(("queued", "is_told"), [("6", False), ("7", True), ("", False)])
async def test_more_pods_may_not_wait_than_a_resource_quota_lets_exist(
    queued: str, installation: FakeInstallation, tmp_path: Path, *, is_told: bool
) -> None:
    waiting = {"queued": queued} if queued else {}
    installation.server.replace(
        quota("shop", minimum={"cpu": "6"}, maximum={"cpu": "8", "pods": 20}, **waiting)
    )
    status = {"hard": {"pods": "50"}, "used": {"pods": "44"}}  # 6 are left
    found = {"metadata": {"namespace": "shop", "name": "all"}, "status": status}
    path = "/api/v1/namespaces/shop/resourcequotas"
    installation.server.play("GET", path, lambda _: {"items": [found]})
    message = (
        f"ResourceQuota shop/all lets 6 more pods exist (`pods`), and {queued} wait for"
        " ElasticQuota team: the next ones are soon denied rather than queued"
    )
    assert await _found(installation, tmp_path) == [("warning", message) if is_told else OK]


async def test_a_deployment_must_not_give_up_before_its_pods_are_released(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    # 20 pods wait, one is released each 35 s: the last one in 700 s.
    figures = {"queued": "20", "seconds_per_release": "35"}
    installation.server.replace(quota("shop", {"cpu": "6"}, None, **figures))
    installation.server.create(rollout("web"))  # 600 s by default
    installation.server.create(rollout("patient", 700))
    assert await _found(installation, tmp_path) == [
        (
            "warning",
            (
                "1 Deployments count as failed (`progressDeadlineSeconds`) before the last pod that"
                " queues now is released: shop/web"
            ),
        )
    ]


async def test_a_queue_that_anybody_may_leave_is_noted(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("GET", GUARD, refusing(404, "not found"))
    found = await _found(installation, tmp_path)
    assert found == [
        (
            "note",
            (
                "`hold.gateGuard.enabled` is off: whoever may patch a pod may let it overtake"
                " others, up to max"
            ),
        ),
        OK,
    ]
