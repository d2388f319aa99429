"""Who may write what of a held pod: the accounts of stowplan, a tenant, and people in need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    QUEUED_CONDITION,
    RELEASED_ANNOTATION,
)
from tests.e2e.chart import Release, rendered
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import CallError, Cluster, Json, connected, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_FOREIGN = "example.com/hold"
_WITHOUT_GATE: list[Json] = [
    {"op": "test", "path": "/spec/schedulingGates/0/name", "value": HOLD_GATE},
    {"op": "remove", "path": "/spec/schedulingGates/0"},
]
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERM: Json = {
    "weight": 10,
    "preference": {
        "matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}
        ]
    },
}


def held(namespace: str, name: str, *more_gates: str) -> Json:
    """Return a held pod that has something of everything a release must not change."""
    made = pod(namespace, name, requests={"cpu": "10m"})
    made["metadata"] |= {"labels": {"app": name}, "annotations": {"owner": "ann"}}
    made["spec"] |= {
        "schedulingGates": [{"name": gate} for gate in (HOLD_GATE, *more_gates)],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {_PREFERRED: [{**_TERM, "weight": 1}]}},
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    return made


class Accounts:
    """The cluster as others than its admin see it."""

    def __init__(self, control_plane: ControlPlane, stack: AsyncExitStack) -> None:
        self._control_plane = control_plane
        self._stack = stack

    async def user(self, name: str, groups: Sequence[str] = ()) -> Cluster:
        """Return the cluster as a person sees it."""
        pair = self._control_plane.authority.issue(name, groups=[*groups, "system:authenticated"])
        return await self._stack.enter_async_context(connected(self._control_plane, pair))

    async def service_account(self, namespace: str, name: str) -> Cluster:
        """Return the cluster as a pod with this account sees it."""
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        return await self.user(f"system:serviceaccount:{namespace}:{name}", groups)


@pytest.fixture
async def accounts(control_plane: ControlPlane) -> AsyncIterator[Accounts]:
    async with AsyncExitStack() as stack:
        yield Accounts(control_plane, stack)


async def _refusal(
    seen: Cluster, namespace: str, name: str, patch: object, how: str = "json", **more: str
) -> str:
    """Return why a change of a pod is refused; empty if it is not."""
    given: dict[str, Any] = {"how": how, **more}
    try:
        await seen.patch("pods", name, patch, namespace, **given)
    except CallError as refused:
        return refused.message
    return ""


async def _in_force(seen: Cluster, namespace: str, name: str, patch: object, why: str) -> None:
    async def refused() -> bool:
        return why in await _refusal(seen, namespace, name, patch, dryRun="All")

    await eventually(refused, "the policy is in force")


async def test_without_held_pods_the_account_may_patch_no_pod_and_nobody_else_may_either(
    cluster: Cluster, release: Release, accounts: Accounts, shop: str
) -> None:
    granted = [
        (verb, resource)
        for manifest in rendered(namespace=release.namespace, release=release.name)
        if manifest["kind"] in {"Role", "ClusterRole"}
        for rule in manifest["rules"]
        for verb in rule["verbs"]
        for resource in rule.get("resources", ())
        if resource.startswith("pods") and verb not in {"get", "list", "watch"}
    ]
    assert granted == [("create", "pods")]  # of `helm test`, in one namespace, as a dry run
    await cluster.create(held(shop, "held"))
    ours = await accounts.service_account(release.namespace, f"{release.name}-control")
    assert "cannot patch" in await _refusal(ours, shop, "held", _WITHOUT_GATE)
    nominated = {"status": {"nominatedNodeName": "node-a"}}
    told = await _refusal(ours, shop, "held", nominated, "merge", subresource="status")
    assert "cannot patch" in told


_CHANGED_SPECS: list[list[Json]] = [
    [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}],
    [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    [{"op": "add", "path": "/spec/nodeSelector", "value": {"pool": "small"}}],
    [{"op": "remove", "path": "/spec/schedulingGates/1"}],
    [{"op": "remove", "path": f"/spec/affinity/nodeAffinity/{_PREFERRED}"}],
    [
        {
            "op": "replace",
            "path": f"/spec/affinity/nodeAffinity/{_PREFERRED}",
            "value": [{**_TERM, "weight": 100}],
        }
    ],
    [
        {
            "op": "add",
            "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
            "value": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["node-a"]}
                        ]
                    }
                ]
            },
        }
    ],
    [{"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1}],
]
_CHANGED_METADATA: list[list[Json]] = [
    [{"op": "replace", "path": "/metadata/labels/app", "value": "other"}],
    [{"op": "add", "path": "/metadata/labels/stowplan.dev~1placement", "value": "disabled"}],
    [{"op": "replace", "path": "/metadata/annotations/owner", "value": "bob"}],
    [{"op": "remove", "path": "/metadata/annotations/owner"}],
    [{"op": "add", "path": "/metadata/annotations/stowplan.dev.evil.example~1x", "value": "x"}],
    [{"op": "add", "path": "/metadata/finalizers", "value": ["evil.example/stays"]}],
    [
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "1"}],
        }
    ],
]
_CHANGED_STATUS: list[Json] = [
    {"phase": "Failed"},
    {"podIP": "10.9.9.9"},
    {"reason": "Evicted"},
    {"conditions": [{"type": "Ready", "status": "True"}]},
    {"conditions": [{"type": "PodScheduled", "status": "True"}]},
]


@pytest.mark.parametrize("name", ["-control", "-deadman"])
async def test_an_account_of_ours_releases_and_advises_and_changes_nothing_else(
    cluster: Cluster, nodes: Nodes, release: Release, accounts: Accounts, shop: str, name: str
) -> None:
    await nodes.add("node-a")
    await release.change(hold={"enabled": True}, placement={"mode": "Enforce"})
    ours = await accounts.service_account(release.namespace, f"{release.name}{name}")
    await cluster.create(held(shop, "held", _FOREIGN))
    await _in_force(ours, shop, "held", _CHANGED_METADATA[0], "stowplan changes nothing in the")
    for change in (*_CHANGED_SPECS, *_CHANGED_METADATA):
        refusal = await _refusal(ours, shop, "held", change)
        assert "stowplan changes no" in refusal or "stowplan removes no" in refusal, change
        # Not even beside a release.
        refusal = await _refusal(ours, shop, "held", [*change, *_WITHOUT_GATE])
        assert "stowplan changes no" in refusal or "stowplan removes no" in refusal, change

    escaped = RELEASED_ANNOTATION.replace("/", "~1")
    annotated = [{"op": "add", "path": f"/metadata/annotations/{escaped}", "value": "node-a"}]
    preferred = [
        {"op": "add", "path": f"/spec/affinity/nodeAffinity/{_PREFERRED}/-", "value": _TERM}
    ]
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    terms = [{"matchExpressions": [zone]}]
    required = [
        {
            "op": "add",
            "path": "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
            "value": {"nodeSelectorTerms": terms},
        }
    ]
    # The foreign gate stays; that it does is what the release is about.
    changes = [*_WITHOUT_GATE, *annotated, *preferred, *required]
    assert await _refusal(ours, shop, "held", changes) == ""
    changed = await cluster.get("pods", "held", shop)
    assert changed["spec"]["schedulingGates"] == [{"name": _FOREIGN}]
    assert changed["metadata"]["annotations"] == {"owner": "ann", RELEASED_ANNOTATION: "node-a"}
    affinity = changed["spec"]["affinity"]["nodeAffinity"]
    assert affinity.pop(_PREFERRED) == [{**_TERM, "weight": 1}, _TERM]
    assert [one["nodeSelectorTerms"] for one in affinity.values()] == [terms]


async def test_of_a_status_the_leader_writes_the_nomination_and_its_own_condition_alone(
    cluster: Cluster, nodes: Nodes, release: Release, accounts: Accounts, shop: str
) -> None:
    await nodes.add("node-a")
    await release.change(hold={"enabled": True}, placement={"mode": "Enforce"})
    ours = await accounts.service_account(release.namespace, f"{release.name}-control")
    await cluster.create(held(shop, "held"))
    await _in_force(ours, shop, "held", _CHANGED_METADATA[0], "stowplan changes nothing in the")

    async def refusal(status: Json, **more: object) -> str:
        patch = {"status": status, **more}
        return await _refusal(ours, shop, "held", patch, "strategic", subresource="status")

    for status in _CHANGED_STATUS:
        assert "stowplan changes nothing in the status" in await refusal(status), status
        both = {"nominatedNodeName": "node-a", **status}
        assert "stowplan changes nothing in the status" in await refusal(both), status
    labelled = {"metadata": {"labels": {"app": "other"}}}
    assert "in the metadata" in await refusal({"nominatedNodeName": "node-a"}, **labelled)

    condition = {"type": QUEUED_CONDITION, "status": "True", "reason": "WaitingForCapacity"}
    assert await refusal({"nominatedNodeName": "node-a", "conditions": [condition]}) == ""
    status = (await cluster.get("pods", "held", shop))["status"]
    assert status["nominatedNodeName"] == "node-a"
    assert QUEUED_CONDITION in {one["type"] for one in status["conditions"]}
    assert await refusal({"conditions": [{**condition, "status": "False"}]}) == ""
    assert await refusal({"nominatedNodeName": None}) == ""
    assert "nominatedNodeName" not in (await cluster.get("pods", "held", shop))["status"]


async def test_the_dead_man_may_release_and_neither_nominate_nor_report(
    cluster: Cluster, release: Release, accounts: Accounts, shop: str
) -> None:
    await release.change(hold={"enabled": True}, placement={"mode": "Enforce"})
    deadman = await accounts.service_account(release.namespace, f"{release.name}-deadman")
    await cluster.create(held(shop, "held"))
    nominated = {"status": {"nominatedNodeName": "node-a"}}
    told = await _refusal(deadman, shop, "held", nominated, "merge", subresource="status")
    assert "cannot patch" in told
    with pytest.raises(CallError, match="cannot delete"):
        await deadman.delete("pods", "held", shop)
    with pytest.raises(CallError, match="cannot create"):
        await deadman.create(pod(shop, "other"))

    async def is_released() -> bool:
        return await _refusal(deadman, shop, "held", _WITHOUT_GATE) == ""

    await eventually(is_released, "its role counts, and the pod is released")


async def test_a_pod_as_large_as_there_may_be_is_released_under_the_policies(
    cluster: Cluster, release: Release, accounts: Accounts, shop: str
) -> None:
    await release.change(
        hold={"enabled": True, "gateGuard": {"enabled": True}}, placement={"mode": "Enforce"}
    )
    ours = await accounts.service_account(release.namespace, f"{release.name}-control")
    await cluster.create(held(shop, "small"))
    await _in_force(ours, shop, "small", _CHANGED_METADATA[0], "stowplan changes nothing in the")
    many_variables = held(shop, "variables")
    env = [{"name": f"V{number}", "value": "x" * 40} for number in range(13_000)]
    many_variables["spec"]["containers"][0]["env"] = env
    many_labels = held(shop, "labels")
    many_labels["metadata"]["labels"] |= {f"l{number}": "x" for number in range(15_000)}
    many_labels["metadata"]["annotations"] |= {f"a{number}": "x" for number in range(15_000)}
    many_tolerations = held(shop, "tolerations")
    # The API server itself takes the square of their number: at 15,000 nobody can patch the pod.
    many_tolerations["spec"]["tolerations"] = [
        {"key": f"k{number}", "operator": "Exists"} for number in range(1_000)
    ]
    many_terms = held(shop, "terms")
    many_terms["spec"]["affinity"]["nodeAffinity"][_PREFERRED] = [_TERM] * 2_500
    for large in (many_variables, many_labels, many_tolerations, many_terms):
        name = large["metadata"]["name"]
        await cluster.create(large)
        await eventually(partial(_release, ours, shop, name), f"{name} is released")


async def _release(ours: Cluster, namespace: str, name: str) -> bool:
    """Release a pod as a leader does: once more where the API server did not answer in time."""
    refusal = await _refusal(ours, namespace, name, _WITHOUT_GATE)
    stored = await ours.get("pods", name, namespace)
    assert "schedulingGates" not in stored["spec"], refusal
    return True


async def test_a_tenant_cannot_get_round_the_gate_and_people_in_need_can(
    cluster: Cluster, release: Release, accounts: Accounts, shop: str
) -> None:
    guard = {"enabled": True, "breakGlassGroups": ["on-call"]}
    await release.change(hold={"enabled": True, "gateGuard": guard}, placement={"mode": "Enforce"})
    for user in ("helper", "tenant"):  # what counts for the second one does for the first
        await cluster.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": user, "namespace": shop},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "edit",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
                ],
            }
        )
    tenant = await accounts.user("tenant")
    helper = await accounts.user("helper", ["on-call"])
    for name in ("a", "b", "c"):
        await cluster.create(held(shop, name, _FOREIGN))
    why = f"the gate `{HOLD_GATE}` is removed by stowplan or somebody in on-call"
    await _in_force(tenant, shop, "a", _WITHOUT_GATE, why)
    strategic = {"spec": {"schedulingGates": [{"$patch": "delete", "name": HOLD_GATE}]}}
    assert why in await _refusal(tenant, shop, "a", strategic, "strategic")
    assert why in await _refusal(tenant, shop, "a", {"spec": {"schedulingGates": None}}, "merge")
    stored = await cluster.get("pods", "a", shop)
    stored["spec"]["schedulingGates"] = []
    with pytest.raises(CallError, match="is removed by stowplan"):
        await tenant.replace(stored)
    unchanged = "`stowplan.dev/hold-reasons` of a held pod is changed by stowplan or somebody in"
    assert unchanged in await _refusal(tenant, shop, "a", _with_reasons("quota"), "merge")
    assert await _refusal(helper, shop, "a", _with_reasons("quota"), "merge") == ""
    for reasons in (None, "placement,quota"):
        assert unchanged in await _refusal(tenant, shop, "a", _with_reasons(reasons), "merge")
    # What else a tenant may write, they still may, to a held pod as well.
    labelled = [{"op": "add", "path": "/metadata/labels/tier", "value": "web"}]
    assert await _refusal(tenant, shop, "a", labelled) == ""
    foreign = [{"op": "remove", "path": "/spec/schedulingGates/1"}]
    assert await _refusal(tenant, shop, "a", foreign) == ""
    await tenant.delete("pods", "c", shop)

    assert await _refusal(helper, shop, "a", _WITHOUT_GATE) == ""
    ours = await accounts.service_account(release.namespace, f"{release.name}-deadman")
    assert await _refusal(ours, shop, "b", _WITHOUT_GATE) == ""


async def test_without_the_guard_whoever_may_patch_a_pod_releases_it(
    cluster: Cluster, release: Release, shop: str
) -> None:
    await release.change(hold={"enabled": True}, placement={"mode": "Enforce"})
    await cluster.create(held(shop, "held"))
    assert await _refusal(cluster, shop, "held", _WITHOUT_GATE) == ""


@pytest.mark.usefixtures("crds")
async def test_a_leader_with_the_account_of_the_chart_holds_and_releases_under_the_policies(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    zone = "topology.kubernetes.io/zone"
    for name in ("node-a", "node-b"):
        await nodes.add(name, labels={zone: "z"})
    policy = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "late"},
        "spec": {
            "filters": [
                {"name": "zone", "expression": f"node.labels[?'{zone}'].orValue('') == 'z'"}
            ],
            "scores": [{"name": "b", "expression": "node.name == 'node-b' ? 100 : 0"}],
            "placement": {"at": "Admission", "releaseInOrder": True},
        },
    }
    async with fronting([]) as front:
        values = values_beside(
            f"https://{LOCAL}:{front.port}",
            "node-b",
            **{
                "hold": {"enabled": True, "gateGuard": {"enabled": True}},
                "policies.inline": {"late": policy},
            },
        )
        await release.change(**values)
        one, other = tmp_path / "one", tmp_path / "control"
        (replica,) = chart_replicas(release, control_plane, one, count=1, values=values)
        (leader,) = chart_control(release, control_plane, other, values=values)
        async with running([replica, leader]):
            front.targets = [replica.port]

            async def holds() -> bool:
                tried = await cluster.create(pod(shop, "tried"), dry_run=True)
                return "schedulingGates" in tried["spec"]

            await eventually(holds, "pods are held")
            for number in range(5):
                await cluster.create(pod(shop, f"held-{number}", requests={"cpu": "10m"}))

            async def all_run() -> bool:
                pods = await cluster.list_all("pods", shop)
                return all(one["status"]["phase"] == "Running" for one in pods)

            await eventually(all_run, "all pods run")
            pods = await cluster.list_all("pods", shop)
    assert {one["spec"]["nodeName"] for one in pods} == {"node-b"}
    assert all(one["metadata"]["annotations"][RELEASED_ANNOTATION] for one in pods)
    assert not [one for one in pods if "schedulingGates" in one["spec"]]


def _with_reasons(reasons: str | None) -> Json:
    return {"metadata": {"annotations": {HOLD_REASONS_ANNOTATION: reasons}}}
