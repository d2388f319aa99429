"""A certificate authority of our own, the leaves it signs, and the bundles that callers trust."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
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


class TlsError(StowplanError):
    """A certificate, key or authority that cannot be used, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key as stored, not yet checked."""

    cert_pem: bytes  # the certificate, then its chain
    key_pem: bytes = field(repr=False)  # its private key; never shown
    ca_pem: bytes = b""  # what callers must trust (`caBundle`); empty where the issuer is unknown
    cert_from: str = "certificate"  # source of the certificate, for messages
    key_from: str = "key"  # source of the key, for messages

    def leaf(self, now: datetime) -> x509.Certificate:
        """Return the certificate that is served, checked against its key and the clock.

        Raises:
            TlsError: one of the two is not PEM, they do not belong together, or the certificate
                is not valid now.
        """
        leaf = self._certificate()
        self._check_key(leaf)
        if leaf.not_valid_after_utc <= now:
            raise TlsError(f"{self.cert_from}: expired at {_shown(leaf.not_valid_after_utc)}")
        if leaf.not_valid_before_utc > now:
            raise TlsError(
                f"{self.cert_from}: not valid before {_shown(leaf.not_valid_before_utc)}"
            )
        return leaf

    def _certificate(self) -> x509.Certificate:
        try:
            return x509.load_pem_x509_certificates(self.cert_pem)[0]
        except ValueError as error:
            raise TlsError(f"{self.cert_from}: no certificate in PEM form in it") from error

    def _check_key(self, leaf: x509.Certificate) -> None:
        try:
            key = load_pem_private_key(self.key_pem, password=None)
        except TypeError as error:
            message = f"{self.key_from}: the key is encrypted; give one without a password"
            raise TlsError(message) from error
        except ValueError as error:
            raise TlsError(f"{self.key_from}: no private key in PEM form in it") from error
        spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if key.public_key().public_bytes(*spki) != leaf.public_key().public_bytes(*spki):
            raise TlsError(
                f"{self.key_from}: this is not the key of the certificate in {self.cert_from}"
            )


def _shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


CLOCK_SKEW = timedelta(minutes=5)
"""Validity before the moment of signing, for callers whose clock is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate authority that can sign."""

    certificate: x509.Certificate  # trusted by callers
    key: ec.EllipticCurvePrivateKey = field(repr=False)  # signs leaves; never shown

    @classmethod
    def new(cls, *, now: datetime, valid_for: timedelta) -> Authority:
        """Return a new authority; its name has the moment."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"stowplan authority {now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
        certificate = (
            _builder(name, name, key.public_key(), now)
            .not_valid_after(now.astimezone(UTC) + valid_for)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(certificate=certificate, key=key)

    @classmethod
    def of(cls, certificate: x509.Certificate, key_pem: bytes) -> Authority | None:
        """Return a stored authority; None if the key is not PEM or belongs to another."""
        try:
            key = load_pem_private_key(key_pem, password=None)
        except (ValueError, TypeError):
            return None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            return None
        if key.public_key() != certificate.public_key():
            return None
        return cls(certificate=certificate, key=key)

    @property
    def key_pem(self) -> bytes:
        """Its private key as PEM."""
        return _key_pem(self.key)

    def issue(self, names: Iterable[str], *, now: datetime, valid_for: timedelta) -> KeyPair:
        """Return a new serving pair for host names and addresses.

        It never outlives the authority: callers would refuse it from then on.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(now.astimezone(UTC) + valid_for, self.certificate.not_valid_after_utc)
        alternatives = [_general_name(name) for name in dict.fromkeys(names)]
        leaf = (
            _builder(_name("stowplan"), self.certificate.subject, key.public_key(), now)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return KeyPair(
            cert_pem=leaf.public_bytes(Encoding.PEM),
            key_pem=_key_pem(key),
            ca_pem=bundle_of([self.certificate]),
        )


def certificates_of(pem: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates in a bundle, in its order; none if it is not PEM."""
    try:
        return tuple(x509.load_pem_x509_certificates(pem))
    except ValueError:
        return ()


def bundle_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as one PEM text, in their order, each once."""
    unique = dict.fromkeys(certificates)
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in unique)


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def is_signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether an authority signed a certificate; both may have expired."""
    try:
        leaf.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def is_for(leaf: x509.Certificate, names: Iterable[str]) -> bool:
    """Whether a certificate is valid for all host names and addresses."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return False
    return {_general_name(name) for name in names} <= set(found)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - CLOCK_SKEW)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


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
