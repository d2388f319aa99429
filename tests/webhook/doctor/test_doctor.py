from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.webhook.doctor.fake_installation import (
    HOST,
    NAMESPACE,
    NOW,
    POD_NAMES,
    PODS_PATH,
    REVIEWS_PATH,
    FakeInstallation,
    ca_of,
    deployment,
    encoded,
    node,
    refusing,
    source,
    status_path,
)
from webhook.certificates import Authority
from webhook.cluster.client.connection import ApiError
from webhook.doctor import Finding, Level


def bad(findings: dict[str, list[Finding]]) -> dict[str, list[str]]:
    """Return what must be looked after, by check."""
    messages = {
        name: [finding.message for finding in found if not finding.is_well]
        for name, found in findings.items()
    }
    return {name: each for name, each in messages.items() if each}


async def test_an_installation_that_is_well_needs_nothing(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    found = await installation.run_checks(tmp_path)
    assert bad(found) == {}
    messages = {name: [one.message for one in each] for name, each in found.items()}
    assert messages["admission"] == [
        "a pod comes back with advice: 3 of 3 nodes fit",
        "the API server asks about quota",
    ]
    assert messages["certificates"][:3] == [
        "the certificate in the Secret is valid for 90 days",
        f"placement.stowplan.dev trusts the certificate, for `{HOST}`",
        f"quota.stowplan.dev trusts the certificate, for `{HOST}`",
    ]
    assert "all replicas use the same policies (2)" in messages["replicas"]
    assert messages["platform"] == ["Kubernetes v1.36.3"]


async def test_nothing_is_written(installation: FakeInstallation, tmp_path: Path) -> None:
    before = installation.server.version
    await installation.run_checks(tmp_path)
    assert installation.server.version == before
    written = [one for one in installation.server.requests if one.method != "GET"]
    assert {one.path for one in written} == {PODS_PATH, REVIEWS_PATH}
    assert [one.query for one in written if one.path == PODS_PATH] == [{"dryRun": "All"}]


async def test_what_several_checks_read_is_read_once(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    await installation.run_checks(tmp_path)
    paths = [one.path for one in installation.server.requests if one.method == "GET"]
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        assert paths.count(path) == 1


async def test_whatever_is_bad_comes_with_what_to_do(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.called.clear()
    installation.advice.clear()
    installation.missing_rights.add(("list", "pods"))
    installation.statuses[POD_NAMES[0]]["ready"] = False
    found = await installation.run_checks(tmp_path)
    assert set(bad(found)) == {"admission", "replicas", "rights"}
    assert all(one.advice for each in found.values() for one in each if not one.is_well)


# Does the API server ask?


async def test_a_webhook_that_is_not_asked_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.called.clear()
    installation.advice.clear()
    without = "the API server admits a pod in namespace default without asking us about"
    assert bad(await installation.run_checks(tmp_path)) == {
        "admission": [f"{without} placement", f"{without} quota"]
    }


@pytest.mark.parametrize(
    ("mode", "why"),
    [("Enforce", "no policy applies to it in default"), ("Audit", "placement.mode is Audit")],
)
async def test_a_pod_we_have_nothing_to_say_about_is_no_problem(
    installation: FakeInstallation, tmp_path: Path, mode: str, why: str
) -> None:
    installation.advice.clear()
    for status in installation.statuses.values():
        status["modes"]["placement"] = mode
    found = await installation.run_checks(tmp_path)
    assert bad(found) == {}
    (finding, _) = found["admission"]
    assert finding.level is Level.NOTE
    assert finding.message.endswith(why)


async def test_an_installation_that_is_switched_off_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for kind in ("mutating", "validating"):
        installation.server.delete(f"{kind}webhookconfigurations", "", "stowplan")
    (placement, quota) = (await installation.run_checks(tmp_path))["admission"]
    assert "does not ask about placement" in placement.message
    assert "does not ask about quota" in quota.message
    assert not placement.is_well
    assert not quota.is_well
    assert not any(one.path == PODS_PATH for one in installation.server.requests)


async def test_pods_that_wait_for_quota_need_the_review_of_changes(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.replace(deployment(HOLD="true"))
    assert "about changes of pods" not in str(bad(await installation.run_checks(tmp_path)))
    creations = [{"apiGroups": [""], "operations": ["CREATE"], "resources": ["pods"]}]
    installation.configure("Validating", rules=creations)
    found = bad(await installation.run_checks(tmp_path))
    assert "about changes of pods" in str(found["admission"])
    installation.server.replace(deployment())
    assert "about changes of pods" not in str(bad(await installation.run_checks(tmp_path)))


async def test_what_is_off_on_purpose_is_no_fault(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.delete("validatingwebhookconfigurations", "", "stowplan")
    installation.server.replace(deployment(QUOTA_MODE="Off"))
    found = await installation.run_checks(tmp_path)
    assert bad(found) == {}
    messages = [one.message for one in found["admission"]]
    assert messages[0] == "quota.mode is Off: the API server does not ask about it"


async def test_a_webhook_that_matches_no_new_pod_is_right_while_no_policy_advises(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    condition = {"name": "something-is-said-of-new-pods", "expression": "false"}
    installation.configure("Mutating", matchConditions=[condition])
    installation.advice.clear()
    found = await installation.run_checks(tmp_path)
    assert [one.message for one in found["admission"]] == [
        "the API server does not ask about new pods: no policy has anything to say then",
        "the API server asks about quota",
    ]
    assert found["rollout"][0].message == "pods are placed at their binding, and not advised before"


@pytest.mark.parametrize(
    ("refusal", "level"),
    [
        ('admission webhook "quota.stowplan.dev" denied the request: over', Level.OK),
        ('failed calling webhook "quota.stowplan.dev": x509: unknown authority', Level.PROBLEM),
        ('admission webhook "other.example" denied the request: no', Level.WARNING),
    ],
)
async def test_a_refused_pod_is_told_by_who_refused_it(
    installation: FakeInstallation, tmp_path: Path, refusal: str, level: Level
) -> None:
    installation.server.play("POST", PODS_PATH, refusing(403, refusal))
    (found,) = (await installation.run_checks(tmp_path))["admission"]
    assert found.level is level
    assert refusal in found.message


# Certificates


async def test_an_authority_that_did_not_sign_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    other = Authority.new(now=NOW, valid_for=timedelta(days=9))
    client = {
        "service": {"name": "stowplan", "namespace": NAMESPACE},
        "caBundle": encoded(ca_of(other)),
    }
    installation.configure("Mutating", clientConfig=client)
    assert bad(await installation.run_checks(tmp_path)) == {
        "certificates": [
            "no authority in the `caBundle` of placement.stowplan.dev signed the certificate"
        ]
    }


async def test_a_certificate_for_another_name_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    client = {
        "service": {"name": "other", "namespace": NAMESPACE},
        "caBundle": encoded(ca_of(installation.authority)),
    }
    installation.configure("Validating", clientConfig=client)
    (message,) = bad(await installation.run_checks(tmp_path))["certificates"]
    assert f"not for `other.{NAMESPACE}.svc`" in message


async def test_a_bundle_that_is_missing_is_a_problem(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.configure("Mutating", clientConfig={"url": "https://127.0.0.1:1/mutate"})
    messages = bad(await installation.run_checks(tmp_path))["certificates"]
    assert "placement.stowplan.dev has no usable `caBundle`" in messages


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (
            timedelta(days=13),
            "the certificate of stowplan-a expires in 13 days, and was not renewed",
        ),
        (timedelta(hours=-1), "the certificate of stowplan-a expired at 2026-03-01 23:00 UTC"),
    ],
)
async def test_a_certificate_that_ends_is_told_in_time(
    installation: FakeInstallation, tmp_path: Path, left: timedelta, expected: str
) -> None:
    installation.statuses[POD_NAMES[0]]["certificate"]["expiresAt"] = (NOW + left).isoformat()
    assert bad(await installation.run_checks(tmp_path)) == {"certificates": [expected]}


async def test_a_lost_secret_is_a_problem(installation: FakeInstallation, tmp_path: Path) -> None:
    installation.server.delete("secrets", NAMESPACE, "stowplan-tls")
    assert bad(await installation.run_checks(tmp_path)) == {
        "certificates": [f"there is no Secret {NAMESPACE}/stowplan-tls"]
    }


# Replicas


async def test_replicas_with_different_policies_are_told_apart(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.statuses[POD_NAMES[1]]["policies"] = {
        "loaded": 2,
        "digest": "cd" * 16,
        "lastReloadError": "policy.yaml:7:13: unknown plugin `LimitAwar`\n | ...",
    }
    mistake = "policy.yaml:7:13: unknown plugin `LimitAwar`"
    assert bad(await installation.run_checks(tmp_path)) == {
        "replicas": [
            f"stowplan-b uses old policies, the new ones have mistakes: {mistake}",
            "replicas use different policies: stowplan-a abababab, stowplan-b cdcdcdcd",
        ]
    }


async def test_a_replica_that_cannot_be_asked_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("GET", status_path(POD_NAMES[1]), refusing(503, "connection refused"))
    found = bad(await installation.run_checks(tmp_path))
    assert found["replicas"] == ["stowplan-b does not answer: connection refused"]
    assert "it is unknown whether the API server asks about quota" in found["admission"][0]


async def test_a_replica_that_is_not_ready_says_what_it_waits_for(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    status = installation.statuses[POD_NAMES[0]]
    status["ready"] = status["sources"][1]["synced"] = False
    assert bad(await installation.run_checks(tmp_path)) == {
        "replicas": ["stowplan-a is not ready: it has not read pods"],
        "sources": ["pods cannot be read: not read yet"],
    }


async def test_a_replica_that_has_just_started_says_so(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    status = installation.statuses[POD_NAMES[0]]
    status["ready"], status["preparing"] = False, True
    assert bad(await installation.run_checks(tmp_path)) == {
        "replicas": ["stowplan-a is not ready: it has just started, and fills its caches"]
    }


async def test_an_installation_without_replicas_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for name in POD_NAMES:
        installation.server.delete("pods", NAMESPACE, name)
    assert bad(await installation.run_checks(tmp_path))["replicas"] == [
        "no replica runs: pods get no advice"
    ]


async def test_another_name_is_told_to_be_wrong(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.delete("deployments", NAMESPACE, "stowplan")
    found = bad(await installation.run_checks(tmp_path))
    assert found["replicas"][0] == f"there is no Deployment `stowplan` in namespace {NAMESPACE}"
    assert found["rights"] == ["the service account is unknown without the Deployment"]


# Sources, rights, other webhooks


async def test_usage_that_nobody_measures_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for status in installation.statuses.values():
        status["sources"][-1]["present"] = False
    (message,) = bad(await installation.run_checks(tmp_path))["sources"]
    assert message.startswith("nothing measures the usage of nodes")


async def test_what_evictions_cannot_do_without_is_told(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    for status in installation.statuses.values():
        missing = source("poddisruptionbudgets.policy", required=False)
        status["sources"].append({**missing, "synced": False, "lastError": "403"})
    assert bad(await installation.run_checks(tmp_path))["sources"] == [
        "nobody is evicted for pods that wait: poddisruptionbudgets.policy cannot be read: 403"
    ]


async def test_every_missing_right_is_named(installation: FakeInstallation, tmp_path: Path) -> None:
    installation.missing_rights |= {("watch", "nodes"), ("patch", "secrets")}
    account = f"system:serviceaccount:{NAMESPACE}:stowplan"
    assert bad(await installation.run_checks(tmp_path)) == {
        "rights": [
            f"{account} may not watch nodes",
            f"{account} may not patch secrets/stowplan-tls",
        ]
    }


@pytest.mark.parametrize("is_asked_for", [True, False])
async def test_the_usage_of_pods_is_a_right_where_it_is_asked_for(
    installation: FakeInstallation, tmp_path: Path, *, is_asked_for: bool
) -> None:
    installation.server.replace(deployment(USAGE_OF_PODS=str(is_asked_for).lower()))
    installation.missing_rights.add(("list", "pods"))  # of any group
    rights = bad(await installation.run_checks(tmp_path))["rights"]
    account = f"system:serviceaccount:{NAMESPACE}:stowplan"
    assert (f"{account} may not list pods.metrics.k8s.io" in rights) == is_asked_for


async def test_what_may_not_be_asked_is_told_and_the_rest_is_checked(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.play("POST", REVIEWS_PATH, refusing(403, "no reviews for you"))
    assert bad(await installation.run_checks(tmp_path)) == {
        "rights": ["cannot be checked: no reviews for you"]
    }


async def test_the_time_all_webhooks_may_take_is_added_up(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    # mutating ones in turn: 1 + 30; validating ones at once: 2
    slow = {"name": "slow.example", "timeoutSeconds": 30, "clientConfig": {}}
    rules = [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"]}]
    deaf = {**slow, "name": "deaf.example", "rules": [{**rules[0], "apiGroups": ["apps"]}]}
    installation.server.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "slow"},
            "webhooks": [{**slow, "rules": rules}, deaf],
        }
    )
    found = (await installation.run_checks(tmp_path))["webhooks"]
    assert found[0].level is Level.WARNING
    assert "with all of them away a pod takes 33 s" in found[0].message
    assert "slow.example 30 s, placement.stowplan.dev 1 s" in found[0].advice
    assert found[1].message == "pods are not created while one of these is away: slow.example"


# Platforms


@pytest.mark.parametrize(
    ("version", "provider", "label", "expected"),
    [
        ("v1.33.2-gke.100", "", "", "GKE: the API server of a private cluster"),
        ("v1.33.2", "gce://p/z/n", "cloud.google.com/gke-nodepool", "GKE: "),
        ("v1.33.2", "azure:///s", "kubernetes.azure.com/cluster", "AKS: its admissions enforcer"),
        ("v1.33.2-eks-1b2c", "", "", "EKS: with a network other than Amazon's"),
    ],
)
async def test_a_platform_is_recognised_by_what_it_says_of_itself(
    installation: FakeInstallation,
    tmp_path: Path,
    version: str,
    provider: str,
    label: str,
    expected: str,
) -> None:
    installation.server.play("GET", "/version", lambda _: {"gitVersion": version})
    installation.server.create(node("node-b", provider=provider, **({label: "x"} if label else {})))
    messages = [one.message for one in (await installation.run_checks(tmp_path))["platform"]]
    assert any(message.startswith(expected) for message in messages)


@pytest.mark.parametrize("user", [65532, None])
async def test_openshift_refuses_a_user_that_is_set(
    installation: FakeInstallation, tmp_path: Path, user: int | None
) -> None:
    installation.server.create(node("node-b", **{"node.openshift.io/os_id": "rhcos"}))
    made = deployment()
    made["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": user}
    installation.server.replace(made)
    found = (await installation.run_checks(tmp_path))["platform"]
    said = [one.message for one in found if "OpenShift" in one.message]
    message = "OpenShift: it chooses the user that pods run as, and refuses 65532"
    assert said == ([] if user is None else [message])


@pytest.mark.parametrize(("port", "clashes"), [(10250, True), (9443, False)])
async def test_on_fargate_the_kubelet_has_its_port(
    installation: FakeInstallation, tmp_path: Path, port: int, *, clashes: bool
) -> None:
    installation.server.play("GET", "/version", lambda _: {"gitVersion": "v1.33.2-eks-1b2c"})
    fargate = {"eks.amazonaws.com/compute-type": "fargate"}
    installation.server.create(node("node-b", provider="aws:///z/i", **fargate))
    made = deployment()
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["ports"] = [{"name": "webhook", "containerPort": port}]
    installation.server.replace(made)
    found = (await installation.run_checks(tmp_path))["platform"]
    message = "EKS: on Fargate the kubelet has 10250, the port of the webhook"
    assert (message in [one.message for one in found]) == clashes


async def test_a_server_that_does_not_answer_cannot_be_examined(
    installation: FakeInstallation, tmp_path: Path
) -> None:
    installation.server.fail_next(9, 0)  # so often that no client tries again
    with pytest.raises(ApiError):
        await installation.run_checks(tmp_path)
