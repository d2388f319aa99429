from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.doctor.fake_installation import (
    NAME,
    NAMESPACE,
    NOW,
    POD_NAMES,
    PODS_PATH,
    FakeInstallation,
    deployment,
    fake_installation,
)

Json = dict[str, Any]
QUOTAS_PATH = "/api/v1/namespaces/shop/resourcequotas"
HOLD, OTHER = "stowplan.dev/hold", "example.com/quota"


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    """An installation that holds pods, and whose leader releases them."""
    async with fake_installation() as found:
        found.server.replace(deployment(HOLD="true"))
        found.server.create(lease())
        found.server.play("GET", QUOTAS_PATH, lambda _: {"items": []})
        for name in POD_NAMES:
            found.statuses[name]["policies"]["holding"] = ["balanced"]
            found.statuses[name]["held"] = {"held": 0, "overdueSeconds": 0.0, "notHolding": ""}
        yield found


def lease(*, holder: str = "stowplan-a", age: float = 2, releasing: str = "true") -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": NAMESPACE,
            "name": NAME,
            "annotations": {"stowplan.dev/releasing": releasing},
        },
        "spec": {
            "holderIdentity": holder,
            "renewTime": (NOW - timedelta(seconds=age)).isoformat(),
        },
    }


def held(name: str, *gates: str, age: float = 5) -> Json:
    created = NOW - timedelta(seconds=age)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "shop",
            "name": name,
            "creationTimestamp": created.isoformat(),
        },
        "spec": {"schedulingGates": [{"name": gate} for gate in gates or (HOLD,)]},
        "status": {"phase": "Pending"},
    }


async def _found(installation: FakeInstallation, folder: Path, check: str) -> list[tuple[str, str]]:
    found = await installation.run_checks(folder)
    return [(finding.level.value, finding.message) for finding in found[check]]


async def test_pods_that_are_released_in_time_need_nothing(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(held("a"))
    assert await _found(installation, tmp_path, "held pods") == [
        ("ok", "1 pod is held, none of them overdue"),
    ]
    assert await _found(installation, tmp_path, "hold limits") == [
        ("ok", "no ResourceQuota and no deadline of a Deployment is in the way")
    ]


async def test_an_overdue_pod_and_a_leader_that_is_gone_are_problems(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(lease(age=95))
    installation.server.create(held("a"))
    installation.server.create(held("b", age=75))
    assert await _found(installation, tmp_path, "held pods") == [
        ("problem", "stowplan-a renewed the Lease 95 s ago, so no pod is held"),
        ("problem", "1 of 2 pods are held for longer than they may be"),
    ]


@pytest.mark.parametrize(
    ("changed", "level", "message"),
    [
        (lease(holder=""), "problem", "no replica leads, so no pod is held"),
        (
            lease(releasing="false"),
            "warning",
            "stowplan-a leads and releases no pods, so none is held",
        ),
    ],
)
async def test_who_does_not_release_is_said(
    changed: Json, level: str, message: str, installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(changed)
    assert (await _found(installation, tmp_path, "held pods"))[0] == (level, message)


async def test_a_replica_says_why_it_holds_none(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.statuses[POD_NAMES[0]]["held"]["notHolding"] = "full"
    assert (await _found(installation, tmp_path, "held pods"))[1:] == [
        ("warning", "stowplan-a holds no pods: as many pods are held as may be"),
    ]


async def test_gates_of_others_that_stay_for_long_are_noted(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(held("a", HOLD, OTHER, age=700))
    installation.server.create(held("b", HOLD, OTHER, age=500))
    assert await _found(installation, tmp_path, "held pods") == [
        ("ok", "2 pods are held, none of them overdue"),
        (
            "note",
            "1 held pod has waited for gates of others for more than 10 minutes: shop/a",
        ),
    ]


async def test_policies_and_pods_that_wait_for_holds_are_found_where_they_are_off(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment())
    installation.server.create(held("a"))
    assert await _found(installation, tmp_path, "held pods") == [
        ("problem", "1 pod is held, and `hold.enabled` is off: nobody releases them"),
        ("warning", "policies have pods held, and `hold.enabled` is off: balanced"),
    ]


async def test_a_resource_quota_that_held_pods_use_up_is_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(held("a"))
    quota = {
        "metadata": {"name": "team"},
        "status": {
            "hard": {"pods": "10", "requests.cpu": "4", "requests.memory": "0"},
            "used": {"pods": "7", "requests.cpu": "4000m"},
        },
    }
    installation.server.play("GET", QUOTAS_PATH, lambda _: {"items": [quota]})
    assert await _found(installation, tmp_path, "hold limits") == [
        (
            "warning",
            "ResourceQuota shop/team is used up (requests.cpu) while pods are held there: 1",
        )
    ]


async def test_a_deadline_that_is_shorter_than_a_hold_is_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"namespace": "shop", "name": "web"},
            "spec": {"progressDeadlineSeconds": 30, "selector": {}, "template": {"metadata": {}}},
        }
    )
    ((level, message),) = await _found(installation, tmp_path, "hold limits")
    assert level == "warning"
    assert message.startswith("1 Deployments count as failed (`progressDeadlineSeconds`) before")
    assert message.endswith(": shop/web")


async def test_the_rights_to_release_pods_are_checked(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.missing_rights.add(("patch", "pods"))
    found = await _found(installation, tmp_path, "rights")
    account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
    assert ("problem", f"{account} may not patch pods") in found
    assert ("problem", f"{account} may not patch pods/status") in found


async def test_a_pod_that_comes_back_held_is_well(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.advice.clear()
    installation.advice["stowplan.dev/hold-reasons"] = "order"
    found = await _found(installation, tmp_path, "admission")
    assert found[0] == ("ok", "a pod comes back held, to be decided when it is released")


async def test_a_gate_that_another_webhook_adds_after_ours_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    def admit(pod: Json) -> Json:
        metadata = {"name": "tried", "annotations": {"stowplan.dev/hold-reasons": "order"}}
        gates = [{"name": HOLD}, {"name": OTHER}]
        return {"metadata": metadata, "spec": {**pod["spec"], "schedulingGates": gates}}

    installation.server.play("POST", PODS_PATH, admit)
    level, message = (await _found(installation, tmp_path, "admission"))[0]
    assert level == "warning"
    assert message.startswith(
        f"a pod comes back held, and with the gate `{OTHER}` that another webhook adds after ours"
    )
