"""The chart on a real API server: what it installs is accepted, asked for, and removed."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import msgspec
import pytest

from engine.cel import DYN, Environment, compile_program
from engine.model import api
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.model.pod import pod_of
from tests.e2e.chart import (
    CHART,
    ELASTIC_QUOTAS,
    IMAGE,
    POD_GROUPS,
    VALUE_SETS,
    HelmError,
    helm,
    of_kind,
    rendered,
    value_flags,
)
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.definitions import defined, undefine
from tests.e2e.namespaces import labelled
from tests.e2e.nodes import Nodes
from tests.e2e.reviewer import Reviewer
from tests.e2e.workloads import daemon_set, pod
from webhook.settings import Settings

_OF_OTHERS = {
    "cert-manager.io": {"Certificate": "certificates", "Issuer": "issuers"},
    "monitoring.coreos.com": {
        "ServiceMonitor": "servicemonitors",
        "PrometheusRule": "prometheusrules",
    },
}
_NO_SLEEP = {"preStop": {"exec": {"command": ["sleep", "0"]}}}
_PROBE = "rollout-probe.stowplan.dev"
_OF_POLICIES = "policies.stowplan.dev"
_ASKED = {
    ("", "pods", "CREATE"),
    ("", "pods", "UPDATE"),
    ("", "pods/resize", "UPDATE"),
    ("", "pods/status", "UPDATE"),
    ("scheduling.x-k8s.io", "elasticquotas", "CREATE"),
    ("scheduling.x-k8s.io", "elasticquotas", "UPDATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "CREATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "UPDATE"),
    ("scheduling.sigs.k8s.io", "elasticquotas", "DELETE"),
    ("stowplan.dev", "placementpolicies", "CREATE"),
    ("stowplan.dev", "placementpolicies", "UPDATE"),
    ("stowplan.dev", "namespacedplacementpolicies", "CREATE"),
    ("stowplan.dev", "namespacedplacementpolicies", "UPDATE"),
}


def _definition(group: str, kind: str, plural: str) -> Json:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


@pytest.fixture
async def operators(cluster: Cluster) -> AsyncIterator[None]:
    """The kinds of cert-manager and of the Prometheus operator, of any content."""
    definitions = [
        _definition(group, kind, plural)
        for group, kinds in _OF_OTHERS.items()
        for kind, plural in kinds.items()
    ]
    async with defined(cluster, *definitions):
        yield


# What Helm makes of values.


def test_there_are_enough_sets_of_values() -> None:
    assert len(VALUE_SETS) >= 12


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_helm_finds_nothing_to_complain_about(values: Path) -> None:
    helm("lint", CHART, "--strict", "--quiet", *value_flags(values))


@pytest.mark.usefixtures("operators")
async def test_every_manifest_is_accepted(cluster: Cluster, namespace: str) -> None:
    await undefine(cluster, {ELASTIC_QUOTAS, POD_GROUPS})
    for values in VALUE_SETS:
        manifests = rendered(values, namespace=namespace)
        await _create_accounts(cluster, manifests)
        for manifest in manifests:
            if manifest["kind"] == "ServiceAccount":
                continue
            try:
                await cluster.create(manifest, dry_run=True)
            except CallError as refused:
                name = f"{manifest['kind']} {manifest['metadata']['name']}"
                pytest.fail(f"{values.stem}: {name}: {refused}")


async def test_its_pods_are_allowed_where_pods_are_restricted_most(
    cluster: Cluster, namespace: str
) -> None:
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    await cluster.patch("namespaces", namespace, {"metadata": {"labels": label}})
    manifests = rendered(namespace=namespace, values={"hold.enabled": True})
    await _create_accounts(cluster, manifests)
    specs = [
        of_kind(manifests, "Deployment")["spec"]["template"]["spec"],
        of_kind(manifests, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"],
        *(one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "Job"),
        next(one for one in manifests if one["kind"] == "Pod")["spec"],
    ]
    for spec in specs:
        await cluster.create({**pod(namespace, "tried"), "spec": spec}, dry_run=True)


async def _create_accounts(cluster: Cluster, manifests: list[Json]) -> None:
    """Create the accounts of pods for real: without them a pod is refused."""
    there = {
        one["metadata"]["name"]
        for manifest in manifests
        if manifest["kind"] == "ServiceAccount"
        for one in await cluster.list_all("serviceaccounts", manifest["metadata"]["namespace"])
    }
    for one in manifests:
        if one["kind"] == "ServiceAccount" and one["metadata"]["name"] not in there:
            await cluster.create(one)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"replica": 3}, "replica"),
        ({"replicas": "three"}, "replicas"),
        ({"placement.failurePolicy": "Open"}, "failurePolicy"),
        ({"placement.timeoutSeconds": 60}, "timeoutSeconds"),
        ({"quota.mode": True}, "mode"),
        ({"image.repository": ""}, "`make image load` builds one and loads it into kind"),
        ({"image.digest": "sha256:abc"}, "digest"),
        ({"webhook.url": "http://127.0.0.1"}, "url"),
        ({"settings.logLevel": "loud"}, "logLevel"),
        ({"settings.staleNodesSeconds": 1}, "staleNodesSeconds"),
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
        ({"fullnameOverride": "Stow_Plan"}, "fullnameOverride"),
        ({"metrics": {"enabled": False, "serviceMonitor": {"enabled": True}}}, "metrics.enabled"),
        ({"autoscaling": {"enabled": True, "maxReplicas": 2}}, "is above"),
        ({"quota.matchConditions": [{"name": "half"}]}, "`expression`"),
        ({"hold.seconds": 5}, "seconds"),
        ({"hold.gateGuard.enabled": True}, "hold.gateGuard needs hold.enabled"),
        ({"hold.enabled": True, "placement.mode": "Off"}, "hold.enabled needs"),
        ({"quota.mode": "Queue"}, "quota.mode Queue needs hold.enabled"),
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
        monkeypatch.setenv(variable["name"], variable.get("value", "of-the-pod"))
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
        ({"replicas": 1}, 1, set()),
        ({"podDisruptionBudget.enabled": False}, 3, set()),
        (
            {"autoscaling.enabled": True},
            None,
            {"HorizontalPodAutoscaler", "PodDisruptionBudget"},
        ),
        (
            {"autoscaling": {"enabled": True, "minReplicas": 1}},
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
        ({}, "stowplan-system", "true"),
        ({"placement.mode": "Audit"}, "stowplan-system", "false"),
        ({"enabled": False}, "stowplan-system", "false"),
        ({"tests.expectAdvice": False}, "stowplan-system", "false"),
        ({"excludedNamespaces": ["default"]}, "stowplan-system", "false"),
        ({}, "default", "false"),  # our own namespace is left alone
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


@pytest.mark.parametrize("values", VALUE_SETS, ids=lambda path: path.stem)
def test_nothing_is_asked_about_that_a_cluster_needs_to_start(values: Path) -> None:
    for configuration in rendered(values):
        if "WebhookConfiguration" not in configuration["kind"]:
            continue
        for webhook in configuration["webhooks"]:
            if webhook["name"] == _PROBE:  # only what we create as a dry run
                assert webhook["objectSelector"] == {
                    "matchLabels": {"stowplan.dev/rollout-stamp": "none"}
                }
                assert webhook["namespaceSelector"] == {
                    "matchLabels": {"kubernetes.io/metadata.name": "stowplan-system"}
                }
                continue
            for rule in webhook["rules"]:
                assert rule["scope"] == (
                    "Cluster" if "placementpolicies" in rule["resources"] else "Namespaced"
                )
                for group in rule["apiGroups"]:
                    asked = product([group], rule["resources"], rule["operations"])
                    assert set(asked) <= _ASKED
            if configuration["kind"].startswith("Mutating"):
                (resources,) = (rule["resources"] for rule in webhook["rules"])
                assert resources in (["pods"], ["elasticquotas"])


def test_while_it_is_away_a_pod_waits_for_three_seconds_and_is_created() -> None:
    asked_about_a_pod = [
        webhook
        for one in rendered()
        if "WebhookConfiguration" in one["kind"]
        for webhook in one["webhooks"]
        if webhook["rules"][0]["resources"] == ["pods"]
    ]
    assert sum(webhook["timeoutSeconds"] for webhook in asked_about_a_pod) == 3
    assert {webhook["failurePolicy"] for webhook in asked_about_a_pod} == {"Ignore"}


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
            "metrics.serviceMonitor": {"enabled": True, "relabelings": [relabeling]},
        }
    )
    (container,) = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["failureThreshold"] == 5
    assert container["readinessProbe"]["periodSeconds"] == 2  # the rest stays
    assert container["lifecycle"] == {"preStop": {"sleep": {"seconds": 7}}}
    (endpoint,) = of_kind(manifests, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["relabelings"] == [relabeling]


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


# What the API server asks because of it.


@asynccontextmanager
async def _asking(
    cluster: Cluster, reviewer: Reviewer, namespace: str, values: Json | None = None
) -> AsyncIterator[None]:
    """Have the API server ask the reviewer, by the chart's own configurations."""
    manifests = rendered(
        namespace=f"{namespace}-system",
        release=namespace,
        values={
            "webhook.url": reviewer.url,
            "webhook.caBundle": reviewer.ca_bundle,
            "certificates": {"mode": "ExistingSecret", "secretName": "none"},
            **(values or {}),
        },
    )
    made = [one for one in manifests if "WebhookConfiguration" in one["kind"]]
    for configuration in made:
        await cluster.create(configuration)

    async def reached() -> bool:
        await cluster.create(pod("default", "stowplan-probe"), dry_run=True)
        return {"/mutate", "/validate"} <= {path for path, _ in reviewer.reviews}

    try:
        await eventually(reached, "the API server asks")
        yield
    finally:
        for configuration in made:
            name = configuration["metadata"]["name"]
            await cluster.delete(f"{configuration['kind'].lower()}s", name)


