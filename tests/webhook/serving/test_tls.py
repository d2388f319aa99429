"""Callers that show a client certificate: which of them may send reviews."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from tests.e2e.certificates import Authority
from tests.patience import PATIENCE_SECONDS
from tests.webhook.conftest import Caller, Start
from tests.webhook.handshakes import served_leaf, shaken_hands
from webhook.certificates import TlsError
from webhook.serving.tls import (
    CertificateFiles,
    LiveCertificate,
    SelfSigned,
    ServingCertificate,
    names_of,
)
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


NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)


def pair(
    folder: Path,
    name: str = "tls",
    *,
    until: datetime = NOW + timedelta(days=30),
    password: bytes = b"",
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
) -> tuple[Path, Path]:
    """Write a certificate, valid from a day before NOW, and its key."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(until)
        .sign(key, hashes.SHA256())
    )
    encryption = BestAvailableEncryption(password) if password else NoEncryption()
    cert_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
    cert_path.write_bytes(certificate.public_bytes(Encoding.PEM))
    key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return cert_path, key_path


def served_subject(server: ssl.SSLContext) -> str:
    return served_leaf(server).subject.rfc4514_string()


def files_in_use(files: tuple[Path, Path], *, now: datetime = NOW) -> LiveCertificate:
    return LiveCertificate(CertificateFiles(*files), client_ca=None, now=lambda: now)


def self_signed(
    *, now: datetime, names: tuple[str, ...] = (), client_ca: Path | None = None
) -> ServingCertificate:
    source = SelfSigned(now=now, names=names)
    return LiveCertificate(source, client_ca=client_ca, now=lambda: now).current


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "stowplan.example"])
def test_a_self_signed_certificate_is_trusted_through_its_authority(name: str) -> None:
    made = self_signed(now=datetime.now(UTC), names=("stowplan.example",))
    trusting = ssl.create_default_context(cadata=made.ca_pem.decode())
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    assert shaken_hands(made.context, trusting, name).version() == "TLSv1.3"


def test_a_caller_with_an_old_protocol_is_refused() -> None:
    made = self_signed(now=NOW)
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_no_session_is_kept_for_callers_that_never_resume_one() -> None:
    made = self_signed(now=datetime.now(UTC))
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    caller = shaken_hands(made.context, blind, "localhost")
    with pytest.raises(ssl.SSLWantReadError):
        caller.read()  # tickets would come with the first bytes
    assert caller.session is None or not caller.session.has_ticket


def test_given_files_are_served_and_their_end_is_known(tmp_path: Path) -> None:
    until = NOW + timedelta(days=3)
    certificate = files_in_use(pair(tmp_path, "given", until=until)).current
    assert certificate.expires_at == until
    assert served_subject(certificate.context) == "CN=given"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _, key = pair(tmp_path)
    with pytest.raises(TlsError, match=r"none\.crt: cannot be read: No such file"):
        files_in_use((tmp_path / "none.crt", key))


