from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.errors import InvalidFileError
from tests.fake_api_server import fake_api_server
from tests.webhook.cluster.reflecting import connected_to, pod, quota
from webhook.cluster.client.connection import ApiError, Connection, connected
from webhook.cluster.client.credentials import NoKubeconfigError

PODS = "/api/v1/pods"
WATCH = [("watch", "true")]
QUOTA = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/shop/elasticquotas/team"


async def first_line(connection: Connection, *, seconds: float = 5.0) -> bytes:
    async with connection.watch(PODS, WATCH, read_timeout_seconds=seconds) as lines:
        async for line in lines:
            return line
    return b""


@pytest.mark.parametrize("tls", [False, True])
async def test_what_the_server_answers_comes_back_as_bytes(tmp_path: Path, *, tls: bool) -> None:
    async with fake_api_server(tls=tls) as server, connected_to(server, tmp_path) as connection:
        server.create(pod("one"))
        body = await connection.get(PODS, [("limit", "5"), ("fieldSelector", "status.phase!=x")])
        assert msgspec.json.decode(body)["items"][0]["metadata"]["name"] == "one"
        assert server.requests[-1].query == {"limit": "5", "fieldSelector": "status.phase!=x"}


async def test_passwords_of_the_user_who_started_us_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP client would take them from this file, look into it each time, and then refuse."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        server.token = "a-token"  # noqa: S105 - of the fake server
        assert await connection.get(PODS)


@pytest.mark.parametrize("status", [404, 410, 429, 500])
async def test_every_refusal_is_an_error(tmp_path: Path, status: int) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        server.fail_next(1, status, headers={"Retry-After": "3"})
        with pytest.raises(ApiError) as refused:
            await connection.get(PODS)
        assert refused.value.status == status
        assert refused.value.message
        assert refused.value.retry_after_seconds == 3.0

        server.fail_next(1, status)
        with pytest.raises(ApiError) as refused:
            await first_line(connection)
        assert refused.value.status == status


async def test_nobody_at_home_is_an_error_without_a_status(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        config = server.kubeconfig(tmp_path)
    async with connected(config, None) as connection:
        with pytest.raises(ApiError) as failed:
            await connection.get(PODS)
        assert failed.value.status == 0
        assert failed.value.message == f"{server.url.removeprefix('http://')}: connection refused"


async def test_a_name_that_does_not_resolve_is_an_error_without_a_status(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        config = server.kubeconfig(tmp_path)
        text = config.read_text()
    config.write_text(text.replace(server.url, "http://no-such-host.invalid:6443"))
    async with connected(config, None) as connection:
        with pytest.raises(ApiError) as failed:
            await connection.get(PODS)
        assert failed.value.status == 0
        assert "no-such-host.invalid" in failed.value.message


async def test_a_server_nobody_vouches_for_is_not_talked_to(tmp_path: Path) -> None:
    async with fake_api_server(tls=True) as server, fake_api_server(tls=True) as other:
        server.ca_pem = other.ca_pem
        async with connected_to(server, tmp_path) as connection:
            with pytest.raises(ApiError, match="certificate"):
                await connection.get(PODS)


async def test_writes_are_sent_as_they_are_and_conflicts_come_back(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        old = server.create(quota("team", "10", group="scheduling.x-k8s.io"))
        patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}
        merge = "application/merge-patch+json"
        body = msgspec.json.encode({**patch, "spec": {"max": {"cpu": "20"}}})
        answer = await connection.write("PATCH", QUOTA, body, content_type=merge)
        assert msgspec.json.decode(answer)["spec"]["max"] == {"cpu": "20"}
        with pytest.raises(ApiError) as refused:
            await connection.write("PATCH", QUOTA, body, content_type=merge)
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")


async def test_a_json_patch_stays_one(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        server.create(quota("team", "10", group="scheduling.x-k8s.io"))
        body = b'[{"op": "replace", "path": "/spec/max/cpu", "value": "30"}]'
        answer = await connection.write(
            "PATCH", QUOTA, body, content_type="application/json-patch+json"
        )
        assert msgspec.json.decode(answer)["spec"]["max"] == {"cpu": "30"}
        await connection.write("DELETE", QUOTA, b"")
        assert server.objects("elasticquotas") == {}


async def test_a_line_of_any_length_is_one_line(tmp_path: Path) -> None:
    """Other readers of lines give up at their buffer's size, and would at every attempt."""
    big = pod("big")
    big["spec"]["containers"][0]["args"] = ["x" * 1_400_000]
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        server.create(big)
        line = await first_line(connection)
    assert len(line) > 1_400_000
    assert msgspec.json.decode(line)["type"] == "ADDED"


async def test_half_a_line_at_the_end_is_none_and_the_cut_is_told(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        server.create(pod("one"))
        seen = []
        with pytest.raises(ApiError) as cut:  # noqa: PT012 - the lines before the cut matter
            async with connection.watch(PODS, WATCH, read_timeout_seconds=5) as lines:
                async for line in lines:
                    seen.append(msgspec.json.decode(line)["object"]["metadata"]["name"])
                    server.cut_watches(mid_event=True)
        assert seen == ["one"]
        assert cut.value.status == 0


async def test_silence_ends_a_watch(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        with pytest.raises(ApiError) as failed:
            await first_line(connection, seconds=0.02)
        assert failed.value.status == 0


async def test_a_watch_may_last_for_ever(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        sent = overheard(connection)
        server.create(pod("one"))
        await first_line(connection)
        await connection.get(PODS)
    limits = [options["timeout"] for options, _ in sent]
    assert [limit.total for limit in limits] == [None, 60.0]
    assert [limit.sock_read for limit in limits] == [5.0, 30.0]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_answers_are_compressed_only_on_demand(tmp_path: Path, encoding: str) -> None:
    big = pod("big")
    big["metadata"]["annotations"] = {"text": "x" * 200_000}
    async with fake_api_server() as server:
        server.create(big)
        config = server.kubeconfig(tmp_path)
        async with connected(config, None, accept_encoding=encoding) as connection:
            sent = overheard(connection)
            assert len(await connection.get(PODS)) > 200_000
    assert [answer.headers.get("Content-Encoding", "identity") for _, answer in sent] == [encoding]


def overheard(connection: Connection) -> list[tuple[dict[str, Any], Any]]:
    """Return a list that will hold what the client is asked to send, and what comes back."""
    heard: list[tuple[dict[str, Any], Any]] = []
    session: Any = connection.session
    send = session.request

    async def sending(*args: object, **options: object) -> object:
        answer = await send(*args, **options)
        heard.append((options, answer))
        return answer

    session.request = sending
    return heard


@pytest.mark.parametrize(
    "text", ["no: config", "clusters: []\ncontexts: []\ncurrent-context: none", "{"]
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, text: str) -> None:
    config = tmp_path / "broken"
    config.write_text(text)
    with pytest.raises(InvalidFileError, match="broken: no connection can be made with it"):
        async with connected(config, None):
            pass


async def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoKubeconfigError, match=r"there is no kubeconfig `.*missing`"):
        async with connected(tmp_path / "missing", None):
            pass


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with fake_api_server() as server:
        with pytest.raises(InvalidFileError, match="nowhere"):
            async with connected(server.kubeconfig(tmp_path), "nowhere"):
                pass
