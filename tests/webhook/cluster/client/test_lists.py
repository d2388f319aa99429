from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.client.lists import list_kind

OURS, KOORDINATORS = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"


@asynccontextmanager
async def cluster(
    folder: Path, without: tuple[str, ...] = ()
) -> AsyncIterator[tuple[FakeApiServer, Connection]]:
    async with (
        fake_api_server(without=without) as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        yield server, connection


def create(server: FakeApiServer, namespace: str, group: str, cpu: object = "1") -> None:
    server.create(
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": namespace},
            "spec": {"max": {"cpu": cpu}},
        }
    )


async def test_a_kind_is_listed_in_all_its_groups(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, connection):
        create(server, "shop", OURS)
        create(server, "shop", KOORDINATORS)
        create(server, "lab", OURS)
        keys = {quota.key for quota in await list_kind(connection, "ElasticQuota") or ()}
        assert keys == {
            ("shop", OURS, "team"),
            ("shop", KOORDINATORS, "team"),
            ("lab", OURS, "team"),
        }
        found = await list_kind(connection, "ElasticQuota", "lab") or ()
        assert [quota.namespace for quota in found] == ["lab"]


async def test_a_group_that_the_cluster_lacks_has_no_objects(tmp_path: Path) -> None:
    async with cluster(tmp_path, (f"elasticquotas.{KOORDINATORS}",)) as (_, connection):
        assert await list_kind(connection, "ElasticQuota") == []
    both = (f"elasticquotas.{KOORDINATORS}", f"elasticquotas.{OURS}")
    async with cluster(tmp_path, both) as (_, connection):
        assert await list_kind(connection, "ElasticQuota") is None


async def test_an_object_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, connection):
        create(server, "shop", OURS, cpu="many")
        create(server, "lab", OURS)
        found = await list_kind(connection, "ElasticQuota") or ()
        assert [quota.namespace for quota in found] == ["lab"]


async def test_a_refusal_is_an_error_unless_it_counts_as_absence(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, connection):
        server.fail_next(1, 403)
        with pytest.raises(ApiError):
            await list_kind(connection, "ElasticQuota")
        server.fail_next(2, 403)
        assert await list_kind(connection, "ElasticQuota", absent=(403, 404)) is None


async def test_a_list_whose_version_is_gone_is_read_again(tmp_path: Path) -> None:
    async with cluster(tmp_path, (f"elasticquotas.{KOORDINATORS}",)) as (server, connection):
        create(server, "shop", OURS)
        server.fail_next(1, 410)
        assert len(await list_kind(connection, "ElasticQuota") or ()) == 1
