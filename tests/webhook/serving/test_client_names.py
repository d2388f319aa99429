"""Callers that show a client certificate: which of them may send reviews."""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.certificates import Authority
from tests.webhook.conftest import Caller, Start
from webhook.serving.client_names import names_of
from webhook.settings import Settings, SettingsError

REVIEW = json.loads((Path(__file__).parents[1] / "reviews" / "generate_name.json").read_text())[
    "review"
]
ALLOWED = ["kube-apiserver", "spiffe://cluster.example/kube-apiserver"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    folder = tmp_path / "clients"
    folder.mkdir()
    return Authority(folder)


@asynccontextmanager
async def showing(caller: Caller, user: str, authority: Authority) -> AsyncIterator[Caller]:
    """Yield a caller that shows a certificate, or none for the empty name."""
    trust = ssl.create_default_context(cadata=caller.server.ca_pem.decode())
    if user:
        pair = authority.issue(user, hosts=[f"{user}.example"])
        trust.load_cert_chain(pair.certificate, pair.key)
    connector = aiohttp.TCPConnector(ssl=trust)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Caller(caller.server, session)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_only_a_certificate_with_an_allowed_name_may_send_reviews(
    start: Start, authority: Authority, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"client_ca": authority.certificate, "client_allowed_names": ALLOWED}
    async with start(**names) as anonymous:
        async with showing(anonymous, "kube-apiserver", authority) as caller:
            assert (await caller.post(path, REVIEW))[0] == 200
        async with showing(anonymous, "kubelet", authority) as caller:
            with caplog.at_level(logging.WARNING):
                for _ in range(3):
                    status, answer = await caller.post(path, REVIEW)
            assert status == 403
            assert answer["text"] == (
                "the client certificate is for `kubelet`, `kubelet.example`: see"
                " `--client-allowed-names`\n"
            )
            (logged,) = (text for text in caplog.messages if "kubelet" in text)
            assert "a client certificate for `kubelet`, `kubelet.example` is not allowed" in logged
            assert await caller.count(path.removeprefix("/"), "forbidden") == 3
        async with showing(anonymous, "", authority) as caller:
            with pytest.raises(aiohttp.ClientError):
                await caller.post(path, REVIEW)


async def test_a_dns_name_is_a_name_too(start: Start, authority: Authority) -> None:
    names = {"client_ca": authority.certificate, "client_allowed_names": ["any.example"]}
    async with start(**names) as anonymous, showing(anonymous, "any", authority) as caller:
        assert (await caller.post("/mutate", REVIEW))[0] == 200


async def test_probes_on_their_own_port_need_no_certificate_and_take_no_reviews(
    start: Start, authority: Authority
) -> None:
    names = {"client_ca": authority.certificate, "client_allowed_names": ALLOWED}
    async with start(**names, probe_port=0) as caller:
        probes = caller.server.probe_url
        assert probes.startswith("https://")
        assert probes != caller.server.url
        for page in ("/livez", "/readyz", "/statusz"):
            assert (await caller.get(f"{probes}{page}"))[0] == 200
        async with caller.session.post(f"{probes}/mutate", json=REVIEW) as response:
            assert response.status == 404
        with pytest.raises(aiohttp.ClientError):
            await caller.get(f"{caller.server.url}/readyz")
        assert f"probes    {probes}/livez" in caller.server.greeting()


async def test_without_a_port_of_their_own_probes_are_where_reviews_go(caller: Caller) -> None:
    assert caller.server.probe_url == caller.server.url


def test_names_are_common_names_dns_names_and_uris() -> None:
    certificate = {
        "subject": ((("organizationName", "system:masters"),), (("commonName", "api"),)),
        "subjectAltName": (
            ("DNS", "api.example"),
            ("IP Address", "10.0.0.1"),
            ("URI", "spiffe://cluster.example/api"),
        ),
    }
    found = list(names_of(certificate))
    assert found == ["api", "api.example", "spiffe://cluster.example/api"]
    assert list(names_of({})) == []


def test_names_without_an_authority_are_refused() -> None:
    with pytest.raises(SettingsError, match="client-ca"):
        Settings(client_allowed_names=["kube-apiserver"])
