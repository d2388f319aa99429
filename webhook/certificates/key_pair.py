"""A certificate with its private key as PEM, and the check that it can be served."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from engine.errors import StowplanError


class TlsError(StowplanError):
    """A certificate, key or authority that cannot be used, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its key as stored, not yet checked.

    Attributes:
        cert_pem: the certificate, then its chain.
        key_pem: its private key; never shown.
        ca_pem: what callers must trust (`caBundle`); empty where the issuer is unknown.
        cert_from: source of the certificate, for messages.
        key_from: source of the key, for messages.
    """

    cert_pem: bytes
    key_pem: bytes = field(repr=False)
    ca_pem: bytes = b""
    cert_from: str = "certificate"
    key_from: str = "key"

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
