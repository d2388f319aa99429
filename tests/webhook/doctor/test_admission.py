from __future__ import annotations

from pathlib import Path

import pytest

from tests.webhook.doctor.fake_installation import (
    NAMESPACE,
    POD_NAMES,
    FakeInstallation,
    configuration,
    deployment,
)
from webhook.doctor import Level


def selector(label: str, operator: str, value: str) -> dict[str, object]:
    requirement = {"key": label, "operator": operator, "values": [value]}
    return {"matchExpressions": [requirement]}


@pytest.mark.parametrize(
    ("mode", "operator", "level", "message", "advice"),
    [
        ("Audit", "NotIn", Level.NOTE, "is Audit: no pod", "--set placement.mode=Enforce"),
        ("Audit", "In", Level.NOTE, "is Audit: no pod", "--set placement.rollout=Labelled"),
        ("Enforce", "In", Level.NOTE, "and in no others", "--set placement.rollout=All"),
        ("Enforce", "NotIn", Level.OK, "in all namespaces", ""),
    ],
)
async def test_each_stage_of_a_rollout_names_the_next(
    installation: FakeInstallation,
    tmp_path: Path,
    *,
    mode: str,
    operator: str,
    level: Level,
    message: str,
    advice: str,
) -> None:
    values = "enabled" if operator == "In" else "disabled"
    chosen = selector("stowplan.dev/placement", operator, values)
    made = configuration("Mutating", installation.authority, namespaceSelector=chosen)
    installation.server.replace(made)
    installation.server.replace(deployment(PLACEMENT_MODE=mode, QUOTA_MODE="Off"))
    (finding,) = (await installation.run_checks(tmp_path))["rollout"]
    assert (finding.level, message in finding.message, advice in finding.advice) == (
        level,
        True,
        True,
    )
    assert "--reset-then-reuse-values" in finding.advice or level is Level.OK


async def test_quotas_have_a_rollout_of_their_own(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment(PLACEMENT_MODE="Enforce", QUOTA_MODE="Audit"))
    _, quota = (await installation.run_checks(tmp_path))["rollout"]
    assert quota.message == "quota.mode is Audit: no pod beyond its quota is denied yet"


@pytest.mark.parametrize(
    ("listed", "probed", "level", "message"),
    [
        (["stowplan.dev", "shop"], True, Level.OK, "asks in namespaces with a quota: 1"),
        ([], True, Level.NOTE, "for now the API server asks about all namespaces"),
        (["stowplan.dev"], False, Level.PROBLEM, "has no webhook rollout-probe.stowplan.dev"),
    ],
)
async def test_of_an_automatic_rollout_it_says_how_many_namespaces_are_asked_about(
    installation: FakeInstallation,
    tmp_path: Path,
    *,
    listed: list[str],
    probed: bool,
    level: Level,
    message: str,
) -> None:
    own = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": listed}
    chosen = {"matchExpressions": [own] if listed else []}
    made = configuration("Validating", installation.authority, namespaceSelector=chosen)
    names = ["rollout.stowplan.dev", *(["rollout-probe.stowplan.dev"] if probed else [])]
    made["webhooks"] += [{**made["webhooks"][0], "name": name, "rules": []} for name in names]
    installation.server.replace(made)
    modes = {"PLACEMENT_MODE": "Off", "QUOTA_MODE": "Enforce", "QUOTA_ROLLOUT": "Automatic"}
    installation.server.replace(deployment(**modes))
    findings = await installation.run_checks(tmp_path)
    _, automatic = findings["rollout"]
    assert (automatic.level, message in automatic.message) == (level, True)
    if listed:  # the pod that is tried is in none of them, and nothing is amiss
        assert not any("without asking us" in each.message for each in findings["admission"])


async def test_a_replica_that_requires_client_certificates_is_read_on_the_port_of_the_probes(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    server = installation.server
    for name in POD_NAMES:
        pod = server.read("pods", NAMESPACE, name)
        container = pod["spec"]["containers"][0]
        container["ports"].append({"name": "probes", "containerPort": 9445})
        container["env"].append({"name": "STOWPLAN_CLIENT_CA", "value": "/ca.crt"})
        server.replace(pod)
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/https:{name}:9445/proxy/statusz"
        server.play("GET", path, installation.replica(name))
    await installation.run_checks(tmp_path)
    read = {one.path for one in server.requests if "/proxy/" in one.path}
    assert {path.split(":")[2].partition("/")[0] for path in read} == {"9445"}
