"""The way in: a kubeconfig, and the TLS pair behind it."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_LOOPBACK = "127.0.0.1"
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


def write_kubeconfig(
    path: Path, *, url: str, token: str, ca_pem: bytes, token_file: Path | None
) -> None:
    """Write a kubeconfig with one context, `fake`, whose user shows a token.

    Args:
        path: the file to write; the authority is written beside it.
        url: of the server.
        token: written into the file, unless `token_file` is given.
        ca_pem: the authority to trust; empty for a server without TLS.
        token_file: a file that holds the token, which may change.
    """
    cluster = {"server": url}
    if ca_pem:
        ca_path = path.with_name("ca.crt")
        ca_path.write_bytes(ca_pem)
        cluster["certificate-authority"] = str(ca_path)
    user = {"tokenFile": str(token_file)} if token_file else {"token": token}
    context = {"cluster": "fake", "user": "fake", "namespace": "default"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "fake", "cluster": cluster}],
                "users": [{"name": "fake", "user": user}],
                "contexts": [{"name": "fake", "context": context}],
                "current-context": "fake",
            }
        )
    )


def tls_pair() -> tuple[ssl.SSLContext, bytes]:
    """Return the server side of TLS on the loopback address, and the authority (PEM) to trust."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake API server authority")])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_SIGNS_CERTIFICATES, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake API server")])
    names = [x509.IPAddress(ipaddress.ip_address(_LOOPBACK)), x509.DNSName("localhost")]
    leaf = (
        _builder(name, ca_name, key.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads its pair from a file only
        file.write(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        file.write(leaf.public_bytes(Encoding.PEM))
        file.flush()
        context.load_cert_chain(file.name)
    return context, ca.public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
