"""Callers of the webhook: with the chart, only the API server gets an answer to a review."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.certificates import Authority, KeyPair
from tests.e2e.chart import Release, of_kind, rendered
from tests.e2e.chart_replicas import becomes, chart_control, chart_replicas, running, values_beside
from tests.e2e.cluster import CallError, Cluster, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.installed import review_of
from tests.e2e.nodes import Nodes
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_NAME = "kube-apiserver-webhooks"
_CONFIG_MAP = "stowplan-clients"


async def _forged(replica: Replica, shop: str, pair: KeyPair | None) -> tuple[int, str]:
    """Return status and text of the answer to a review that is not of the API server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    url = f"https://{LOCAL}:{replica.port}/validate"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(url, json=review_of(pod(shop, "forged"))) as answer,
    ):
        return answer.status, await answer.text()


@pytest.mark.usefixtures("crds")
async def test_with_a_client_authority_only_the_api_server_is_answered(
    cluster: Cluster,
    control_plane: ControlPlane,
    nodes: Nodes,
    release: Release,
    shop: str,
    tmp_path: Path,
) -> None:
    for name in ("node-a", "node-b"):
        await nodes.add(name)
    folder = tmp_path / "clients"
    folder.mkdir()
    clients = Authority(folder)
    api_server, kubelet = clients.issue(_NAME), clients.issue("kubelet")
    async with fronting([]) as front:
        values = values_beside(
            f"https://{LOCAL}:{front.port}",
            "node-a",
            **{"webhook.clients": {"caConfigMap": _CONFIG_MAP, "allowedNames": [_NAME]}},
        )
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": _CONFIG_MAP, "namespace": release.namespace},
                "data": {"ca.crt": clients.pem.decode()},
            }
        )
        await release.change(**values)
        (replica,) = chart_replicas(
            release,
            control_plane,
            tmp_path / "one",
            count=1,
            values=values,
            more=[("client-ca", str(clients.certificate))],
        )
        control = chart_control(
            release,
            control_plane,
            tmp_path / "control",
            values=values,
            more=[("client-ca", str(clients.certificate))],
        )
        async with running(
            [replica, *control]
        ):  # it is ready, so probes without a certificate are answered
            front.targets = [replica.port]
            shown = {f"{LOCAL}:{front.port}": api_server}
            showing = control_plane.showing_certificates(shown)
            await asyncio.to_thread(showing.__enter__)
            try:
                await becomes(cluster, shop, "node-a")
                status, text = await _forged(replica, shop, kubelet)
                assert (status, "is for `kubelet`" in text) == (403, True)
                with pytest.raises(aiohttp.ClientError):
                    await _forged(replica, shop, None)
                with pytest.raises(aiohttp.ClientError):  # of another authority
                    await _forged(replica, shop, control_plane.authority.issue(_NAME))
                assert (await replica.reviews("validate"))["forbidden"] == 1
            finally:
                await asyncio.to_thread(showing.__exit__, None, None, None)

            # Without its certificate the API server is refused, too, and says so.
            async def is_refused() -> bool:
                try:
                    await cluster.create(pod(shop, "refused"), dry_run=True)
                except CallError as refused:
                    return "quota.stowplan.dev" in refused.message
                return False

            await eventually(is_refused, "pods are refused")


def test_probes_go_where_no_client_certificate_is_needed() -> None:
    clients = {"caConfigMap": _CONFIG_MAP, "allowedNames": [_NAME]}
    manifests = rendered(values={"webhook.clients": clients})
    spec = of_kind(manifests, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "probes"
    (mount,) = (one for one in container["volumeMounts"] if one["name"] == "clients")
    (volume,) = (one for one in spec["volumes"] if one["name"] == "clients")
    assert volume["configMap"]["name"] == _CONFIG_MAP
    given = {one["name"]: one.get("value") for one in container["env"]}
    assert given["STOWPLAN_CLIENT_CA"] == f"{mount['mountPath']}/ca.crt"
    assert given["STOWPLAN_CLIENT_ALLOWED_NAMES"] == _NAME
