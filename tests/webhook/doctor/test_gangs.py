from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.webhook.doctor.fake_installation import (
    FakeInstallation,
    deployment,
    fake_installation,
)
from webhook.doctor import Finding, Level

Json = dict[str, Any]
LABEL = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh"


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    async with fake_installation() as found:
        found.server.replace(deployment(HOLD="true"))
        for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
            found.server.install(f"podgroups.{group}")
        yield found


async def findings(installation: FakeInstallation, folder: Path) -> list[Finding]:
    return (await installation.run_checks(folder))["gangs"]


def pod_group(name: str = "train", least: int = 4) -> Json:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minMember": least},
    }


def pod(name: str, pod_group: str, *, held: bool = True) -> Json:
    gates = [{"name": "stowplan.dev/hold"}] if held else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {LABEL: pod_group}},
        "spec": {"schedulingGates": gates, "containers": [{"name": "c"}]},
        "status": {"phase": "Pending"},
    }


def stateful_set(policy: str | None, **template: object) -> Json:
    spec: Json = {"replicas": 4, "template": {"metadata": template, "spec": {}}}
    if policy is not None:
        spec["podManagementPolicy"] = policy
    return {"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def serve(installation: FakeInstallation, *stateful_sets: Json) -> None:
    path = "/apis/apps/v1/statefulsets"
    installation.server.play("GET", path, lambda _: {"items": list(stateful_sets)})


async def test_gangs_that_can_start_are_right(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(pod_group())
    installation.server.create(pod("a", "train"))
    serve(installation, stateful_set("Parallel", labels={LABEL: "train"}))
    (found,) = await findings(installation, tmp_path)
    assert (found.level, found.message) == (Level.OK, "1 PodGroup, 1 held pod of gangs")


@pytest.mark.parametrize("policy", [None, "OrderedReady"])
@pytest.mark.parametrize(
    "template",
    [
        {"labels": {LABEL: "train"}},
        {"annotations": {f"{KOORDINATOR}/name": "x", f"{KOORDINATOR}/min-available": "4"}},
    ],
)
async def test_a_stateful_set_that_creates_pods_in_order_is_a_problem(
    installation: FakeInstallation, tmp_path: Path, policy: str | None, template: Json
) -> None:
    installation.server.create(pod_group())
    serve(installation, stateful_set(policy, **template))
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.PROBLEM
    assert "StatefulSet shop/web" in found.message
    assert "waits until 4 exist" in found.message


async def test_a_stateful_set_of_no_gang_or_of_a_gang_of_one_is_right(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(pod_group(least=1))
    one, none = stateful_set(None, labels={LABEL: "train"}), stateful_set(None, labels={"a": "b"})
    serve(installation, one, none)
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.OK


async def test_pod_groups_that_do_not_exist_are_named(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        installation.server.create(pod(name, "missing"))
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.WARNING
    assert found.message.startswith("2 held pods name PodGroups that do not exist")
    assert "shop/missing" in found.message


async def test_pods_that_name_pod_groups_where_there_are_none_are_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        installation.server.uninstall(f"podgroups.{group}")
    assert not await findings(installation, tmp_path)
    installation.server.create(pod("a", "train", held=False))
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.WARNING
    assert "shop/a" in found.message


async def test_where_nothing_is_held_nothing_is_checked(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment())
    serve(installation, stateful_set(None, labels={LABEL: "train"}))
    assert not await findings(installation, tmp_path)