def _asked(reviewer: Reviewer, path: str, namespace: str) -> set[str]:
    return {
        request["name"] for request in reviewer.requests(path) if request["namespace"] == namespace
    }


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
async def test_pods_are_asked_about_but_for_those_that_are_to_be_left_alone(
    cluster: Cluster, nodes: Nodes, namespace: str, reviewer: Reviewer, policy: str
) -> None:
    await nodes.add("node-a")
    critical = pod(namespace, "critical")
    critical["spec"]["priorityClassName"] = "system-cluster-critical"
    opted_out = pod(namespace, "opted-out")
    opted_out["metadata"]["labels"] = {"stowplan.dev/placement": "disabled"}
    bound = pod(namespace, "bound")
    bound["spec"]["nodeName"] = "node-a"
    claims_a_daemonset = pod(namespace, "claims-a-daemonset")
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "1"}
    claims_a_daemonset["metadata"]["ownerReferences"] = [owner]
    mirror = pod(namespace, "mirror")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    mirror["spec"]["nodeName"] = "node-a"
    values = {"placement.failurePolicy": policy}
    async with _asking(cluster, reviewer, namespace, values):
        for one in (pod(namespace, "plain"), critical, opted_out, bound):
            await cluster.create(one)
        await cluster.create(claims_a_daemonset, dry_run=True)
        await cluster.create(mirror, dry_run=True)
        await cluster.create(pod("kube-system", "of-the-system"), dry_run=True)
        await cluster.create(daemon_set(namespace, "agent"))

        async def agents() -> list[Json]:
            return await cluster.list_all("pods", namespace, labelSelector="app=agent")

        (agent,) = await eventually(agents, "the pod of the DaemonSet")

    everybody = {"plain", "critical", "opted-out", "bound", "claims-a-daemonset", "mirror"}
    # Where no creation fails by us, most that are left alone are left alone by the webhook itself.
    may_be_placed = {"plain"} if policy == "Fail" else everybody - {"opted-out"}
    assert _asked(reviewer, "/mutate", namespace) == may_be_placed
    # Nobody gets around quota by what they write into a pod, or by who creates it for them.
    assert _asked(reviewer, "/validate", namespace) == everybody | {agent["metadata"]["name"]}
    assert not _asked(reviewer, "/mutate", "kube-system")
    assert not _asked(reviewer, "/validate", "kube-system")


