"""The dashboard of an installation: for those whom the cluster's administrator lets read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.browser import chromium, visit
from tests.e2e.accounts import bound, token_of
from tests.e2e.chart import Release
from tests.e2e.chart_replicas import chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.nodes import Nodes
from tests.e2e.ports import free_ports
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

PAGES = ("nodes", "pod", "quotas", "policies")


class Dashboard:
    """The dashboard of a replica on this machine."""

    def __init__(self, port: int) -> None:
        self.url = f"https://{LOCAL}:{port}/dashboard"

    async def get(self, page: str, token: str = "") -> tuple[int, str]:
        """Return status and text of a page."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/{page}", headers=headers, ssl=False) as answer,
        ):
            return answer.status, await answer.text()

    async def answers(self, page: str, token: str, status: int) -> bool:
        """Return whether a page has a status."""
        return (await self.get(page, token))[0] == status


@asynccontextmanager
async def shown(
    release: Release, control_plane: ControlPlane, folder: Path
) -> AsyncIterator[Dashboard]:
    """Run a replica of a release with a dashboard, with the rights that the chart gives it."""
    async with fronting([]) as front:
        values = values_beside(
            f"https://{LOCAL}:{front.port}", "node-a", **{"dashboard.enabled": True}
        )
        await release.change(**values)
        (port,) = free_ports(1)
        (replica,) = chart_replicas(
            release,
            control_plane,
            folder / "replica",
            count=1,
            values=values,
            more=[("dashboard-port", str(port))],
        )
        control = chart_control(release, control_plane, folder / "control", values=values)
        async with running([replica, *control]):
            yield Dashboard(port)


@pytest.mark.usefixtures("crds")
async def test_a_tenant_sees_what_the_cluster_lets_it_list_and_an_operator_everything(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    await cluster.create(pod(shop, "web"))
    await cluster.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"namespace": shop, "name": "team"},
            "spec": {"max": {"cpu": "4"}},
        }
    )
    role = f"{release.name}-dashboard-reader"
    operator, tenant = (
        await token_of(cluster, shop, "operator"),
        await token_of(cluster, shop, "tenant"),
    )
    of_pod = f"pod?namespace={shop}&name=web"
    async with shown(release, control_plane, tmp_path) as dashboard:
        for page in (*PAGES, of_pod, f"quotas?namespace={shop}"):
            for token in ("", f"{operator[:-4]}AAAA"):
                assert (await dashboard.get(page, token))[0] == 401, page
        for page in ("nodes", "policies", "quotas", of_pod, f"quotas?namespace={shop}"):
            for token in (operator, tenant):
                assert (await dashboard.get(page, token))[0] == 403, page

        async with (
            bound(cluster, role, shop, "operator"),
            bound(cluster, role, shop, "tenant", namespace=shop),
        ):
            # What was refused is remembered for some seconds, of each page.
            for page in (*PAGES, of_pod, "quotas?namespace=kube-system"):
                what = f"{page} is shown to the operator"
                await eventually(partial(dashboard.answers, page, operator, 200), what)
            for page in (of_pod, f"quotas?namespace={shop}"):
                what = f"{page} is shown to the tenant"
                await eventually(partial(dashboard.answers, page, tenant, 200), what)
            assert "team" in (await dashboard.get(f"quotas?namespace={shop}", tenant))[1]
            for page in (
                "nodes",
                "policies",
                "quotas",
                "quotas?namespace=kube-system",
                "pod?namespace=kube-system&name=any",
                "data/nodes",
                "data/quotas",
            ):
                assert (await dashboard.get(page, tenant))[0] == 403, page
        await eventually(partial(dashboard.answers, "nodes", operator, 403), "the right has ended")


@pytest.mark.usefixtures("crds")
async def test_a_person_signs_in_and_sees_a_new_node_come(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    await nodes.add("node-a")
    token = await token_of(cluster, shop, "operator")
    role = f"{release.name}-dashboard-reader"
    async with (
        chromium() as browser,
        shown(release, control_plane, tmp_path) as dashboard,
        bound(cluster, role, shop, "operator"),
        visit(browser) as tab,
    ):
        await eventually(partial(dashboard.answers, "nodes", token, 200), "the role counts")
        await tab.page.goto(f"{dashboard.url}/nodes")
        await tab.page.get_by_label("token").fill(token)
        await tab.page.keyboard.press("Enter")
        await tab.page.get_by_text("node-a").first.wait_for()
        complaints = [text for text in tab.complaints if "401" not in text]
        await nodes.add("node-b")
        await tab.page.get_by_text("node-b").first.wait_for()
        assert complaints == []
