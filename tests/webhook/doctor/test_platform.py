from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.webhook.doctor.fake_installation import (
    FakeInstallation,
    refusing,
)

Json = dict[str, Any]
CRON_JOBS_PATH = "/apis/batch/v1/cronjobs"
POLICY_PATH = "/api/v1/namespaces/kube-system/configmaps/policy"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PROFILES = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: default
    pluginConfig:
      - name: DefaultEvictor
        args: {{nodeFit: true}}
      - name: RemovePodsViolatingNodeAffinity
        args: {{nodeAffinityType: [{types}]}}
      - name: RemoveDuplicates
    plugins:
      balance: {{enabled: [RemoveDuplicates]}}
      deschedule: {{enabled: [{enabled}]}}
"""
PLUGIN = "RemovePodsViolatingNodeAffinity"
STRATEGIES = f"""
apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
strategies:
  {PLUGIN}: {{enabled: true, params: {{nodeAffinityType: [{PREFERRED}]}}}}
  RemoveDuplicates: {{enabled: true}}
"""


KOORDINATOR = f"""
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
dryRun: {{dry_run}}
profiles:
  - name: koord-descheduler
    plugins:
      deschedule: {{{{disabled: [{{{{name: "*"}}}}], enabled: [{{{{name: {PLUGIN}}}}}]}}}}
      balance: {{{{enabled: [{{{{name: LowNodeLoad}}}}]}}}}
    pluginConfig:
      - name: {PLUGIN}
        args: {{{{kind: {PLUGIN}Args, nodeAffinityType: [{PREFERRED}]}}}}
"""


def workload(name: str, image: str, *, labels: Json | None = None, policy: str = "") -> Json:
    volumes = [{"name": "policy", "configMap": {"name": policy}}] if policy else []
    template = {
        "metadata": {},
        "spec": {"containers": [{"name": "main", "image": image}], "volumes": volumes},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "kube-system", "name": name, "labels": labels or {}},
        "spec": {"selector": {}, "template": template},
    }


def cron_job(name: str, image: str, policy: str) -> Json:
    made = workload(name, image, policy=policy)
    spec = {"jobTemplate": {"spec": {"template": made["spec"]["template"]}}}
    return {"metadata": made["metadata"], "spec": spec}


def profiles(*types: str, enabled: str = PLUGIN) -> str:
    return PROFILES.format(types=", ".join(types), enabled=enabled)


def deschedules(installation: FakeInstallation, policy: str) -> None:
    image = "registry.k8s.io/descheduler/descheduler:v0.34.0"
    installation.server.create(workload("evictor", image, policy="policy"))
    installation.server.play("GET", POLICY_PATH, lambda _: {"data": {"policy.yaml": policy}})


async def found(installation: FakeInstallation, folder: Path) -> list[tuple[str, str, str]]:
    checks = await installation.run_checks(folder)
    return [(each.level.value, each.message, each.advice) for each in checks["other controllers"]]


async def test_where_nobody_acts_on_pods_nothing_is_to_be_done(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    assert await found(installation, tmp_path) == [
        ("ok", "no descheduler and no Karpenter is seen", "")
    ]


@pytest.mark.parametrize(
    "policy", [profiles(PREFERRED), STRATEGIES, KOORDINATOR.format(dry_run="false")]
)
async def test_a_descheduler_that_evicts_by_preferences_is_found(
    installation: FakeInstallation, tmp_path: Path, policy: str
) -> None:
    deschedules(installation, policy)
    ((level, message, advice),) = await found(installation, tmp_path)
    assert level == "warning"
    assert message.startswith(
        "descheduler kube-system/evictor evicts running pods by preferred node affinity: "
    )
    assert f"remove `{PREFERRED}` from `nodeAffinityType`" in advice


async def test_a_descheduler_that_evicts_by_requirements_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    deschedules(installation, profiles(REQUIRED))
    ((level, message, _),) = await found(installation, tmp_path)
    assert level == "note"
    assert "whose required node affinity no longer holds" in message


@pytest.mark.parametrize(
    "policy",
    [
        profiles(PREFERRED, enabled="RemoveFailedPods"),
        profiles(),
        KOORDINATOR.format(dry_run="true"),
    ],
)
async def test_a_plugin_that_is_not_enabled_evicts_nobody(
    installation: FakeInstallation, tmp_path: Path, policy: str
) -> None:
    deschedules(installation, policy)
    assert await found(installation, tmp_path) == [
        ("ok", "descheduler kube-system/evictor evicts no pods by node affinity", "")
    ]


async def test_a_descheduler_may_run_as_a_cron_job(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    job = cron_job("nightly", "registry.k8s.io/descheduler/descheduler@sha256:0", "policy")
    installation.server.play("GET", CRON_JOBS_PATH, lambda _: {"items": [job]})
    installation.server.play(
        "GET", POLICY_PATH, lambda _: {"data": {"policy.yaml": profiles(PREFERRED)}}
    )
    ((level, message, _),) = await found(installation, tmp_path)
    assert (level, message.split(" evicts")[0]) == ("warning", "descheduler kube-system/nightly")


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("kind: DeschedulerPolicy\nprofiles: 7", "ConfigMap policy makes no sense"),
        ("kind: DeschedulerPolicy\n{", "ConfigMap policy makes no sense"),
        ("{", "it mounts no ConfigMap with its policy"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_told(
    installation: FakeInstallation, tmp_path: Path, policy: str, why: str
) -> None:
    deschedules(installation, policy)
    ((level, message, advice),) = await found(installation, tmp_path)
    assert level == "warning"
    assert why in message
    assert f"look for `{PLUGIN}`" in advice


async def test_what_cannot_be_read_is_told(installation: FakeInstallation, tmp_path: Path) -> None:
    deschedules(installation, "")
    installation.server.play("GET", POLICY_PATH, refusing(403, "no ConfigMaps for you"))
    installation.server.play("GET", CRON_JOBS_PATH, refusing(403, "no CronJobs for you"))
    jobs, policy = await found(installation, tmp_path)
    assert jobs[:2] == (
        "warning",
        "a descheduler that runs as a CronJob is not looked for: no CronJobs for you",
    )
    assert "ConfigMap policy cannot be read: no ConfigMaps for you" in policy[1]


@pytest.mark.parametrize(
    ("image", "labels", "level"),
    [
        ("public.ecr.aws/karpenter/controller:1.4.0@sha256:0", {}, "warning"),
        ("public.ecr.aws/karpenter/controller:v0.37.2", {}, "warning"),
        ("public.ecr.aws/karpenter/controller:1.5.0", {}, "ok"),
        ("public.ecr.aws/karpenter/controller:1.10.1", {}, "ok"),
        ("mirror/provisioner:latest", {"app.kubernetes.io/name": "karpenter"}, "note"),
        (
            "mirror/provisioner@sha256:0",
            {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/version": "1.4.0"},
            "warning",
        ),
    ],
)
async def test_a_karpenter_before_the_first_that_heeds_no_preferred_hostnames_is_found(
    installation: FakeInstallation, tmp_path: Path, image: str, labels: Json, level: str
) -> None:
    installation.server.create(workload("scaler", image, labels=labels))
    ((found_level, message, _),) = await found(installation, tmp_path)
    assert found_level == level
    assert message.startswith("Karpenter kube-system/scaler is ")


async def test_a_karpenter_that_a_provider_runs_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("GET", "/apis/karpenter.sh", lambda _: {"kind": "APIGroup"})
    ((level, message, _),) = await found(installation, tmp_path)
    assert level == "note"
    assert "its version is unknown" in message
