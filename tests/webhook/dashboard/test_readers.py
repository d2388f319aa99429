from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.access_reviews import AccessReviews, ListAccess, PageAccess
from webhook.cluster.client.connection import Connection, connected
from webhook.dashboard.readers import (
    LONGEST_TOKEN,
    SignInError,
    TokenReaders,
    UnavailableError,
)

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NODES = PageAccess("/dashboard/nodes")
SHOP = ListAccess("", "pods", "shop")


class Reviewer:
    """Reviews of tokens that are names of users, who may read what the test says."""

    def __init__(self, server: FakeApiServer) -> None:
        self.allowed: list[Any] = []
        self.asked: list[Any] = []
        server.play("POST", TOKENS, self.token)
        server.play("POST", ACCESS, self.right)

    def token(self, review: dict[str, Any]) -> object:
        name = review["spec"]["token"]
        self.asked.append(name)
        if name.startswith("forged"):
            return {"status": {}}
        user = {"username": name, "uid": f"uid of {name}", "groups": ["people"]}
        return {"status": {"authenticated": True, "user": user}}

    def right(self, review: dict[str, Any]) -> object:
        self.asked.append(review["spec"])
        return {"status": {"allowed": review["spec"]["user"] in self.allowed}}


@pytest.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with fake_api_server() as server:
        yield server


@pytest.fixture
async def connection(api_server: FakeApiServer, tmp_path: Path) -> AsyncIterator[Connection]:
    async with connected(api_server.kubeconfig(tmp_path), None) as connection:
        yield connection


async def test_a_right_is_reviewed_for_the_user_of_the_token(
    api_server: FakeApiServer, connection: Connection
) -> None:
    reviewer = Reviewer(api_server)
    reviewer.allowed.append("ann")
    readers = TokenReaders(AccessReviews(connection), lambda: 0.0)
    ann, bob = await readers.reader("ann"), await readers.reader("bob")
    assert (ann.name, bob.name) == ("ann", "bob")
    assert await ann.may(NODES)
    assert reviewer.asked[-1] == {
        "user": "ann",
        "uid": "uid of ann",
        "groups": ["people"],
        "extra": {},
        "nonResourceAttributes": {"path": "/dashboard/nodes", "verb": "get"},
    }
    assert not await bob.may(SHOP)
    assert reviewer.asked[-1]["resourceAttributes"] == {
        "group": "",
        "resource": "pods",
        "namespace": "shop",
        "verb": "list",
    }


async def test_answers_are_remembered_for_seconds_and_by_token(
    api_server: FakeApiServer, connection: Connection
) -> None:
    reviewer, time = Reviewer(api_server), 0.0
    reviewer.allowed.append("ann")
    readers = TokenReaders(AccessReviews(connection), lambda: time)
    for _ in range(3):
        assert await (await readers.reader("ann")).may(SHOP)
        with pytest.raises(SignInError, match="not valid"):
            await readers.reader("forged")
    assert len(reviewer.asked) == 5  # a token that is not valid is asked about again
    assert not await (await readers.reader("bob")).may(SHOP)
    reviewer.allowed.clear()
    time = 5.0
    assert not await (await readers.reader("ann")).may(SHOP)


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("", "a token is needed"),
        ("x" * (LONGEST_TOKEN + 1), "longer than"),
        ("forged", "not valid"),
    ],
)
async def test_nobody_signs_in_without_a_valid_token(
    api_server: FakeApiServer, connection: Connection, token: str, problem: str
) -> None:
    Reviewer(api_server)
    readers = TokenReaders(AccessReviews(connection), lambda: 0.0)
    with pytest.raises(SignInError, match=problem):
        await readers.reader(token)


async def test_where_the_api_server_does_not_say_nobody_reads(connection: Connection) -> None:
    readers = TokenReaders(AccessReviews(connection), lambda: 0.0)
    with pytest.raises(UnavailableError, match="does not say") as found:
        await readers.reader("ann")
    assert found.value.status == HTTPStatus.SERVICE_UNAVAILABLE


async def test_readers_beyond_a_few_at_a_time_cost_the_api_server_nothing(
    api_server: FakeApiServer, connection: Connection
) -> None:
    reviewer = Reviewer(api_server)
    readers = TokenReaders(AccessReviews(connection), lambda: 0.0)
    api_server.pause()
    waiting = [asyncio.create_task(readers.reader(f"user-{number}")) for number in range(8)]
    await api_server.until(lambda: len(api_server.requests) == 8)
    with pytest.raises(UnavailableError, match="too many") as found:
        await readers.reader("ann")
    assert found.value.status == HTTPStatus.TOO_MANY_REQUESTS
    api_server.resume()
    await asyncio.gather(*waiting)
    assert sorted(reviewer.asked) == [f"user-{number}" for number in range(8)]


async def test_made_up_tokens_keep_no_reader_out(
    api_server: FakeApiServer, connection: Connection
) -> None:
    reviewer, time = Reviewer(api_server), 0.0
    readers = TokenReaders(AccessReviews(connection), lambda: time)
    ann = await readers.reader("ann")
    time = 5.0  # nothing is remembered
    api_server.pause()
    forged = [asyncio.create_task(readers.reader(f"forged-{number}")) for number in range(8)]
    await api_server.until(lambda: len(api_server.requests) == 9)
    with pytest.raises(UnavailableError, match="too many"):
        await readers.reader("forged-8")
    again = [asyncio.create_task(readers.reader("ann")), asyncio.create_task(ann.may(SHOP))]
    await api_server.until(lambda: len(api_server.requests) == 11)
    api_server.resume()
    await asyncio.gather(*again)
    await asyncio.gather(*forged, return_exceptions=True)
    assert "forged-8" not in reviewer.asked


async def test_many_tokens_of_the_accounts_of_a_namespace_keep_no_reader_out(
    api_server: FakeApiServer, connection: Connection
) -> None:
    reviewer, time = Reviewer(api_server), 0.0
    readers = TokenReaders(AccessReviews(connection), lambda: time)
    accounts = [f"system:serviceaccount:build:bot-{number}" for number in range(20)]
    ann, *_ = [await readers.reader(name) for name in ("ann", *accounts)]
    time = 5.0  # nothing is remembered
    api_server.pause()
    asking = [asyncio.create_task(readers.reader(name)) for name in accounts]
    await api_server.until(lambda: len(api_server.requests) == 21 + 8)
    again = [asyncio.create_task(readers.reader("ann")), asyncio.create_task(ann.may(SHOP))]
    await api_server.until(lambda: len(api_server.requests) == 21 + 8 + 2)
    api_server.resume()
    await asyncio.gather(*again)
    refused = [
        each
        for each in await asyncio.gather(*asking, return_exceptions=True)
        if isinstance(each, UnavailableError)
    ]
    assert len(refused) == 12
    assert len(reviewer.asked) == 21 + 8 + 2
