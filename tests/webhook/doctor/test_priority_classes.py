from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.model.pod_classes import MINIMUM_PRIORITY_ANNOTATION, TOLERATION_SECONDS_ANNOTATION
from tests.webhook.doctor.fake_installation import (
    FakeInstallation,
    deployment,
    fake_installation,
)
from webhook.doctor import Finding, Level

PATIENT = {MINIMUM_PRIORITY_ANNOTATION: "100", TOLERATION_SECONDS_ANNOTATION: "60"}


@pytest.fixture
async def installation() -> AsyncIterator[FakeInstallation]:
    async with fake_installation() as found:
        found.server.replace(deployment(HOLD="true", PREEMPTION="true"))
        yield found


def serve(installation: FakeInstallation, *classes: dict[str, Any]) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    installation.server.play("GET", path, lambda _: {"items": list(classes)})


def priority_class(
    name: str, value: int, policy: str = "PreemptLowerPriority", **annotations: str
) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations}
    return {"metadata": metadata, "value": value, "preemptionPolicy": policy}


async def findings(installation: FakeInstallation, folder: Path) -> list[Finding]:
    return (await installation.run_checks(folder))["priority classes"]


async def test_a_toleration_that_the_scheduler_ignores_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    serve(
        installation,
        priority_class("patient", 10, **PATIENT),
        priority_class("low", 5),
        priority_class("rival", 50),
        priority_class("ours", 60, "Never"),
        priority_class("enough", 100),
        priority_class("system", 2_000_000_000),
    )
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.WARNING
    assert found.message.endswith("it preempts for rival")
    assert "Never" in found.advice


async def test_a_toleration_that_cannot_be_read_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    annotations = {TOLERATION_SECONDS_ANNOTATION: "1h"}
    serve(installation, priority_class("patient", 10, **annotations))
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.WARNING
    assert "`1h` is not an integer" in found.message


async def test_classes_that_nobody_preempts_in_vain_are_right(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    serve(
        installation,
        priority_class("patient", 10, **PATIENT),
        priority_class("ours", 60, "Never"),
    )
    (found,) = await findings(installation, tmp_path)
    assert found.level is Level.OK


async def test_where_nobody_is_evicted_no_class_is_read(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment(HOLD="true"))
    assert await findings(installation, tmp_path) == []
