"""The Secret with our certificates: written by compare-and-swap, read by every replica."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec
from cryptography import x509

from webhook.certificates.authority import KeyPair, TlsError, is_signed_by, is_valid
from webhook.certificates.bundles import CaBundles
from webhook.cluster.client.connection import MERGE_PATCH, ApiError, Requests, find

# The Secret with our certificates, written only over the version that was read.
#
# It holds `tls.crt` and `tls.key` (the serving pair), `ca.crt` (the authorities that callers trust,
# the signer first) and `ca.key` (the key of the signer). The signer's key is no more sensitive than
# `tls.key` beside it: only our own webhook configurations trust this authority, so it serves only
# to impersonate this webhook. With it any replica can renew the certificate and leave the bundles
# alone.


BUNDLE = "ca.crt"
AUTHORITY_KEY = "ca.key"
CERTIFICATE = "tls.crt"
KEY = "tls.key"

_TYPE_OF_OTHERS = "kubernetes.io/tls"  # the type of those that cert-manager and people create


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class StoredSecret(msgspec.Struct, frozen=True):
    """The Secret as read; one that does not exist is empty and has no version."""

    metadata: _Metadata = _Metadata()  # its version
    type: str = ""  # its Kubernetes type
    data: dict[str, bytes] | None = None  # decoded; may hold keys, so it is never shown

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
        found = await find(self._connection, self._path)
        return StoredSecret() if found is None else _decoded(found)

    async def write(self, over: StoredSecret, changes: Mapping[str, bytes]) -> StoredSecret:
        """Change entries of the Secret, or create it; return the new version."""
        data = {name: base64.b64encode(value).decode() for name, value in changes.items()}
        if over.version:
            body = {"metadata": {"resourceVersion": over.version}, "data": data}
            request = ("PATCH", self._path, msgspec.json.encode(body))
            kind = MERGE_PATCH
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


_REFRESH_SECONDS = 10.0
_FIRST_REFRESH_SECONDS = 0.5

_log = logging.getLogger(__name__)


class SecretSource:
    """A `CertificateSource` that reads a Secret now and then, whoever writes it.

    Without the Secret, or without the API server, the pair that was read last remains.
    """

    def __init__(
        self, store: SecretStore, bundles: CaBundles, *, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._now = now
        self._pair: KeyPair | None = None
        self._trusted: tuple[tuple[x509.Certificate, ...], ...] = ()

    def pair(self) -> KeyPair:
        """Return the pair that was read last."""
        if self._pair is None:
            raise TlsError(f"{self._store.title}: no certificate in it yet")
        return self._pair

    def is_trusted(self, chain: Sequence[x509.Certificate]) -> bool | None:
        """Whether each webhook in our configurations trusts an issuer in `chain`.

        None if there is no such configuration, or none has been read yet.
        """
        if not self._trusted:
            return None
        now = self._now()
        return all(
            any(
                is_valid(authority, now) and is_signed_by(link, authority)
                for authority in bundle
                for link in chain
            )
            for bundle in self._trusted
        )

    async def refresh(self) -> bool:
        """Read Secret and bundles once; return whether the pair has changed."""
        before = self._pair
        try:
            stored = await self._store.read()
            if stored.of(CERTIFICATE):
                self._pair = self._store.pair_in(stored)
            self._trusted = await self._bundles.read()
        except (ApiError, msgspec.DecodeError) as error:
            _log.warning("certificates could not be read: %s", error)
        return self._pair != before

    async def first(self) -> None:
        """Wait until there is a pair that can be served: the leader may have to make it first."""
        await self.refresh()
        while (problem := self._problem()) is not None:
            _log.debug("waiting for a certificate: %s", problem)
            await asyncio.sleep(_FIRST_REFRESH_SECONDS)
            await self.refresh()

    async def watch(self, changed: Callable[[], Awaitable[object]]) -> None:
        """Call `changed` after each change of the pair; the bundles have been read by then."""
        async with self._bundles.change_events(_REFRESH_SECONDS) as next_change:
            while True:
                await next_change()
                if await self.refresh():
                    await changed()

    def _problem(self) -> TlsError | None:
        """Return the reason why the pair cannot be served now."""
        try:
            self.pair().leaf(self._now())
        except TlsError as error:
            return error
        return None
