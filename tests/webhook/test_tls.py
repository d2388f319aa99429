from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

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

from webhook.tls import LiveCertificate, TlsError, load_certificate, self_signed

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


def shaken_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Return the client's side of a handshake made in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (here, there):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    return here


def served_subject(server: ssl.SSLContext) -> str:
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    der = shaken_hands(server, blind, "any").getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "stowplan.example"])
def test_a_self_signed_certificate_is_trusted_through_its_authority(name: str) -> None:
    made = self_signed(now=datetime.now(UTC), names=["stowplan.example"])
    trusting = ssl.create_default_context(cadata=made.ca_pem.decode())
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    assert shaken_hands(made.context, trusting, name).version() == "TLSv1.3"


def test_a_caller_with_an_old_protocol_is_refused() -> None:
    made = self_signed(now=NOW)
    assert made.context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_given_files_are_served_and_their_end_is_known(tmp_path: Path) -> None:
    until = NOW + timedelta(days=3)
    certificate = load_certificate(*pair(tmp_path, "given", until=until), now=NOW)
    assert certificate.expires_at == until
    assert served_subject(certificate.context) == "CN=given"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _, key = pair(tmp_path)
    with pytest.raises(TlsError, match=r"none\.crt: cannot be read: No such file"):
        load_certificate(tmp_path / "none.crt", key, now=NOW)


def test_a_file_that_is_not_pem_is_named(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    cert.write_text("hello")
    with pytest.raises(TlsError, match=r"tls\.crt: no certificate in PEM form"):
        load_certificate(cert, key, now=NOW)


def test_swapped_files_are_noticed(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    with pytest.raises(TlsError, match=r"tls\.key: no certificate in PEM form"):
        load_certificate(key, cert, now=NOW)


def test_a_broken_key_is_named(tmp_path: Path) -> None:
    cert, key = pair(tmp_path)
    key.write_text(cert.read_text())
    with pytest.raises(TlsError, match=r"tls\.key: no private key in PEM form"):
        load_certificate(cert, key, now=NOW)


def test_an_encrypted_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"tls\.key: the key is encrypted"):
        load_certificate(*pair(tmp_path, password=b"secret"), now=NOW)


def test_the_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    cert, _ = pair(tmp_path, "one")
    _, key = pair(tmp_path, "two")
    with pytest.raises(TlsError, match=r"two\.key: this is not the key of .*one\.crt"):
        load_certificate(cert, key, now=NOW)


def test_a_key_too_weak_to_be_served_is_refused(tmp_path: Path) -> None:
    weak = rsa.generate_private_key(65_537, 1024)  # noqa: S505 - that is the point
    with pytest.raises(TlsError, match=r"tls\.crt: cannot be served"):
        load_certificate(*pair(tmp_path, key=weak), now=NOW)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    files = pair(tmp_path, until=NOW)
    with pytest.raises(TlsError, match=r"tls\.crt: expired at 2026-01-05T10:00:00Z"):
        load_certificate(*files, now=NOW)


def test_a_certificate_of_the_future_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="not valid before"):
        load_certificate(*pair(tmp_path), now=NOW - timedelta(days=2))


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


async def test_renewed_files_are_served_on_new_connections(tmp_path: Path) -> None:
    files = pair(tmp_path)
    live = LiveCertificate(files, client_ca=None, names=(), now=lambda: NOW)
    context = live.current.context
    for old, new in zip(files, pair(tmp_path, "renewed"), strict=True):
        new.replace(old)
    await live.renew()
    assert served_subject(context) == "CN=renewed"


async def test_bad_new_files_leave_the_old_certificate_in_use(tmp_path: Path) -> None:
    files = pair(tmp_path)
    live = LiveCertificate(files, client_ca=None, names=(), now=lambda: NOW)
    before = live.current
    files[0].write_text("half written")
    await live.renew()
    assert live.current is before
    assert served_subject(before.context) == "CN=tls"