@pytest.mark.usefixtures("crds")
async def test_quotas_are_asked_about_when_their_bounds_change_and_pods_when_they_grow(
    cluster: Cluster, nodes: Nodes, namespace: str, reviewer: Reviewer
) -> None:
    await nodes.add("node-a")
    quota: Json = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"namespace": namespace, "name": "team"},
        "spec": {"max": {"cpu": "4"}},
    }
    async with _asking(cluster, reviewer, namespace):
        await cluster.create(quota)
        quotas = "elasticquotas.scheduling.x-k8s.io"
        noted = {"metadata": {"annotations": {"stowplan.dev/reservations": "{}"}}}
        await cluster.patch(quotas, "team", noted, namespace)
        await cluster.patch(quotas, "team", {"spec": {"max": {"cpu": "8"}}}, namespace)
        await cluster.create(pod(namespace, "grows", requests={"cpu": "1"}))

        async def runs() -> bool:
            status = (await cluster.get("pods", "grows", namespace))["status"]
            return bool(status["phase"] == "Running")

        await eventually(runs, "the pod runs")
        more = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}
        await cluster.patch(
            "pods", "grows", {"spec": more}, namespace, how="strategic", subresource="resize"
        )
    reviewed = [one for one in reviewer.requests("/validate") if one["namespace"] == namespace]
    changed = [one for one in reviewed if one["operation"] == "UPDATE"]
    assert all(one["object"]["spec"] != one["oldObject"]["spec"] for one in changed)
    # An update is reviewed again if the API server's cache did not hold the newest version yet.
    kinds = [
        (one["resource"]["resource"], one.get("subResource", ""), one["operation"])
        for one in reviewed
    ]
    assert [kind for kind, _ in itertools.groupby(kinds)] == [
        ("elasticquotas", "", "CREATE"),
        ("elasticquotas", "", "UPDATE"),
        ("pods", "", "CREATE"),
        ("pods", "resize", "UPDATE"),
    ]


