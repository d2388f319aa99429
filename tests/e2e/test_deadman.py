"""Nobody releases any more: the command of the CronJob does, and kubectl can."""

from __future__ import annotations

import asyncio
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE, RELEASE_BY_ANNOTATION, RELEASING_ANNOTATION
from tests.charts.generated import ROOT
from tests.e2e.chart import Release, of_kind, rendered
from tests.e2e.chart_pods import run_container
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import is_running, pod

_FOREIGN = "example.com/gate"
_HELD = {"hold": {"enabled": True}, "quota.failurePolicy": "Ignore"}


async def _hold(
    cluster: Cluster, namespace: str, name: str, *more: str, release_in: timedelta | None = None
) -> None:
    made = pod(namespace, name)
    if release_in is not None:
        moment = datetime.now(UTC) + release_in
        noted = {RELEASE_BY_ANNOTATION: f"{moment:%Y-%m-%dT%H:%M:%SZ}"}
        made["metadata"]["annotations"] = noted
    made["spec"]["schedulingGates"] = [{"name": gate} for gate in (*more, HOLD_GATE)]
    await cluster.create(made)


async def _gates(cluster: Cluster, namespace: str, name: str) -> list[str]:
    spec = (await cluster.get("pods", name, namespace))["spec"]
    return [gate["name"] for gate in spec.get("schedulingGates", ())]


def _container(release: Release) -> Json:
    manifests = rendered(namespace=release.namespace, release=release.name, values=_HELD)
    template = of_kind(manifests, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    return dict(container)


@pytest.mark.usefixtures("crds")
async def test_what_is_overdue_is_left_to_a_leader_and_is_released_when_it_is_dead(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    account, container = f"{release.name}-deadman", _container(release)

    async def deadman() -> tuple[int | None, str]:
        return await run_container(cluster, control_plane, release, account, container, tmp_path)

    async with fronting([]) as front:
        values = values_beside(f"https://{LOCAL}:{front.port}", "node-a", **_HELD)
        await release.change(**values)

        async def finds_nothing() -> bool:
            found = await deadman()
            assert found == (0, "no pod is overdue\n")
            return True

        await eventually(finds_nothing, "its role counts, and no pod is overdue")
        one, other = tmp_path / "one", tmp_path / "control"
        (replica,) = chart_replicas(release, control_plane, one, count=1, values=values)
        (leader,) = chart_control(release, control_plane, other, values=values)
        async with running([replica, leader]):
            front.targets = [replica.port]

            async def leads() -> bool:
                lease = await cluster.get("leases", release.name, release.namespace)
                noted = lease["metadata"].get("annotations", {})
                return bool(noted.get(RELEASING_ANNOTATION) == "true")

            await eventually(leads, "a leader releases")
            # Two gates: no leader releases a pod that somebody else keeps as well.
            await _hold(cluster, shop, "both", _FOREIGN, release_in=timedelta(seconds=-5))
            code, said = await deadman()
            assert code == 0, said
            assert "1 pod overdue: left to" in said
            leader.kill()
        ago, ahead = timedelta(seconds=-5), timedelta(seconds=50)
        await _hold(cluster, shop, "late", release_in=ago)
        await _hold(cluster, shop, "in-time", release_in=ahead)
        # It sees for itself that nobody renews the Lease: that takes a minute.
        code, said = await deadman()
    assert code == 0, said
    assert re.fullmatch(r"released [23] pods\n", said)
    assert await _gates(cluster, shop, "both") == [_FOREIGN]
    await eventually(lambda: is_running(cluster, shop, "late"), "the pod runs")


def _commands(title: str) -> str:
    """Return what the runbook says to run, under a heading."""
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return section.partition("```\n")[2].partition("```")[0]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
async def test_kubectl_releases_every_held_pod_with_nothing_of_ours(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, shop: str, tmp_path: Path
) -> None:
    await nodes.add("node-a")
    for name in ("a", "b"):
        await _hold(cluster, shop, name)
    await _hold(cluster, shop, "both", _FOREIGN)
    other = pod(shop, "other")
    other["spec"]["schedulingGates"] = [{"name": _FOREIGN}]
    await cluster.create(other)
    await cluster.create(pod(shop, "plain"))
    process = await asyncio.create_subprocess_exec(
        *("sh", "-ec", _commands("Release every held pod")),
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "KUBECONFIG": str(control_plane.kubeconfig()),
            "HOME": str(tmp_path),  # where it keeps what it discovers
        },
        stdout=PIPE,
        stderr=STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert said.decode().count("patched") == 3, said.decode()
    for name, gates in (("a", []), ("b", []), ("both", [_FOREIGN]), ("other", [_FOREIGN])):
        assert await _gates(cluster, shop, name) == gates
    for name in ("a", "b", "plain"):
        await eventually(partial(is_running, cluster, shop, name), f"{name} runs")
