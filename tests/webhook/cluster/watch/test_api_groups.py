from __future__ import annotations

from pathlib import Path

from tests.fake_api_server import fake_api_server
from webhook.cluster.client.connection import connected
from webhook.cluster.watch.api_groups import ApiGroups

GROUP = "slo.koordinator.sh"


async def test_all_who_ask_within_a_while_are_told_by_one_request(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        groups = ApiGroups(connection, 3_600)
        assert await groups.has(GROUP)
        assert not await groups.has("nobody.example.com")
        assert [each.path for each in server.requests] == ["/apis"]


async def test_a_group_that_comes_is_seen_after_a_while(tmp_path: Path) -> None:
    async with (
        fake_api_server(without=[f"nodemetrics.{GROUP}"]) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        groups = ApiGroups(connection, 0)
        assert not await groups.has(GROUP)
        server.install(f"nodemetrics.{GROUP}")
        assert await groups.has(GROUP)
