"""What people see of a quota whose pods wait: on the pod, on the quota, and by our commands."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.model.hold import QUEUED_CONDITION, WAIT_ANNOTATION
from engine.report import place_text
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.definitions import defined, definition_of_the_chart
from tests.e2e.installed import Installed
from tests.e2e.namespaces import passing_namespaces
from tests.e2e.nodes import Nodes
from tests.e2e.quotas import GROUP, elastic_quota, quotas_known
from tests.e2e.test_quota_queue import all_queue, queueing, running_of, worker

_STOWPLAN = Path(sys.executable).with_name("stowplan")
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def definition(cluster: Cluster) -> AsyncIterator[None]:
    """ElasticQuota as the chart installs it."""
    async with defined(cluster, definition_of_the_chart(f"elasticquotas.{GROUP}")):
        yield


async def _run(control_plane: ControlPlane, *arguments: str) -> str:
    connection = "--kubeconfig", control_plane.kubeconfig()
    process = await asyncio.create_subprocess_exec(_STOWPLAN, *arguments, *connection, stdout=PIPE)
    out, _ = await process.communicate()
    return out.decode()


async def _told(cluster: Cluster, namespace: str, name: str) -> tuple[str, str]:
    found = await cluster.get("pods", name, namespace)
    conditions: list[Json] = found["status"].get("conditions", [])
    own = [each for each in conditions if each["type"] == QUEUED_CONDITION]
    assert len(own) == 1, conditions
    told = own[0]["reason"], own[0]["message"]
    # `kubectl describe pod` shows neither, but every annotation.
    assert found["metadata"]["annotations"][WAIT_ANNOTATION] == ": ".join(told)
    return told


async def _as_many_run(cluster: Cluster, namespace: str, pods: int) -> None:
    async def run() -> bool:
        return len(await running_of(cluster, namespace)) == pods

    await eventually(run, f"{pods} pods run")


async def _limit(cluster: Cluster, stowplan: Installed, *namespaces: str) -> None:
    """Guarantee 2 cores to each namespace."""
    for namespace in namespaces:
        quota = elastic_quota(namespace, {"cpu": "12"})
        quota["spec"]["min"] = {"cpu": "2"}
        await cluster.create(quota)
    await quotas_known(stowplan.replicas, len(namespaces))
    for namespace in namespaces:
        await all_queue(stowplan, namespace)


async def _columns(cluster: Cluster, namespace: str) -> dict[str, object]:
    """Return what `kubectl get elasticquotas` prints of the only quota of a namespace."""
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/elasticquotas"
    table = await cluster.call("GET", path, accept=_TABLE)
    (row,) = table["rows"]
    names = [each["name"] for each in table["columnDefinitions"]]
    return dict(zip(names, row["cells"], strict=True))


@pytest.mark.usefixtures("definition")
async def test_who_waits_learns_why_behind_whom_and_for_how_long(
    cluster: Cluster, control_plane: ControlPlane, nodes: Nodes, namespace: str, tmp_path: Path
) -> None:
    await nodes.add("node-a", {"cpu": "8", "memory": "8Gi"})
    shop = namespace
    async with (
        passing_namespaces(cluster, f"{namespace}-mail") as (mail,),
        queueing(cluster, control_plane, tmp_path) as stowplan,
    ):
        await _limit(cluster, stowplan, shop, mail)

        # 8 cores: mail takes 6 of them, 4 more than it is guaranteed, and shop its 2.
        for where, pods in ((mail, 6), (shop, 2)):
            for number in range(pods):
                await cluster.create(worker(where, f"busy-{number}"))
            await _as_many_run(cluster, where, pods)
        for number in range(8):
            await cluster.create(worker(shop, f"web-{number}"))

        async def says_so() -> bool:
            told = [await _told(cluster, shop, f"web-{number}") for number in range(8)]
            why = f"needs cpu 1, 0 free; {mail}/team borrows cpu 4"
            assert sorted(told) == sorted(
                ("WaitingForQuota", f"{place_text(place, 8)} in {shop}/team; {why}")
                for place in range(1, 9)
            )
            return True

        await eventually(says_so, "the conditions say why")

        async def is_noted() -> bool:
            borrower, waiting = await _columns(cluster, mail), await _columns(cluster, shop)
            assert borrower["Borrowed"] == '{"cpu":"4"}', borrower
            assert (waiting["Queued"], waiting["Borrowed"]) == ("8", None), waiting
            return True

        await eventually(is_noted, "the quotas say it")

        # Five releases later it is known how long one takes.
        for number in range(5):
            await cluster.delete("pods", f"busy-{number}", mail, grace_seconds=0)
            await _as_many_run(cluster, shop, number + 3)

        async def is_foretold() -> bool:
            report = json.loads(await _run(control_plane, "queue", "--json", "-n", shop))
            places = [each["quota"] for each in report["pods"]]
            assert [each["position"] for each in places] == [1, 2, 3], report
            return all(each.get("etaSeconds") is not None for each in places)

        await eventually(is_foretold, "the queue says about how long")
        line = f'stowplan_quota_queued_pods{{quota="team",quota_namespace="{shop}"}} 3.0'

        async def is_counted() -> bool:
            return line in await stowplan.replicas[0].metrics()

        await eventually(is_counted, "the metrics count them")
        await cluster.delete_all("pods", mail, grace_seconds=0)
        await cluster.delete_all("pods", shop, grace_seconds=0)
