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
Conditions = dict[str, tuple[str, str, str]]


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    async with fake_installation() as found:
        found.server.replace(deployment(POLICY_RESOURCES="true"))
        for plural in ("placementpolicies", "namespacedplacementpolicies"):
            found.server.install(f"{plural}.stowplan.dev")
        yield found


async def findings(installation: FakeInstallation, folder: Path) -> list[Finding]:
    return (await installation.run_checks(folder))["policies"]


def policy(name: str, conditions: Conditions, *, namespace: str = "") -> Json:
    """Return a policy with conditions: status, reason and message by type."""
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "NamespacedPlacementPolicy" if namespace else "PlacementPolicy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {},
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "observedGeneration": 1,
                }
                for kind, (status, reason, message) in conditions.items()
            ]
        },
    }


IN_FORCE = {"Accepted": ("True", "Accepted", "in force"), "Degraded": ("False", "AsExpected", "")}


async def test_policies_that_are_in_force_are_right(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.create(policy("a", IN_FORCE))
    found = await findings(installation, tmp_path)
    assert found == [
        Finding(Level.OK, "1 PlacementPolicy, all in force"),
        Finding(Level.OK, "0 namespacedplacementpolicies, all in force"),
    ]


async def test_what_is_broken_degraded_or_not_judged_is_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    mistakes = "it has mistakes; nothing is in force\nplacementpolicies/b:7:1: unknown key\n | x"
    broken = {"Accepted": ("False", "Invalid", mistakes)}
    slow = {**IN_FORCE, "Degraded": ("True", "SlowParts", "x: slow\ny: slow")}
    installation.server.create(policy("b", broken))
    installation.server.create(policy("s", slow, namespace="shop"))
    installation.server.create(policy("n", {}, namespace="shop"))
    found = await findings(installation, tmp_path)
    assert [each.level for each in found] == [Level.WARNING] * 3
    first = "it has mistakes; nothing is in force placementpolicies/b:7:1: unknown key"
    assert [each.message for each in found] == [
        f"PlacementPolicy b is not in force as it was written (Invalid): {first}",
        "1 NamespacedPlacementPolicy has no status, such as shop/n",
        "NamespacedPlacementPolicy shop/s is degraded (SlowParts): x: slow",
    ]


async def test_a_status_of_an_earlier_generation_counts_for_nothing(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    written = policy("a", IN_FORCE)
    written["metadata"]["generation"] = 2
    installation.server.create(written)
    (first, _) = await findings(installation, tmp_path)
    assert first.message == "1 PlacementPolicy has no status, such as a"


async def test_definitions_that_are_missing_are_found(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.uninstall("placementpolicies.stowplan.dev")
    (first, _) = await findings(installation, tmp_path)
    assert (
        first.message == "the API server has no placementpolicies: policies come from files alone"
    )
    assert "crds.placementPolicy.install" in first.advice


async def test_nothing_is_asked_where_policies_come_from_files_alone(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment(POLICY_RESOURCES="false"))
    assert await findings(installation, tmp_path) == []
