"""The Secret with our certificates, written only over the version that was read.

It holds `tls.crt` and `tls.key` (the serving pair), `ca.crt` (the authorities that callers trust,
the signer first) and `ca.key` (the key of the signer). The signer's key is no more sensitive than
`tls.key` beside it: only our own webhook configurations trust this authority, so it serves only to
impersonate this webhook. With it any replica can renew the certificate and leave the bundles alone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from webhook.certificates.key_pair import KeyPair
from webhook.cluster.client.connection import ApiError
from webhook.cluster.client.watched_objects import Requests

BUNDLE = "ca.crt"
AUTHORITY_KEY = "ca.key"
CERTIFICATE = "tls.crt"
KEY = "tls.key"

_TYPE_OF_OTHERS = "kubernetes.io/tls"  # the type of those that cert-manager and people create
_NOT_FOUND = 404


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class StoredSecret(msgspec.Struct, frozen=True):
    """The Secret as read; one that does not exist is empty and has no version.

    Attributes:
        metadata: its version.
        type: its Kubernetes type.
        data: decoded; may hold keys, so it is never shown.
    """

    metadata: _Metadata = _Metadata()
    type: str = ""
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        """Return version and keys, without the data."""
        return f"StoredSecret({self.version!r}, keys={sorted(self.data or {})})"

    @property
    def version(self) -> str:
        """Its resourceVersion; empty if there is no Secret."""
        return self.metadata.resource_version

    @property
    def is_ours(self) -> bool:
        """Whether we may change it: it has our authority's key, or it is missing or empty.

        Others, such as cert-manager, store no such key and use another type.
        """
        return self.type != _TYPE_OF_OTHERS and (not self.data or AUTHORITY_KEY in self.data)

    def of(self, name: str) -> bytes:
        """Return one entry; empty if there is none."""
        return (self.data or {}).get(name, b"")


class SecretStore:
    """Reads and writes one Secret.

    Args:
        connection: to the API server.
        namespace: where the Secret is.
        name: of the Secret; it is created if it is missing.
    """

    def __init__(self, connection: Requests, *, namespace: str, name: str) -> None:
        self._connection = connection
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._path = f"{self._collection}/{name}"
        self._metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "stowplan"},
        }
        self.title = f"secret `{namespace}/{name}`"

    async def read(self) -> StoredSecret:
        """Return the Secret as it is now.

        Raises:
            ApiError: it cannot be read.
        """
        try:
            return _decoded(await self._connection.get(self._path))
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return StoredSecret()
            raise

    async def write(self, over: StoredSecret, changes: Mapping[str, bytes]) -> StoredSecret:
        """Change entries of the Secret, or create it; return the new version.

        Raises:
            ApiError: with status 409 if it has changed since `over` was read.
        """
        data = {name: base64.b64encode(value).decode() for name, value in changes.items()}
        if over.version:
            body = {"metadata": {"resourceVersion": over.version}, "data": data}
            request = ("PATCH", self._path, msgspec.json.encode(body))
            kind = "application/merge-patch+json"
        else:
            secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": data}
            secret["metadata"] = self._metadata
            request = ("POST", self._collection, msgspec.json.encode(secret))
            kind = "application/json"
        return _decoded(await self._connection.write(*request, content_type=kind))

    def pair_in(self, stored: StoredSecret) -> KeyPair:
        """Return the serving pair; it may be empty or unusable."""
        return KeyPair(
            cert_pem=stored.of(CERTIFICATE),
            key_pem=stored.of(KEY),
            cert_from=f"{CERTIFICATE} of {self.title}",
            key_from=f"{KEY} of {self.title}",
        )


def _decoded(answer: bytes) -> StoredSecret:
    return msgspec.json.decode(answer, type=StoredSecret)
