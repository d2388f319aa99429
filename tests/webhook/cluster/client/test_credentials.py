from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from engine.errors import InvalidFileError
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.client.credentials import Kubeconfig

NODES = "/api/v1/nodes"


@asynccontextmanager
async def in_a_pod(server: FakeApiServer, folder: Path, token: str) -> AsyncIterator[Connection]:
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(server.ca_pem)
    address = urlsplit(server.url)
    environ = {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }
    async with connected(None, None, environ=environ, service_account=folder) as connection:
        yield connection


async def test_in_a_pod_its_service_account_is_used_and_its_newline_is_not(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server:
        server.token = "first"  # noqa: S105 - of the fake server
        async with in_a_pod(server, tmp_path, "first\n") as connection:
            assert await connection.get(NODES)


async def test_in_a_pod_a_new_token_is_used_at_once(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server:
        server.token = "first"  # noqa: S105 - of the fake server
        async with in_a_pod(server, tmp_path, "first") as connection:
            await connection.get(NODES)
            server.token = "second"  # noqa: S105 - of the fake server
            (tmp_path / "token").write_text("second\n")
            assert await connection.get(NODES)
            (tmp_path / "token").unlink()  # it is written anew: what we have is good for a while
            assert await connection.get(NODES)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a kubeconfig: expected a mapping of keys to values"),
        (b"[]", "not a kubeconfig: expected a mapping of keys to values"),
        (b"\xc2\x00", "not a kubeconfig: not valid UTF-8"),
        (b"contexts: [{name: dev}]", "it has no context `prod`\nhint: it has `dev`"),
        (b"contexts: [{name: prd}]", "it has no context `prod`\nhint: did you mean `prd`?"),
        (b"contexts: 5", "it has no context `prod`"),
    ],
)
async def test_what_is_no_kubeconfig_is_said_in_our_words(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    with pytest.raises(InvalidFileError) as refused:
        await Kubeconfig(file, "prod").configuration()
    assert str(refused.value) == f"{file}: {problem}"


async def test_in_a_pod_without_a_token_nothing_can_be_done(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with pytest.raises(InvalidFileError, match="no connection can be made"):
        async with connected(None, None, environ=environ, service_account=tmp_path):
            pass


async def test_a_token_file_of_a_kubeconfig_is_stripped_and_read_again_after_401(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    async with fake_api_server() as server:
        server.token = "first"  # noqa: S105 - of the fake server
        async with connected(server.kubeconfig(tmp_path, token_file=file), None) as connection:
            await connection.get(NODES)
            server.token = "second"  # noqa: S105 - of the fake server
            file.write_text("second\n")
            assert all(
                await asyncio.gather(*(connection.get(NODES) for _ in range(5)))
            )  # one reads it again for all


async def test_credentials_that_stay_wrong_are_an_error(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        config = server.kubeconfig(tmp_path)
        server.token = "another"  # noqa: S105 - of the fake server
        async with connected(config, None) as connection:
            with pytest.raises(ApiError) as refused:
                await connection.get(NODES)
            assert refused.value.status == 401
            assert len(server.requests) == 2  # with what was read again it fared no better
            with pytest.raises(ApiError):
                await connection.get(NODES)
    assert len(server.requests) == 3  # what was read a moment ago is not read again


class Now:
    """The time of day, as a test wants it."""

    def __init__(self) -> None:
        self.moment = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.moment


def with_plugin(config: Path, folder: Path, tokens: Path) -> Path:
    """Let a kubeconfig's user be who a plugin says: it gives one token after the other."""
    plugin = folder / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"left = pathlib.Path({str(tokens)!r})\n"
        "first, *others = json.loads(left.read_text())\n"
        "left.write_text(json.dumps(others))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': first}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    content = yaml.safe_load(config.read_text())
    content["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    }
    config.write_text(yaml.safe_dump(content))
    return config


async def test_a_plugin_is_run_again_before_its_token_ends(tmp_path: Path) -> None:
    now = Now()
    tokens = tmp_path / "tokens.json"
    ends = [(now() + timedelta(hours=hours)).isoformat() for hours in (1, 2)]
    tokens.write_text(
        json.dumps(
            [
                {"token": "first", "expirationTimestamp": ends[0]},
                {"token": "second", "expirationTimestamp": ends[1]},
            ]
        )
    )
    async with fake_api_server() as server:
        config = with_plugin(server.kubeconfig(tmp_path), tmp_path, tokens)
    configuration = await Kubeconfig(config, None, now).configuration()
    assert await header(configuration) == "Bearer first"
    now.moment += timedelta(minutes=58)
    assert await header(configuration) == "Bearer first"
    now.moment += timedelta(minutes=1, seconds=30)
    assert await header(configuration) == "Bearer second"


async def test_a_plugin_without_an_end_is_run_again_after_401(tmp_path: Path) -> None:
    now = Now()
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([{"token": "first"}, {"token": "second"}]))
    async with fake_api_server() as server:
        config = with_plugin(server.kubeconfig(tmp_path), tmp_path, tokens)
    identity = Kubeconfig(config, None, now)
    configuration = await identity.configuration()
    assert await identity.renew(configuration)
    assert await header(configuration) == "Bearer second"
    now.moment += timedelta(seconds=1)
    assert not await identity.renew(configuration)  # it was run a moment ago
    now.moment += timedelta(minutes=1)
    assert not await identity.renew(configuration)  # it has no more tokens, and fails
    assert await header(configuration) == "Bearer second"


async def header(configuration: object) -> str:
    settings = await configuration.auth_settings()  # type: ignore[attr-defined] # the client has no types
    return str(settings["BearerToken"]["value"])
