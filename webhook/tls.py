"""The serving certificate: read from files, or a self-signed pair made at start."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from engine.errors import StowplanError

_VALID_FOR = timedelta(days=365)
_CLOCK_SKEW = timedelta(minutes=5)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

_log = logging.getLogger(__name__)


class TlsError(StowplanError):
    """A certificate, key or authority that cannot be used; says which file and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCertificate:
    """What the webhook shows its callers.

    Attributes:
        context: for the server side of connections.
        expires_at: the end of the certificate's validity.
        ca_pem: what a caller must trust (`caBundle`); empty where its issuer is not known to us.
    """

    context: ssl.SSLContext
    expires_at: datetime
    ca_pem: bytes = b""


def load_certificate(
    cert: Path,
    key: Path,
    *,
    now: datetime,
    client_ca: Path | None = None,
    context: ssl.SSLContext | None = None,
) -> ServingCertificate:
    """Return the certificate of a PEM file, checked against its key and the clock.

    Args:
        cert: the certificate, then its chain.
        key: its private key, without a password.
        now: the moment it must be valid at.
        client_ca: authorities of accepted client certificates; None accepts any client.
        context: one in use: connections made from now on get the new certificate.

    Raises:
        TlsError: a file cannot be read or is not PEM, the two do not belong together, or the
            certificate is not valid now.
    """
    leaf = _leaf(cert)
    _check_key(cert, leaf, key)
    if leaf.not_valid_after_utc <= now:
        raise TlsError(f"{cert}: expired at {leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    if leaf.not_valid_before_utc > now:
        raise TlsError(f"{cert}: not valid before {leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}")
    context = context or _server_context(client_ca)
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise TlsError(f"{cert}: cannot be served: {error.reason or error}") from error
    return ServingCertificate(context=context, expires_at=leaf.not_valid_after_utc)


def self_signed(
    *, now: datetime, names: Iterable[str] = (), client_ca: Path | None = None
) -> ServingCertificate:
    """Return a new certificate with an authority of its own; nothing is left on disk.

    Args:
        now: validity starts a little before it, for callers whose clock is behind.
        names: host names and addresses it is for, beside those of this machine.
        client_ca: as for `load_certificate`.

    Raises:
        TlsError: `client_ca` cannot be used.
    """
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = _name("stowplan self-signed authority")
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = dict.fromkeys([*_LOCAL_NAMES, socket.gethostname(), *names])
    leaf = (
        _builder(_name("stowplan"), ca_name, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in alternatives if name]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    context = _server_context(client_ca)
    _load_from_memory(context, leaf, key)
    return ServingCertificate(
        context=context,
        expires_at=leaf.not_valid_after_utc,
        ca_pem=ca.public_bytes(Encoding.PEM),
    )


class LiveCertificate:
    """The certificate in use; new files are taken up, bad ones leave it in use.

    Args:
        files: certificate and key; None makes a self-signed pair.
        client_ca: authorities of accepted client certificates; None accepts any client.
        names: what a self-signed certificate is for, beside this machine.
        now: the time of day.

    Raises:
        TlsError: the files cannot be used at the start.
    """

    def __init__(
        self,
        files: tuple[Path, Path] | None,
        *,
        client_ca: Path | None,
        names: Iterable[str],
        now: Callable[[], datetime],
    ) -> None:
        self._files = files
        self._now = now
        if files:
            self.current = load_certificate(*files, now=now(), client_ca=client_ca)
        else:
            self.current = self_signed(now=now(), names=names, client_ca=client_ca)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files a new certificate may appear in."""
        return self._files or ()

    async def renew(self) -> None:
        """Read the files again; connections made from now on get what they hold."""
        if not self._files:
            return
        try:
            self.current = load_certificate(
                *self._files, now=self._now(), context=self.current.context
            )
        except TlsError as error:
            _log.error("certificate not renewed, the last good one stays: %s", error)
        else:
            _log.info("certificate renewed, valid until %s", self.current.expires_at)


def _leaf(path: Path) -> x509.Certificate:
    """Return the first certificate of a PEM file: the one that is served."""
    try:
        return x509.load_pem_x509_certificates(_bytes(path))[0]
    except ValueError as error:
        raise TlsError(f"{path}: no certificate in PEM form in it") from error


def _check_key(cert: Path, leaf: x509.Certificate, path: Path) -> None:
    try:
        key = load_pem_private_key(_bytes(path), password=None)
    except TypeError as error:
        raise TlsError(f"{path}: the key is encrypted; give one without a password") from error
    except ValueError as error:
        raise TlsError(f"{path}: no private key in PEM form in it") from error
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*spki) != leaf.public_key().public_bytes(*spki):
        raise TlsError(f"{path}: this is not the key of the certificate in {cert}")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: cannot be read: {error.strerror}") from error


def _server_context(client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        _bytes(client_ca)
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise TlsError(f"{client_ca}: no certificate in PEM form in it") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_from_memory(
    context: ssl.SSLContext, leaf: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    """Give a context a pair made here; it only takes files, so there is one for a moment."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor, path = tempfile.mkstemp()  # readable by this user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem + leaf.public_bytes(Encoding.PEM))
        context.load_cert_chain(path)
    finally:
        Path(path).unlink()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _CLOCK_SKEW)
        .not_valid_after(now.astimezone(UTC) + _VALID_FOR)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
