from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, Query, connected
from webhook.controllers.creation_reviews import CreationReviewController

OURS = {"name": "something-is-said-of-new-pods", "expression": "false"}
THEIRS = {"name": "is-not-bound", "expression": "!has(object.spec.nodeName)"}


class Leader:
    """A leader, what it knows, and the configuration that it keeps."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.is_needed: bool | None = True
        self.leads = True
        self.now = 0.0
        self.controller = CreationReviewController(
            connection,
            "stowplan",
            is_needed=lambda: self.is_needed,
            may_write=lambda: self.leads,
            now=lambda: self.now,
        )

    async def at(self, seconds: float, *, is_needed: bool | None) -> list[Any]:
        """Go through a round; return the conditions after it."""
        self.now, self.is_needed = seconds, is_needed
        await self.controller.round()
        return self.conditions

    @property
    def conditions(self) -> list[Any]:
        (found,) = self.server.objects("mutatingwebhookconfigurations").values()
        webhook = {one["name"]: one for one in found["webhooks"]}["placement.stowplan.dev"]
        return list(webhook.get("matchConditions", ()))


def configuration(*conditions: dict[str, str]) -> dict[str, Any]:
    binding = {"name": "bind.stowplan.dev", "clientConfig": {"url": "https://x/bind"}}
    placement: dict[str, Any] = {
        "name": "placement.stowplan.dev",
        "clientConfig": {"url": "https://x/mutate"},
    }
    if conditions:
        placement["matchConditions"] = list(conditions)
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "stowplan"},
        "webhooks": [binding, placement],
    }


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[Leader]:
    async with fake_api_server() as server, connected(server.kubeconfig(tmp_path), None) as made:
        yield Leader(server, made)


@pytest.mark.parametrize("others", [(), (THEIRS,)])
async def test_pods_are_left_alone_once_nothing_was_said_of_them_for_half_a_minute(
    leader: Leader, others: tuple[dict[str, str], ...]
) -> None:
    leader.server.create(configuration(*others))
    assert await leader.at(0, is_needed=False) == [*others]
    assert await leader.at(29, is_needed=False) == [*others]
    assert await leader.at(30, is_needed=False) == [*others, OURS]
    assert await leader.at(31, is_needed=False) == [*others, OURS]


async def test_a_moment_in_which_something_may_be_said_begins_the_wait_anew(
    leader: Leader,
) -> None:
    leader.server.create(configuration())
    await leader.at(0, is_needed=False)
    await leader.at(20, is_needed=True)
    assert await leader.at(40, is_needed=False) == []
    assert await leader.at(69, is_needed=False) == []
    assert await leader.at(70, is_needed=False) == [OURS]


async def test_pods_are_asked_about_as_soon_as_something_may_be_said(leader: Leader) -> None:
    leader.server.create(configuration(THEIRS, OURS))
    assert await leader.at(0, is_needed=True) == [THEIRS]


async def test_while_it_is_not_known_what_is_said_all_stays_as_it_is(leader: Leader) -> None:
    leader.server.create(configuration(OURS))
    assert await leader.at(0, is_needed=None) == [OURS]
    leader.server.delete("mutatingwebhookconfigurations", "", "stowplan")
    leader.server.create(configuration())
    await leader.at(0, is_needed=False)
    assert await leader.at(100, is_needed=None) == []


async def test_who_does_not_lead_writes_nothing(leader: Leader) -> None:
    leader.server.create(configuration(OURS))
    leader.leads = False
    assert await leader.at(0, is_needed=True) == [OURS]


async def test_a_configuration_that_is_not_there_or_not_about_pods_is_no_error(
    leader: Leader,
) -> None:
    await leader.controller.round()
    made = configuration()
    leader.server.create({**made, "webhooks": made["webhooks"][:1]})
    await leader.controller.round()
    (found,) = leader.server.objects("mutatingwebhookconfigurations").values()
    assert found["webhooks"] == made["webhooks"][:1]


async def test_what_somebody_else_has_written_meanwhile_is_not_overwritten(
    leader: Leader, tmp_path: Path
) -> None:
    class Overtaken(Connection):
        """Reads what was there a moment ago, as a watch may show it."""

        def __init__(self, connection: Connection, old: bytes) -> None:
            self._connection, self._old = connection, old

        async def get(self, path: str, query: Query = ()) -> bytes:  # noqa: ARG002
            return self._old

        async def write(
            self,
            method: str,
            path: str,
            body: bytes,
            *,
            content_type: str = "application/json",
            query: Query = (),
        ) -> bytes:
            return await self._connection.write(
                method, path, body, content_type=content_type, query=query
            )

    leader.server.create(configuration(OURS))
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/stowplan"
    async with connected(leader.server.kubeconfig(tmp_path), None) as connection:
        old = await connection.get(path)
        merged = b'{"metadata": {"labels": {"by": "somebody"}}}'
        kind = "application/merge-patch+json"
        await connection.write("PATCH", path, merged, content_type=kind)
        overtaken = Leader(leader.server, Overtaken(connection, old))
        assert await overtaken.at(0, is_needed=True) == [OURS]
    assert await leader.at(0, is_needed=True) == []