def test_a_file_that_is_not_pem_is_named(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    cert.write_text("hello")
    with pytest.raises(TlsError, match=r"tls\.crt: no certificate in PEM form"):
        files_in_use((cert, key))


def test_swapped_files_are_noticed(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    with pytest.raises(TlsError, match=r"tls\.key: no certificate in PEM form"):
        files_in_use((key, cert))


def test_a_broken_key_is_named(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    key.write_text(cert.read_text())
    with pytest.raises(TlsError, match=r"tls\.key: no private key in PEM form"):
        files_in_use((cert, key))


def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"tls\.key: the key is encrypted"):
        files_in_use(pair(tmp_path, password=b"secret"))


def test_the_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    cert, _ = pair(tmp_path, "one")
    _, key = pair(tmp_path, "two")
    with pytest.raises(TlsError, match=r"two\.key: this is not the key of .*one\.crt"):
        files_in_use((cert, key))


def test_a_key_too_weak_to_be_served_is_refused(tmp_path: Path) -> None:
    weak = rsa.generate_private_key(65_537, 1024)  # noqa: S505 - that is the point
    with pytest.raises(TlsError, match=r"tls\.crt: cannot be served"):
        files_in_use(pair(tmp_path, key=weak))


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    files = pair(tmp_path, until=NOW)
    with pytest.raises(TlsError, match=r"tls\.crt: expired at 2026-01-05T10:00:00Z"):
        files_in_use(files)


def test_a_certificate_of_the_future_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="not valid before"):
        files_in_use(pair(tmp_path), now=NOW - timedelta(days=2))


def test_a_client_authority_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello")
    with pytest.raises(TlsError, match=r"ca\.pem: no certificate in PEM form"):
        self_signed(now=NOW, client_ca=tmp_path / "ca.pem")
    with pytest.raises(TlsError, match=r"none\.pem: cannot be read"):
        self_signed(now=NOW, client_ca=tmp_path / "none.pem")


def test_with_a_client_authority_a_caller_must_show_a_certificate_of_it(tmp_path: Path) -> None:
    authority, key = pair(tmp_path, "api-server", until=datetime.now(UTC) + timedelta(days=1))
    made = self_signed(now=datetime.now(UTC), client_ca=authority)
    stranger = ssl.create_default_context(cadata=made.ca_pem.decode())
    known = ssl.create_default_context(cadata=made.ca_pem.decode())
    known.load_cert_chain(authority, key)
    assert shaken_hands(made.context, known, "localhost")
    with pytest.raises(ssl.SSLError, match="did not return a certificate"):
        shaken_hands(made.context, stranger, "localhost")


@pytest.mark.usefixtures("files_are_checked_often")
async def test_a_changed_client_authority_counts_for_new_connections(tmp_path: Path) -> None:
    until = datetime.now(UTC) + timedelta(days=1)
    (old, old_key), (new, new_key) = (pair(tmp_path, name, until=until) for name in ("old", "new"))
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(old.read_bytes())
    source = SelfSigned(now=datetime.now(UTC))
    live = LiveCertificate(source, client_ca=trusted, now=lambda: datetime.now(UTC))

    def shaken(cert: Path, key: Path) -> bool:
        caller = ssl.create_default_context(cadata=live.current.ca_pem.decode())
        caller.load_cert_chain(cert, key)
        try:
            return bool(shaken_hands(live.current.context, caller, "localhost"))
        except ssl.SSLError:
            return False

    watching = asyncio.create_task(live.watch())
    trusted.write_text("half written")
    await live.renew()
    assert (shaken(old, old_key), shaken(new, new_key)) == (True, False)
    content = new.read_bytes()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not shaken(new, new_key):
            content += b"\n"  # another change, whenever the first look at the file is
            trusted.write_bytes(content)
            await asyncio.sleep(0)
    assert not shaken(old, old_key)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_probes_need_no_certificate_where_reviews_do(tmp_path: Path) -> None:
    authority, _ = pair(tmp_path, "api-server", until=datetime.now(UTC) + timedelta(days=1))
    made = self_signed(now=datetime.now(UTC), client_ca=authority)
    stranger = ssl.create_default_context(cadata=made.ca_pem.decode())
    assert shaken_hands(made.probe_context, stranger, "localhost")


async def test_renewed_files_are_served_on_new_connections(tmp_path: Path) -> None:
    files = pair(tmp_path)
    live = files_in_use(files)
    context = live.current.context
    for old, new in zip(files, pair(tmp_path, "renewed"), strict=True):
        new.replace(old)
    await live.renew()
    assert served_subject(context) == "CN=renewed"


async def test_bad_new_files_leave_the_old_certificate_in_use(tmp_path: Path) -> None:
    files = pair(tmp_path)
    live = files_in_use(files)
    before = live.current
    files[0].write_text("half written")
    await live.renew()
    assert live.current is before
    assert served_subject(before.context) == "CN=tls"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["stowplan.example", "127.0.0.1"])  # an address is not announced
async def test_a_pair_with_another_kind_of_key_replaces_the_old_one_for_every_caller(
    tmp_path: Path, name: str, version: ssl.TLSVersion
) -> None:
    files = pair(tmp_path, "elliptic")
    live = files_in_use(files)
    renewed = pair(tmp_path, "rsa", key=rsa.generate_private_key(65_537, 2048))
    for old, new in zip(files, renewed, strict=True):
        new.replace(old)
    await live.renew()
    caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    caller.check_hostname, caller.verify_mode = False, ssl.CERT_NONE
    caller.maximum_version = version
    der = shaken_hands(live.current.context, caller, name).getpeercert(binary_form=True)
    assert der is not None
    assert x509.load_der_x509_certificate(der).subject.rfc4514_string() == "CN=rsa"


async def test_files_that_did_not_change_are_not_taken_up_again(tmp_path: Path) -> None:
    live = files_in_use(pair(tmp_path))
    before = live.current
    await live.renew()
    assert live.current is before


@pytest.mark.usefixtures("files_are_checked_often")
async def test_changed_files_are_noticed(tmp_path: Path) -> None:
    files = pair(tmp_path)
    source = CertificateFiles(*files)
    live = LiveCertificate(source, client_ca=None, now=lambda: NOW)
    taken_up = asyncio.Event()

    async def renew() -> None:
        await live.renew()
        taken_up.set()

    watching = asyncio.ensure_future(source.watch(renew))
    await asyncio.sleep(0)  # it has seen the first files
    for old, new in zip(files, pair(tmp_path, "renewed"), strict=True):
        new.replace(old)
    await asyncio.wait_for(taken_up.wait(), PATIENCE_SECONDS)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert served_subject(live.current.context) == "CN=renewed"


async def test_a_self_signed_pair_has_nothing_to_watch_and_nobody_who_was_told() -> None:
    live = LiveCertificate(SelfSigned(now=NOW), client_ca=None, now=lambda: NOW)
    await live.watch()
    assert live.bundle_matches is None