async def test_a_rollout_begins_with_the_namespaces_that_are_labelled(
    cluster: Cluster, namespace: str, reviewer: Reviewer
) -> None:
    values = {"placement.rollout": "Labelled", "quota.rollout": "All"}
    async with (
        labelled(cluster, "default", {"stowplan.dev/placement": "enabled"}),
        _asking(cluster, reviewer, namespace, values),
    ):
        await cluster.create(pod(namespace, "before"), dry_run=True)
        labels = {"stowplan.dev/placement": "enabled", "stowplan.dev/quota": "disabled"}
        await cluster.patch("namespaces", namespace, {"metadata": {"labels": labels}})

        async def is_asked() -> bool:
            await cluster.create(pod(namespace, "after"), dry_run=True)
            return "after" in _asked(reviewer, "/mutate", namespace)

        await eventually(is_asked, "the label counts")
        reviewer.reviews.clear()
        await cluster.create(pod(namespace, "later"), dry_run=True)
    assert _asked(reviewer, "/mutate", namespace) == {"later"}
    assert not _asked(reviewer, "/validate", namespace)


_POD_WITH = [
    {"metadata": metadata, "spec": spec}
    for metadata in (
        {},
        {"annotations": {}},
        *(
            {"annotations": {HOLD_REASONS_ANNOTATION: reasons}}
            for reasons in (
                "",
                "quota",
                "placement,quota",
                "quotas",
                "placement, quota",
                "quota,",
                ("é" * 58) + ",quota",
                ("é" * 59) + ",quota",
            )
        ),
    )
    for spec in (
        {},
        {"schedulingGates": []},
        *(
            {"schedulingGates": [{"name": name} for name in names]}
            for names in (
                [HOLD_GATE],
                ["a/b"],
                ["a/b", HOLD_GATE],
                [f"{HOLD_GATE}2"],
                [*map(str, range(15)), HOLD_GATE],
                [*map(str, range(16)), HOLD_GATE],
            )
        ),
    )
]


def test_of_updates_exactly_those_are_reviewed_that_end_a_wait_for_quota() -> None:
    manifest = of_kind(rendered(values={"hold.enabled": True}), "ValidatingWebhookConfiguration")
    (condition, *_) = manifest["webhooks"][0]["matchConditions"]
    variables = {"request": DYN, "object": DYN, "oldObject": DYN}
    matches = compile_program(condition["expression"], Environment(variables=variables))
    for old, new in product(_POD_WITH, repeat=2):
        request = {"operation": "UPDATE"}
        ends = _is_queued(old) and not _is_queued(new)
        given = {"request": request, "object": new, "oldObject": old}
        assert matches.evaluate(given) is ends, (old, new)
    creation = {"request": {"operation": "CREATE"}, "object": _POD_WITH[0], "oldObject": None}
    assert matches.evaluate(creation) is True
    resize = {"operation": "UPDATE", "subResource": "resize"}
    given = {"request": resize, "object": _POD_WITH[0], "oldObject": _POD_WITH[0]}
    assert matches.evaluate(given) is True


def _is_queued(manifest: Json) -> bool:
    return pod_of(msgspec.convert(manifest, api.Pod)).is_queued
