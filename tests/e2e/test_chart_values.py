"""The values of the chart: which it refuses, and what Helm makes of the others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kubernetes import client

from tests.e2e.build import executables
from tests.e2e.chart import (
    CHART,
    IMAGE,
    VALUE_SETS,
    HelmError,
    helm,
    of_kind,
    rendered,
    value_flags,
)
from tests.e2e.cluster import Json
from webhook.settings import Settings

_OF_POLICIES = "policies.stowplan.dev"
_PROBE = "rollout-probe.stowplan.dev"
_OF_OPERATORS = {"cert-manager.io", "monitoring.coreos.com"}
_NO_SLEEP = {"preStop": {"exec": {"command": ["sleep", "0"]}}}


def test_there_are_enough_sets_of_values() -> None:
    assert len(VALUE_SETS) >= 12


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_helm_finds_nothing_to_complain_about(values: Path) -> None:
    helm("lint", CHART, "--strict", "--quiet", *value_flags(values))


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_manifests_have_only_fields_that_their_kinds_have(values: Path) -> None:
    for manifest in rendered(values):
        group, _, version = manifest["apiVersion"].rpartition("/")
        if group in _OF_OPERATORS:
            continue
        model = getattr(client, f"{version.capitalize()}{manifest['kind']}")
        model.model_validate(manifest)  # its config forbids others


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"hostNetwork": True, "webhook.port": 10250}, "the kubelet has 10250"),
        ({"hostNetwork": True, "metrics.port": 10240}, "the kubelet has 10250"),
        ({"replica": 3}, "replica"),
        ({"replicas": "three"}, "replicas"),
        ({"placement.failurePolicy": "Open"}, "failurePolicy"),
        ({"placement.timeoutSeconds": 60}, "timeoutSeconds"),
        ({"quota.mode": True}, "mode"),
        ({"image.repository": ""}, "`make image load` builds one and loads it into kind"),
        ({"image.digest": "sha256:abc"}, "digest"),
        ({"webhook.url": "http://127.0.0.1"}, "url"),
        ({"settings.logLevel": "loud"}, "logLevel"),
        ({"settings.usagePollSeconds": 1}, "usagePollSeconds"),
        ({"settings.quotaMode": "Off"}, "quotaMode"),
        ({"policies.inline": {"Bad Name": {}}}, "Bad Name"),
        ({"certificates.mode": "Manual"}, "mode"),
        ({"policies.shipped": ["balancd"]}, "there is no policy `balancd`; there are: arm-when"),
        (
            {"policies.shipped": [], "policies.resources.enabled": False},
            "there is no policy: name one",
        ),
        ({"certificates.mode": "ExistingSecret"}, "certificates.secretName"),
        ({"webhook.caBundle": "QUJD"}, "fought over"),
        ({"webhook.port": 9444}, "are the same"),
        ({"webhook.probePort": 9443}, "are the same"),
        ({"webhook.clients": {"caConfigMap": "clients"}}, "together, or neither"),
        ({"webhook.clients": {"allowedNames": ["kube-apiserver"]}}, "together, or neither"),
        ({"webhook.caBundle": "-----BEGIN CERTIFICATE-----"}, "caBundle"),
        ({"podDisruptionBudget.maxUnavailable": "some"}, "maxUnavailable"),
        ({"podDisruptionBudget.maxUnavailable": 0}, "minimum"),
        ({"podDisruptionBudget.minAvailable": "100%"}, "minAvailable"),
        ({"podDisruptionBudget.minAvailable": "2"}, "minAvailable"),
        ({"podDisruptionBudget.minAvailable": 3}, "no node of stowplan, which has 3 pods"),
        ({"podDisruptionBudget.minAvailable": 2}, "no node of stowplan-control, which has 2 pods"),
        ({"podDisruptionBudget.minAvailable": "51%"}, "no node of stowplan-control"),
        ({"dnsPolicy": "Host"}, "dnsPolicy"),
        ({"dnsPolicy": "None"}, "needs dnsConfig.nameservers"),
        ({"dnsConfig": {"servers": []}}, "servers"),
        ({"service.type": "ExternalName"}, "type"),
        ({"namespaceOverride": "Stow_Plan"}, "namespaceOverride"),
        ({"metrics.serviceMonitor.scrapeTimeout": "10"}, "scrapeTimeout"),
        ({"global.imageRegistri": "x"}, "global.imageRegistri: this chart has no such value"),
        ({"fullnameOverride": "Stow_Plan"}, "fullnameOverride"),
        ({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}}, "metrics.enabled"),
        ({"autoscaling": {"enabled": True, "maxReplicas": 2}}, "is above"),
        ({"quota.matchConditions": [{"name": "half"}]}, "`expression`"),
        ({"hold.seconds": 5}, "seconds"),
        ({"hold.gateGuard.enabled": True}, "hold.gateGuard needs hold.enabled"),
        ({"hold.enabled": True, "placement.mode": "Off"}, "hold.enabled needs"),
        ({"quota.mode": "Queue"}, "quota.mode Queue needs hold.enabled"),
        ({"quota.hardReclaimNamespaces": ["shop"]}, "needs quota.mode Queue"),
        (
            {
                "quota": {"mode": "Queue", "hardReclaimNamespaces": ["shop"]},
                "hold.enabled": True,
                "admissionPolicy.enabled": False,
            },
            "needs admissionPolicy.enabled",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values: Json, why: str) -> None:
    with pytest.raises(HelmError, match=why):
        rendered(values=values)


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_the_webhook_takes_the_settings_it_is_given(
    values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests = rendered(values)
    pod_spec = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    container = pod_spec["containers"][0]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", "10.0.0.1"))  # of the pod
    taken = Settings()
    assert container["args"][0] == "serve"
    # Whoever is told to end has time for all it wants to do.
    _, seconds = container.get("lifecycle", _NO_SLEEP)["preStop"]["exec"]["command"]
    assert pod_spec["terminationGracePeriodSeconds"] > int(seconds) + taken.drain_seconds
    for configuration in (one for one in manifests if "WebhookConfiguration" in one["kind"]):
        assert taken.tls_cert or taken.webhook_configurations == (
            configuration["metadata"]["name"],
        )
        for webhook in configuration["webhooks"]:
            if webhook["name"] == _OF_POLICIES:  # they are checked wherever they are
                assert "namespaceSelector" not in webhook
                continue
            if webhook["name"] == _PROBE:
                continue
            (excluded,) = (
                one["values"]
                for one in webhook["namespaceSelector"]["matchExpressions"]
                if one["key"] == "kubernetes.io/metadata.name"
            )
            assert set(excluded) == set(taken.excluded_namespaces)


def test_an_image_is_taken_by_its_digest_where_there_is_one() -> None:
    digest = f"sha256:{'0' * 64}"
    images = {
        container["image"]
        for one in rendered(values={"image.digest": digest, "image.tag": "edge"})
        for spec in [one.get("spec", {}).get("template", one).get("spec", {})]
        for container in spec.get("containers", ())
    }
    assert images == {f"{IMAGE['image.repository']}@{digest}"}


@pytest.mark.parametrize(
    ("values", "replicas", "kinds"),
    [
        ({}, 3, {"PodDisruptionBudget"}),
        ({"replicas": 1, "control.replicas": 1}, 1, set()),
        ({"replicas": 1, "control.mode": "Embedded"}, 1, set()),
        ({"podDisruptionBudget.enabled": False}, 3, set()),
        (
            {"autoscaling.enabled": True},
            None,
            {"HorizontalPodAutoscaler", "PodDisruptionBudget"},
        ),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 1}, "control.replicas": 1},
            None,
            {"HorizontalPodAutoscaler"},
        ),
    ],
)
def test_what_keeps_it_available_fits_the_number_of_replicas(
    values: Json, replicas: int | None, kinds: set[str]
) -> None:
    manifests = rendered(values=values)
    assert of_kind(manifests, "Deployment")["spec"].get("replicas") == replicas
    made = {one["kind"] for one in manifests}
    assert made & {"HorizontalPodAutoscaler", "PodDisruptionBudget"} == kinds


@pytest.mark.parametrize(
    ("values", "namespace", "expects"),
    [
        ({"binding.enabled": False}, "stowplan-system", "true"),
        ({"webhook.url": "https://stowplan.example.com"}, "stowplan-system", "true"),
        (  # any of three answers, and one leads
            {"webhook.url": "https://stowplan.example.com", "control.mode": "Embedded"},
            "stowplan-system",
            "true",
        ),
        ({}, "stowplan-system", "false"),  # it is placed at its binding
        ({"placement.mode": "Audit"}, "stowplan-system", "false"),
        ({"enabled": False}, "stowplan-system", "false"),
        ({"tests.expectAdvice": False}, "stowplan-system", "false"),
        ({"binding.enabled": False, "excludedNamespaces": ["default"]}, "stowplan-system", "false"),
        ({"binding.enabled": False}, "default", "false"),  # our own namespace is left alone
    ],
)
def test_advice_is_expected_only_of_an_installation_that_gives_it(
    values: Json, namespace: str, expects: str
) -> None:
    manifests = rendered(namespace=namespace, values={"placement.mode": "Enforce", **values})
    tried = next(one for one in manifests if one["kind"] == "Pod")
    (given,) = (
        one["value"]
        for one in tried["spec"]["containers"][0]["env"]
        if one["name"] == "EXPECT_ADVICE"
    )
    assert given == expects


@pytest.mark.parametrize("mode", ["Off", False])
def test_a_mode_is_off_with_and_without_quotes(mode: object) -> None:
    manifests = rendered(values={"placement.mode": mode, "quota.mode": mode})
    assert not [one for one in manifests if "WebhookConfiguration" in one["kind"]]
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert (given["STOWPLAN_PLACEMENT_MODE"], given["STOWPLAN_QUOTA_MODE"]) == ("Off", "Off")


def test_what_is_installed_first_advises_and_denies_nobody() -> None:
    (container,) = of_kind(rendered(), "Deployment")["spec"]["template"]["spec"]["containers"]
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert (given["STOWPLAN_PLACEMENT_MODE"], given["STOWPLAN_QUOTA_MODE"]) == ("Audit", "Audit")


def test_its_token_lives_for_an_hour() -> None:
    spec = of_kind(rendered(), "Deployment")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    (volume,) = (one for one in spec["volumes"] if one["name"] == "service-account")
    token, *_ = (one["serviceAccountToken"] for one in volume["projected"]["sources"][:1])
    assert token == {"path": "token", "expirationSeconds": 3600}


def test_probes_lifecycle_and_relabelings_are_values() -> None:
    relabeling = {"action": "labeldrop", "regex": "pod"}
    manifests = rendered(
        values={
            "probes.readiness": {"failureThreshold": 5},
            "lifecycle": {"preStop": {"sleep": {"seconds": 7}}},
            "metrics.serviceMonitor": {
                "enabled": True,
                "relabelings": [relabeling],
                "scrapeTimeout": "5s",
            },
        }
    )
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["failureThreshold"] == 5
    assert container["readinessProbe"]["periodSeconds"] == 2  # the rest stays
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    (endpoint,) = of_kind(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["relabelings"] == [relabeling]
    assert endpoint["scrapeTimeout"] == "5s"


@pytest.mark.parametrize(
    ("values", "peers"),
    [
        ({}, [{"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}]),
        ({"networkPolicy.metricsFrom": []}, None),
        ({"metrics.enabled": False}, None),
    ],
)
def test_metrics_are_open_to_the_monitoring_namespace_alone(
    values: Json, peers: list[Json] | None
) -> None:
    ingress = of_kind(rendered(values=values), "NetworkPolicy")["spec"]["ingress"]
    ports = {port["port"]: rule.get("from") for rule in ingress for port in rule["ports"]}
    found = ports.get("metrics")
    assert (found and [one["namespaceSelector"] for one in found]) == peers
    assert ports["webhook"] is None


def test_what_is_global_to_a_release_is_followed() -> None:
    values = {
        "image.repository": "team/stowplan",
        "global.imageRegistry": "mirror.example.com",
        "global.imagePullSecrets": [{"name": "pull"}],
    }
    for manifest in rendered(values=values):
        if manifest["kind"] not in {"Deployment", "Job"}:
            continue
        spec = manifest["spec"]["template"]["spec"]
        assert spec["imagePullSecrets"] == [{"name": "pull"}]
        assert spec["containers"][0]["image"].startswith("mirror.example.com/team/stowplan:")
    own = rendered(values={**values, "image.registry": "registry.example.com"})
    (container,) = of_kind(own, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/team/stowplan:")


def test_globals_of_other_charts_of_a_release_are_accepted(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "charts" / "stowplan")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: platform\nversion: 1.0.0\n")
    values = {
        "stowplan.image.repository": "team/stowplan",
        "global.imageRegistry": "mirror.example.com",
        "global.ofAnotherChart": True,
    }
    flags = value_flags(values=values)
    text = helm("template", "platform", tmp_path, "--kube-version", "1.36.0", *flags)
    assert "image: mirror.example.com/team/stowplan:" in text


def test_a_namespace_of_its_own_is_that_of_all_it_makes_and_names() -> None:
    values = {
        "hold.enabled": True,
        "dashboard.enabled": True,
        "flowSchema.enabled": True,
        "certificates.mode": "CertManager",
        "metrics.serviceMonitor.enabled": True,
        "metrics.prometheusRule.enabled": True,
    }
    there = rendered(namespace="stowplan-system", values=values)
    moved = rendered(
        namespace="platform", values={**values, "namespaceOverride": "stowplan-system"}
    )
    assert moved == there


@pytest.mark.parametrize(
    ("values", "budgets"),
    [
        ({}, [{"maxUnavailable": 1}, {"maxUnavailable": 1}]),
        ({"minAvailable": 1}, [{"minAvailable": 1}, {"minAvailable": 1}]),
        ({"minAvailable": "50%"}, [{"minAvailable": "50%"}, {"minAvailable": "50%"}]),
    ],
)
def test_a_budget_has_one_of_its_two_numbers(values: Json, budgets: list[Json]) -> None:
    manifests = rendered(values={f"podDisruptionBudget.{key}": one for key, one in values.items()})
    numbers = ("minAvailable", "maxUnavailable")
    assert budgets == [
        {key: one["spec"][key] for key in numbers if key in one["spec"]}
        for one in manifests
        if one["kind"] == "PodDisruptionBudget"
    ]


def test_names_are_resolved_as_asked() -> None:
    config = {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "1"}]}
    manifests = rendered(values={"dnsPolicy": "None", "dnsConfig": config})
    for component in ("webhook", "control"):
        spec = of_kind(manifests, "Deployment", component)["spec"]["template"]["spec"]
        assert (spec["dnsPolicy"], spec["dnsConfig"]) == ("None", config)


def test_only_the_service_of_the_replicas_leaves_the_cluster() -> None:
    manifests = rendered(values={"service.type": "NodePort"})
    types = {
        one["metadata"]["name"]: one["spec"].get("type")
        for one in manifests
        if one["kind"] == "Service"
    }
    assert types == {"stowplan": "NodePort", "stowplan-control": None, "stowplan-leader": None}


def test_openshift_chooses_the_users_of_pods() -> None:
    arguments = ("template", "stowplan", CHART, "--kube-version", executables().version)
    served = ("--api-versions", "security.openshift.io/v1")
    text = helm(*arguments, *served, *value_flags(values={"hold.enabled": True}))
    assert "runAsNonRoot: true" in text
    assert "runAsUser" not in text
    assert "fsGroup" not in text
