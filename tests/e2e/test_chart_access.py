"""What the account of the webhook may do in a cluster: what it must, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from http import HTTPStatus

import pytest

from tests.e2e.accounts import may
from tests.e2e.chart import CONFIGURATIONS, Release, rendered
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from webhook.certificates.bundles import CaBundles
from webhook.cluster.client.connection import ApiError, connected

_READ = {"get", "list", "watch"}
_VERBS = (*sorted(_READ), "create", "update", "patch", "delete", "deletecollection")
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_SPECIAL = ("bind", "escalate", "impersonate", "approve", "sign", "use")

_Right = tuple[str, str, str, str]
"""Verb, resource with its group, namespace ("" for all) and name ("" for any)."""


def _serving(release: Release) -> Iterator[_Right]:
    """Yield what a process needs that answers reviews."""
    groups = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
    of_groups = (
        f"{plural}.{group}" for plural in ("elasticquotas", "podgroups") for group in groups
    )
    read = ("namespaces", "nodes", "pods", *of_groups)
    kinds = ("nodemetrics.slo.koordinator.sh", "deviceclasses.resource.k8s.io")
    for resource in (*read, *kinds, "poddisruptionbudgets.policy"):
        for verb in _READ:
            yield verb, resource, "", ""
    for resource in ("nodes.metrics.k8s.io", "pods.metrics.k8s.io"):
        yield "get", resource, "", ""
        yield "list", resource, "", ""
    for group in groups:
        yield "patch", f"elasticquotas.{group}", "", ""
    for plural in ("placementpolicies", "namespacedplacementpolicies"):
        for verb in _READ:
            yield verb, f"{plural}.stowplan.dev", "", ""
    yield "create", "events", "", ""
    yield "create", "tokenreviews.authentication.k8s.io", "", ""
    yield "create", "subjectaccessreviews.authorization.k8s.io", "", ""
    for kind in CONFIGURATIONS:
        for verb in ("get", "watch"):
            yield verb, f"{kind}.admissionregistration.k8s.io", "", release.name
    yield "get", "configmaps", release.namespace, f"{release.name}-outcome"
    for verb in _READ:
        yield verb, "secrets", release.namespace, f"{release.name}-tls"
        yield verb, "leases.coordination.k8s.io", release.namespace, release.name


def _leading(release: Release) -> Iterator[_Right]:
    """Yield what the leader needs, as the chart comes: no right to write a pod or a node."""
    yield from _serving(release)
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        yield "patch", f"elasticquotas/status.{group}", "", ""
    for plural in ("placementpolicies", "namespacedplacementpolicies"):
        yield "patch", f"{plural}/status.stowplan.dev", "", ""
    for kind in CONFIGURATIONS:
        yield "patch", f"{kind}.admissionregistration.k8s.io", "", release.name
    yield "create", "configmaps", release.namespace, ""
    yield "patch", "configmaps", release.namespace, f"{release.name}-outcome"
    yield "create", "secrets", release.namespace, ""
    yield "patch", "secrets", release.namespace, f"{release.name}-tls"
    yield "create", "endpointslices.discovery.k8s.io", release.namespace, ""
    leases = "leases.coordination.k8s.io"
    yield "create", leases, release.namespace, ""
    yield "update", leases, release.namespace, release.name


async def _may(cluster: Cluster, account: str, right: _Right) -> bool:
    verb, resource, namespace, name = right
    plural, _, group = resource.partition(".")
    plural, _, subresource = plural.partition("/")
    asked = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    return await may(cluster, account, asked)


async def _everything(cluster: Cluster) -> set[str]:
    """Return every resource and subresource the API server has, with its group."""
    paths = ["/api/v1"]
    for group in (await cluster.call("GET", "/apis"))["groups"]:
        paths += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
    found = set()
    for path in paths:
        group = path.split("/")[2] if path.startswith("/apis") else ""
        for resource in (await cluster.call("GET", path))["resources"]:
            found.add(f"{resource['name']}.{group}" if group else resource["name"])
    return found


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize(("suffix", "rights"), [("", _serving), ("-control", _leading)])
async def test_an_account_may_do_what_it_must_and_nothing_else(
    cluster: Cluster,
    release: Release,
    suffix: str,
    rights: Callable[[Release], Iterator[_Right]],
) -> None:
    account = f"system:serviceaccount:{release.namespace}:{release.name}{suffix}"
    nobody = f"system:serviceaccount:{release.namespace}:nobody"
    must = set(rights(release))

    async def may_all() -> bool:
        lacking = [right for right in must if not await _may(cluster, account, right)]
        assert not lacking, f"it cannot: {lacking}"
        return True

    await eventually(may_all, "the roles count")

    in_all = {right[:2] for right in must if right[2:] == ("", "")}
    here = in_all | {right[:2] for right in must if right[2] and not right[3]}
    named = in_all | {right[:2] for right in must if right[3] == release.name and not right[2]}

    async def may_too_much(asked: _Right, granted: set[tuple[str, str]]) -> _Right | None:
        if asked[:2] in granted or not await _may(cluster, account, asked):
            return None
        return None if await _may(cluster, nobody, asked) else asked

    beyond: set[_Right | None] = set()
    # A group of an earlier test may be listed a little longer than it is served.
    for resource in await eventually(lambda: _everything(cluster), "every group is served"):
        beyond |= set(
            await asyncio.gather(
                *(may_too_much((verb, resource, "", ""), in_all) for verb in (*_VERBS, *_SPECIAL)),
                *(may_too_much((verb, resource, release.namespace, ""), here) for verb in _VERBS),
                *(may_too_much((verb, resource, "", release.name), named) for verb in _VERBS),
                *(may_too_much((verb, resource, "kube-system", ""), in_all) for verb in _VERBS),
            )
        )
    assert beyond == {None}


async def test_its_account_hears_of_its_own_configurations_and_of_no_others(
    control_plane: ControlPlane, release: Release
) -> None:
    user = f"system:serviceaccount:{release.namespace}:{release.name}"
    kubeconfig = control_plane.kubeconfig(user, ["system:authenticated"])
    async with connected(kubeconfig, None) as connection:
        bundles = CaBundles(connection, mutating=[release.name], validating=[release.name])
        async with bundles.change_events(3600) as occasion, asyncio.timeout(60):
            await occasion()  # a watch begins with what there is
        every = connection.watch(_CONFIGURATIONS, [("watch", "true")], read_timeout_seconds=60)
        with pytest.raises(ApiError) as refused:
            async with every:
                pass
        assert refused.value.status == HTTPStatus.FORBIDDEN


async def test_whatever_is_enabled_only_the_leader_may_write_pods_and_nobody_nodes(
    cluster: Cluster, release: Release
) -> None:
    await release.change(
        hold={"enabled": True, "recreateGangs": True},
        quota={"mode": "Queue", "hardReclaimNamespaces": ["shop"]},
        **{"placement.mode": "Enforce", "binding.enabled": True},
    )
    slices = "endpointslices.discovery.k8s.io"
    written = [
        ("patch", "pods", "", ""),
        ("patch", "pods/status", "", ""),
        ("create", "pods/eviction", "", ""),
        ("delete", "pods", "", ""),
        ("patch", "podgroups/status.scheduling.x-k8s.io", "", ""),
        ("create", slices, release.namespace, ""),
        ("update", slices, release.namespace, f"{release.name}-leader-ipv4"),
    ]
    serving = f"system:serviceaccount:{release.namespace}:{release.name}"

    async def leads() -> bool:
        return all([await _may(cluster, f"{serving}-control", right) for right in written])

    await eventually(leads, "the leader may write")
    assert not [right for right in written if await _may(cluster, serving, right)]
    assert not await _may(cluster, f"{serving}-control", ("patch", "nodes", "", ""))


@pytest.mark.parametrize("mode", ["CertManager", "ExistingSecret"])
def test_an_account_that_makes_no_certificate_sees_no_secret(mode: str) -> None:
    given = {"certificates": {"mode": mode, "secretName": "tls"}, "webhook.caBundle": "QUJD"}
    rules = [
        rule
        for manifest in rendered(values=given)
        if manifest["kind"] in {"Role", "ClusterRole"}
        and "helm.sh/hook" not in manifest["metadata"].get("annotations", {})
        for rule in manifest["rules"]
    ]
    touched = {resource for rule in rules for resource in rule.get("resources", ())}
    # Of configurations the one by which new pods are left alone.
    assert touched & {"secrets", *CONFIGURATIONS} == {CONFIGURATIONS[0]}
    (of_pods,) = (rule for rule in rules if CONFIGURATIONS[0] in rule.get("resources", ()))
    assert of_pods["resourceNames"] == ["stowplan"]
