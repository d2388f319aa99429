"""Several replicas are one webhook: same decisions, same certificate, same policies."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from pathlib import Path

from tests.config_map import MountedConfigMap
from tests.e2e.advice import advice_of, first_choice
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import NAME, NAMESPACE, SECRET, Installed, installed, review_of
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.workloads import pod

BALANCED = Path(__file__).parents[2] / "policies" / "balanced"
LIMITS = ("250m", "500m", "1", "40")  # the last fits nowhere
PREFERS = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: chosen}
spec:
  scores: [{name: chosen, expression: "node.name == 'NODE' ? 100 : 0"}]
"""


async def test_three_replicas_decide_the_same_and_a_dry_run_changes_nothing(
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    for number in range(6):
        await nodes.add(f"node-{number}")
        metrics_api.nodes[f"node-{number}"] = {"cpu": f"{number * 400}m", "memory": "1Gi"}
    async with installed(cluster, control_plane, tmp_path, [BALANCED], replicas=3) as stowplan:
        await stowplan.knows_usage(6)
        for number in range(5):
            await cluster.create(_limited(namespace, f"old-{number}", "1500m"))

        async def all_run() -> bool:
            pods = await cluster.list_all("pods", namespace)
            return all(one["status"]["phase"] == "Running" for one in pods)

        await eventually(all_run, "the old pods run")
        asked = [_limited(namespace, f"new-{limit}", limit) for limit in LIMITS]
        first, second, third = await eventually(
            lambda: _agreed(stowplan, asked), "all replicas have seen the same"
        )
        assert first == second == third
        assert [response["allowed"] for response in first] == [True] * len(LIMITS)
        assert all("patch" in response for response in first[:-1])
        # Had the pods of these reviews been counted, the next answers would be others.
        for _ in range(20):
            await _answers(stowplan, asked)
        assert await _answers(stowplan, asked) == [first, second, third]
        await cluster.create(asked[1], dry_run=True)
        assert await _answers(stowplan, asked) == [first, second, third]
        # A pod that is really created is told of by the watch, to those who were not asked, too.
        await cluster.create(asked[1])
        after = await eventually(
            lambda: _agreed(stowplan, asked, but_not=first), "all replicas have seen the new pod"
        )
        assert after[0] == after[1] == after[2]


async def test_a_lost_certificate_is_made_anew_and_pods_are_advised_all_the_while(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    await nodes.add("node-b")
    policy = tmp_path / "policy.yaml"
    policy.write_text(PREFERS.replace("NODE", "node-a"), encoding="utf-8")
    async with installed(cluster, control_plane, tmp_path, [policy], replicas=2) as stowplan:
        secret = await cluster.get("secrets", SECRET, NAMESPACE)
        served = await _served(stowplan)
        assert set(served) == {_leaf(secret)}

        # Somebody deletes the Secret: a new authority is trusted beside the one still in use.
        await cluster.delete("secrets", SECRET, NAMESPACE)
        made = 0

        async def trusted_beside() -> bool:
            nonlocal made
            made += 1
            created = await cluster.create(pod(namespace, f"lost-{made}"))
            assert first_choice(created) == "node-a"
            return (await _bundle(cluster)).count("BEGIN CERTIFICATE") == 2

        await eventually(trusted_beside, "a new authority is trusted, too")
        assert await _served(stowplan) == served

        # And then the bundle, too: nobody is trusted, so a new certificate can be used at once.
        await cluster.delete("secrets", SECRET, NAMESPACE)
        nobody = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        await cluster.patch("mutatingwebhookconfigurations", NAME, nobody, how="json")

        async def renewed() -> bool:
            leaf = _leaf(await cluster.get("secrets", SECRET, NAMESPACE))
            return set(await _served(stowplan)) == {leaf} != set(served)

        await eventually(renewed, "every replica serves the new certificate")

        async def advised() -> bool:
            nonlocal made
            made += 1
            return advice_of(await cluster.create(pod(namespace, f"found-{made}"))) is not None

        await eventually(advised, "the API server trusts the new certificate")
        assert all([(await one.detail())["ready"] for one in stowplan.replicas])


async def test_a_swapped_config_map_comes_into_force_and_a_bad_one_does_not(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    await nodes.add("node-b")
    mounted = MountedConfigMap.at(tmp_path / "mount", chosen=PREFERS.replace("NODE", "node-a"))
    async with installed(cluster, control_plane, tmp_path, [mounted.mount], replicas=2) as stowplan:
        made = await cluster.create(pod(namespace, "before"))
        assert first_choice(made) == "node-a"

        mounted.swap(chosen=PREFERS.replace("NODE", "node-b"))
        asked = [pod(namespace, "asked")]
        await eventually(lambda: _all_choose(stowplan, asked, "node-b"), "node-b is preferred")
        made = await cluster.create(pod(namespace, "after"))
        assert first_choice(made) == "node-b"

        mounted.swap(chosen=PREFERS.replace("scores", "scoers"))

        async def told() -> bool:
            return all("scoers" in one["lastReloadError"] for one in await stowplan.policies())

        await eventually(told, "every replica tells of the bad policy")
        made = await cluster.create(pod(namespace, "later"))
        assert first_choice(made) == "node-b"


async def _answers(stowplan: Installed, pods: Sequence[Json]) -> list[list[Json]]:
    """Return what each replica would do with each pod."""
    return [
        [await replica.review("/mutate", review_of(one)) for one in pods]
        for replica in stowplan.replicas
    ]


async def _agreed(
    stowplan: Installed, pods: Sequence[Json], but_not: Sequence[Json] = ()
) -> list[list[Json]]:
    """Return what all replicas would do, nothing if they differ or say what is known to be old."""
    answers = await _answers(stowplan, pods)
    same = all(answer == answers[0] != list(but_not) for answer in answers)
    return answers if same else []


async def _all_choose(stowplan: Installed, pods: Sequence[Json], node: str) -> bool:
    texts = [
        base64.b64decode(answer["patch"]).decode()
        for answers in await _answers(stowplan, pods)
        for answer in answers
    ]
    return all(node in text for text in texts)


async def _served(stowplan: Installed) -> list[bytes]:
    """Return the certificate that each replica shows its callers, DER."""
    return [ssl.PEM_cert_to_DER_cert(await replica.certificate()) for replica in stowplan.replicas]


def _leaf(secret: Json) -> bytes:
    """Return the certificate in the Secret, DER; empty while there is none."""
    pem = base64.b64decode(secret["data"].get("tls.crt", "")).decode()
    return ssl.PEM_cert_to_DER_cert(pem) if pem else b""


async def _bundle(cluster: Cluster) -> str:
    """Return whom the API server trusts to be stowplan."""
    configuration = await cluster.get("mutatingwebhookconfigurations", NAME)
    (webhook,) = configuration["webhooks"]
    return base64.b64decode(webhook["clientConfig"].get("caBundle", "")).decode()


def _limited(namespace: str, name: str, cores: str) -> Json:
    """Return a pod that asks for little and may use more."""
    made = pod(namespace, name, requests={"cpu": "50m"})
    made["spec"]["containers"][0]["resources"]["limits"] = {"cpu": cores}
    return made
