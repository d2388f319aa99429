"""The serving certificate: read from one of three sources, renewed without a new listener."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from aiohttp import web
from cryptography import x509

from webhook.admission.handler import Outcome
from webhook.background import on_change
from webhook.certificates import Authority, KeyPair, TlsError, certificates_of
from webhook.metrics import Metrics

Handle: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]
"""Responds to a request."""

_MOST_LOGGED: Final = 64  # refused names; each is logged once, so that nobody can fill the log

_log = logging.getLogger(__name__)


class AllowedClients:
    """Lets only callers with certain names send reviews, as `requestheader-allowed-names` does.

    That the certificate is valid and of an accepted authority, TLS has verified before.
    """

    def __init__(self, names: frozenset[str], metrics: Metrics) -> None:
        self._names = names
        self._metrics = metrics
        self._logged: set[frozenset[str]] = set()

    def guard(self, path: str, handle: Handle) -> Handle:
        """Return a handler that refuses other callers with 403, before it reads their request."""

        async def guarded(request: web.Request) -> web.Response:
            names = frozenset(names_of(request.get_extra_info("peercert") or {}))
            if not self._names.isdisjoint(names):
                return await handle(request)
            self._metrics.reviewed(path, Outcome.FORBIDDEN, 0.0)
            shown = ", ".join(f"`{name}`" for name in sorted(names)) or "no name"
            if names not in self._logged and len(self._logged) < _MOST_LOGGED:
                self._logged.add(names)
                _log.warning("reviews refused: a client certificate for %s is not allowed", shown)
            text = f"the client certificate is for {shown}: see `--client-allowed-names`\n"
            return web.Response(status=HTTPStatus.FORBIDDEN, text=text)

        return guarded


def names_of(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield common names, DNS names and URIs of a certificate."""
    for distinguished_name in certificate.get("subject", ()):
        yield from (value for key, value in distinguished_name if key == "commonName")
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "URI"}:
            yield value


_SELF_SIGNED_FOR = timedelta(days=365)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class CertificateSource(Protocol):
    """Source of the serving pair: files, a pair made at start, or a Secret."""

    def pair(self) -> KeyPair:
        """The pair to serve now."""

    def is_trusted(self, chain: Sequence[x509.Certificate]) -> bool | None:
        """Whether the webhook configurations trust a certificate; None where that is unknown."""

    async def watch(self, changed: Callable[[], Awaitable[object]]) -> None:
        """Call `changed` when `pair` may have changed; returns at once if it never does."""


class CertificateFiles:
    """A pair in two PEM files that others renew, such as a mounted Secret."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert = cert
        self._key = key

    def pair(self) -> KeyPair:
        return KeyPair(
            cert_pem=_bytes(self._cert),
            key_pem=_bytes(self._key),
            cert_from=str(self._cert),
            key_from=str(self._key),
        )

    def is_trusted(self, chain: Sequence[x509.Certificate]) -> bool | None:  # noqa: ARG002 - of the protocol
        """Return None: the webhook configurations are managed with the files."""
        return None

    async def watch(self, changed: Callable[[], Awaitable[object]]) -> None:
        await on_change((self._cert, self._key), changed)


class SelfSigned:
    """A pair with an authority of its own, made now and held in memory."""

    def __init__(self, *, now: datetime, names: Iterable[str] = ()) -> None:
        authority = Authority.new(now=now, valid_for=_SELF_SIGNED_FOR)
        all_names = (*_LOCAL_NAMES, socket.gethostname(), *names)
        self._pair = authority.issue(
            [name for name in all_names if name], now=now, valid_for=_SELF_SIGNED_FOR
        )

    def pair(self) -> KeyPair:
        """The pair."""
        return self._pair

    def is_trusted(self, chain: Sequence[x509.Certificate]) -> bool | None:  # noqa: ARG002 - of the protocol
        """Return None: callers are configured by hand."""
        return None

    async def watch(self, changed: Callable[[], Awaitable[object]]) -> None:
        """Return at once: the pair never changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCertificate:
    context: ssl.SSLContext  # of the listener for reviews
    probe_context: ssl.SSLContext  # of a listener for probes, whose callers show no certificate
    expires_at: datetime  # the end of the certificate's validity
    ca_pem: bytes = b""  # authority that callers must trust (`caBundle`); empty if it is not known


