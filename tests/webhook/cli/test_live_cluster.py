from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer
from tests.webhook.cli.running import POD, POLICIES, Ran, Stowplan
from tests.webhook.cli.test_snapshot import serving
from tests.webhook.cluster.recording import fill, pod

SYSTEM = "stowplan-system"
POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: { name: of-the-cluster }
spec:
  scores:
    - name: zone
      expression: "node.labels['topology.kubernetes.io/zone'] == 'zone-2' ? 1 : 0"
"""
POD_SPEC: dict[str, Any] = {
    "containers": [{"name": "web", "resources": {"limits": {"cpu": "1"}}}],
    "tolerations": [{"key": "acme.example/team", "operator": "Exists"}],
}


def deployment(name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }


def install(server: FakeApiServer, policy: str = POLICY) -> None:
    """Store what an installation has: a Deployment, and a ConfigMap of policies."""
    volumes = [{"name": "policies", "configMap": {"name": "our-policies"}}]
    server.create(deployment("stowplan", SYSTEM, {"containers": [], "volumes": volumes}))
    server.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "our-policies", "namespace": SYSTEM},
            "data": {"zone.yaml": policy, "NOTES.txt": "not a policy"},
        }
    )


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with serving() as running:
        fill(running)
        running.create(deployment("web", "shop", POD_SPEC))
        yield running


@pytest.fixture
def explain(stowplan: Stowplan, server: FakeApiServer, tmp_path: Path) -> Callable[..., Ran]:
    """Return how to explain on the cluster of the server."""
    kubeconfig = server.kubeconfig(tmp_path)
    return lambda *given: stowplan("explain", *given, "--live", "--kubeconfig", kubeconfig)


@pytest.mark.parametrize(
    "target",
    [
        "deploy/web",
        "deployment/web",
        "Deployments/web",
        "deployment.apps/web",
        "deploy.v1.apps/web",
    ],
)
def test_a_pod_of_a_deployment_of_the_cluster_is_explained(
    explain: Callable[..., Ran], target: str
) -> None:
    ran = explain(target, "-n", "shop", *POLICIES, "--json")
    report = json.loads(ran.out)
    assert report["pod"] == {"namespace": "shop", "name": "web-*"}
    assert {row["node"] for row in report["ranking"]} | set(report["rejected"]) == {
        "alpha-node",
        "beta-node",
        "gamma-node",
    }


def test_the_policies_are_those_of_the_cluster_if_none_are_given(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server)
    ran = explain("deploy/web", "-n", "shop")
    assert "policies: of-the-cluster" in ran.out
    assert not ran.err


def test_a_pod_of_the_cluster_is_decided_anew_and_does_not_count(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server)
    server.create(pod("here", "alpha-node", spec={"affinity": {}}))
    ran = explain("pod/here", "-n", "shop", "--json")
    assert ran.err == "it runs on alpha-node, and is decided as if it was created now\n"
    assert json.loads(ran.out)["verdict"] == "Place"


def test_a_pod_that_was_decided_at_its_binding_says_from_where_to_where_and_why(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server)
    bound = pod("here", "gamma-node")
    bound["metadata"]["annotations"] = {
        "stowplan.dev/scheduler-node": "alpha-node",
        "stowplan.dev/binding": "BetterNode",
        "stowplan.dev/reason": "moved from alpha-node to gamma-node: another node is better",
    }
    server.create(bound)
    ran = explain("pod/here", "-n", "shop")
    assert ran.out.startswith(
        "bound to gamma-node instead of alpha-node, the scheduler's choice: moved from alpha-node"
    )
    told = json.loads(explain("pod/here", "-n", "shop", "--json").out)["bound"]
    assert told["schedulerNode"] == "alpha-node"
    assert (told["node"], told["reason"]) == ("gamma-node", "BetterNode")
    # By now alpha-node has no device left, so scores give it nothing.
    assert told["rules"] == [
        {
            "policy": "scheduler",
            "rule": "NodeResourcesFit",
            "onSchedulerNode": "Insufficient acme.example/fpga",
            "onNode": "",
        },
        {
            "policy": "scheduler",
            "rule": "PodTopologySpread",
            "onSchedulerNode": "",
            "onNode": "100 points",
        },
        {"policy": "of-the-cluster", "rule": "zone", "onSchedulerNode": "", "onNode": "0 points"},
    ]


def test_nothing_is_written_to_the_cluster_or_left_on_the_disk(
    explain: Callable[..., Ran],
    server: FakeApiServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    install(server)
    explain("deploy/web", "-n", "shop")
    assert {request.method for request in server.requests} == {"GET"}
    assert not list(scratch.iterdir())


def test_a_manifest_can_be_explained_on_the_cluster(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server)
    assert "shop/checkout" in explain(POD).out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("deploy/none",), "there is no Deployment `none` in namespace `default`\nhint: "),
        (("deploy/../../pods",), "expected TYPE/NAME, not `deploy/../../pods`\nhint: "),
        (("web",), "expected TYPE/NAME, not `web`\nhint: such as deploy/web, or the path"),
        (
            ("svc/web",),
            "there is no file `svc/web`, and `svc` makes no pods\nhint: the types are pods, cronj",
        ),
        (("deploy/web", "-n", "shop"), "the cluster has no policies: no PlacementPolicy, and no"),
        (("deploy/web", "--cluster", "c.json"), "--live reads the cluster itself\nhint: drop"),
    ],
)
def test_what_cannot_be_explained_says_why(
    explain: Callable[..., Ran], given: tuple[str, ...], message: str
) -> None:
    ran = explain(*given)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err.startswith(message)


def test_a_mistake_in_a_policy_of_the_cluster_has_its_place(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server, POLICY.replace("node.labels", "node.lables"))
    ran = explain("deploy/web", "-n", "shop")
    assert ran.status == 3
    assert ran.err.startswith(
        "configmaps/our-policies/zone.yaml:8:25: `node` has no field `lables`"
    )


def policy_of_shop(number: int, name: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "NamespacedPlacementPolicy",
        "metadata": {
            "name": name or f"p{number:02}",
            "namespace": "shop",
            "creationTimestamp": f"2026-01-{number:02}T00:00:00Z",
        },
        "spec": {"scores": [{"name": "any", "expression": "1"}]},
    }


def test_as_many_policies_of_a_namespace_are_taken_as_by_a_replica(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    for number in range(1, 18):
        server.create(policy_of_shop(number))
    ran = explain("deploy/web", "-n", "shop", "--json")
    assert json.loads(ran.out)["policies"] == [f"shop/p{number:02}" for number in range(1, 17)]
    assert ran.err == (
        "namespacedplacementpolicies/shop/p17: 16 policies of namespace `shop` are taken, the"
        " oldest ones: delete some, or join them to one\n"
    )


def test_a_policy_of_the_configmap_comes_before_a_resource_of_its_name(
    explain: Callable[..., Ran], server: FakeApiServer
) -> None:
    install(server)
    resource = policy_of_shop(1, "of-the-cluster") | {"kind": "PlacementPolicy"}
    del resource["metadata"]["namespace"]
    server.create(resource)
    ran = explain("deploy/web", "-n", "shop", "--json")
    assert json.loads(ran.out)["policies"] == ["of-the-cluster"]
    assert ran.err.startswith("placementpolicies/of-the-cluster: a policy in a file has this name")


def test_without_contact_it_says_so(stowplan: Stowplan, tmp_path: Path) -> None:
    with serving() as gone:
        kubeconfig = gone.kubeconfig(tmp_path)
    ran = stowplan("explain", "deploy/web", "--live", "--kubeconfig", kubeconfig)
    assert ran.status == 1
    assert ran.err.startswith("no contact with the API server: ")