class LiveCertificate:
    """The certificate in use; a new pair replaces it, an invalid one does not.

    A listener keeps one TLS context; each new connection is moved to the context of the pair in use
    and stays there. Each pair has a context of its own because one context holds certificates of
    several key types side by side: after a change from RSA to ECDSA it would still present the old
    one to many callers. Whether a caller must show a certificate is a property of the listener; by
    which authorities it is verified, one of the context in use.
    """

    def __init__(
        self,
        source: CertificateSource,
        *,
        client_ca: Path | None,
        now: Callable[[], datetime],
    ) -> None:
        self._source = source
        self._client_ca = client_ca
        self._now = now
        authorities = self._read_client_authorities()
        self._listener_context = self._listener(authorities)
        self._probe_context = self._listener(None)
        self._use(source.pair(), authorities)

    @property
    def bundle_matches(self) -> bool | None:
        """Whether the webhook configurations trust this certificate; None where unknown."""
        return self._source.is_trusted(self._chain)

    async def renew(self) -> None:
        """Use the current pair of the source, and `client_ca`, for all new connections."""
        try:
            pair, authorities = self._source.pair(), self._read_client_authorities()
            if (pair, authorities) == (self._pair, self._client_authorities):
                return
            self._use(pair, authorities)
        except TlsError as error:
            _log.error("certificate not renewed, the last good one stays: %s", error)
        else:
            _log.info("certificate renewed, valid until %s", self.current.expires_at)

    async def watch(self) -> None:
        """Follow the changes of the source and of `client_ca`; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._source.watch(self.renew))
            if self._client_ca is not None:
                group.create_task(on_change((self._client_ca,), self.renew))

    def _read_client_authorities(self) -> bytes | None:
        """Content of `client_ca`; None where every client is accepted."""
        if self._client_ca is None:
            return None
        authorities = _bytes(self._client_ca)
        if not certificates_of(authorities):
            raise TlsError(f"{self._client_ca}: no certificate in PEM form in it")
        return authorities

    def _listener(self, client_authorities: bytes | None) -> ssl.SSLContext:
        context = _server_context(client_authorities)
        context.sni_callback = self._switch_context
        return context

    def _use(self, pair: KeyPair, client_authorities: bytes | None) -> None:
        leaf = pair.leaf(self._now())
        context = _server_context(client_authorities)
        with _file_of(pair.key_pem + b"\n" + pair.cert_pem) as path:
            try:
                context.load_cert_chain(path)
            except ssl.SSLError as error:
                reason = error.reason or error
                raise TlsError(f"{pair.cert_from}: cannot be served: {reason}") from error
        self._pair, self._client_authorities, self._context = pair, client_authorities, context
        self._chain = certificates_of(pair.cert_pem)
        self.current = ServingCertificate(
            context=self._listener_context,
            probe_context=self._probe_context,
            expires_at=leaf.not_valid_after_utc,
            ca_pem=pair.ca_pem,
        )

    def _switch_context(
        self,
        connection: ssl.SSLObject,
        name: str | None,  # noqa: ARG002 - there is one certificate, whatever name a caller uses
        listener_context: ssl.SSLContext,  # noqa: ARG002 - of the callback
    ) -> None:
        connection.context = self._context


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: cannot be read: {error.strerror}") from error


def _server_context(client_authorities: bytes | None) -> ssl.SSLContext:
    """TLS settings of a server; without client authorities, as PEM, it accepts every client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0  # no API server resumes a session, and each ticket takes time
    if client_authorities is not None:
        context.load_verify_locations(cadata=client_authorities.decode("ascii", "replace"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def _file_of(content: bytes) -> Iterator[str]:
    """Path of a temporary file with some content: a TLS context reads nothing else.

    On Linux it never reaches a disk, and works on a read-only file system.
    """
    if sys.platform == "linux":
        descriptor = os.memfd_create("pair")
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp()  # readable by this user alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
    finally:
        if sys.platform != "linux":
            Path(path).unlink()
