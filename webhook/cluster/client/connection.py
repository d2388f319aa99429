"""Requests to the API server, in raw bytes: status always checked, time always bounded.

`kubernetes.aio` reads configurations and credentials. Its client is not used: it hands on refusals
as if they were answers, ends a watch after five minutes, and has objects only as models.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlencode
from urllib.request import getproxies_environment

import aiohttp
import msgspec
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from engine.errors import Diagnostic, InvalidFileError, StowplanError
from webhook.cluster.client.credentials import SERVICE_ACCOUNT, Credentials, credentials
from webhook.cluster.client.envelopes import Event, Status, event_of, status_of
from webhook.cluster.objects import UNREADABLE

Query = Sequence[tuple[str, str]]
"""Parameters of a request."""

MERGE_PATCH = "application/merge-patch+json"

NO_CONTACT = 0
"""The status of an `ApiError` where there was no answer."""

_PERMITTED = "`kubectl auth can-i --list` shows what is permitted"

_T = TypeVar("_T")

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 30.0
_REQUEST_SECONDS = 60.0
_SILENCE_SECONDS = 90.0  # of a watch: there is a bookmark about once a minute
_LONGEST_MESSAGE = 500
_UNAUTHORIZED = 401
_ERRORS_FROM = 400
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)
_READ_BUFFER_BYTES = (
    2**18
)  # of a watch; all lines in twice as much are split in one step, some 0.5 ms


class ApiError(StowplanError):
    """The API server refused a request, or did not answer."""

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status  # of HTTP, or the code in an ERROR event; 0 where there was no answer
        self.reason = reason  # for programs, such as `Expired`; may be empty
        self.message = message  # for people
        # the wait that the server asks for, if it does
        self.retry_after_seconds = retry_after_seconds

    def explained(self, otherwise: str, *, forbidden: str = "", hint: str = "") -> str:
        """Return why a command could not do what it was asked for, with the hint that helps.

        Args:
            otherwise: what failed, for a failure that is not explained better.
            forbidden: the same for a right that we lack.
            hint: how to get that right.
        """
        if self.status == NO_CONTACT:
            return (
                f"no contact with the API server: {self.message}\nhint: is it the right cluster,"
                " and in reach? `--kubeconfig` and `--context` name another"
            )
        if self.status == HTTPStatus.UNAUTHORIZED:
            return f"the API server does not accept our credentials: {self.message}"
        if self.status == HTTPStatus.FORBIDDEN:
            return f"{forbidden or otherwise}: {self.message}\nhint: {hint or _PERMITTED}"
        return f"{otherwise}: {self.message}"


class Server(NamedTuple):
    address: str  # of IP
    port: int  # of HTTPS
    name: str  # that its certificate must be valid for

    @property
    def url(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{address}:{self.port}"


class Connection:
    """Requests to one API server."""

    def __init__(
        self, configuration: Configuration, identity: Credentials, accept_encoding: str
    ) -> None:
        # its HTTP connections; a new one where a client certificate was renewed
        self.session = _session(configuration)
        self._configuration: Any = configuration  # it has no types
        self._identity = identity
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": accept_encoding,
            "User-Agent": "stowplan",
        }

    @property
    def host(self) -> str:
        """URL of the API server, for people."""
        return str(self._configuration.host)

    async def get(self, path: str, query: Query = ()) -> bytes:
        return await self.write("GET", path, b"", query=query)

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        """Create, replace, patch or delete an object; return the body of the answer."""
        return await self._written(method, path, body, query, content_type=content_type)

    async def create_at(
        self, server: Server, path: str, body: bytes, *, query: Query = ()
    ) -> bytes:
        """Create an object by one of several API servers; return the body of the answer."""
        return await self._written("POST", path, body, query, server=server)

    async def _written(
        self,
        method: str,
        path: str,
        body: bytes,
        query: Query,
        **options: Any,  # noqa: ANN401 - of `_send`
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(
            total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        with _failures_as_api_errors():
            response = await self._answer(
                method, path, query, timeout=timeout, data=body or None, **options
            )
            async with response:
                return await response.read()

    @asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: yields its lines as they arrive, until the API server ends it."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=read_timeout_seconds
        )
        with _failures_as_api_errors():
            response = await self._answer("GET", path, query, timeout=timeout)
        try:
            async with aclosing(_lines(response.content)) as lines:
                yield lines
        finally:
            response.close()  # the rest of a stream is not worth reading to its end

    async def _answer(
        self,
        method: str,
        path: str,
        query: Query,
        **options: Any,  # noqa: ANN401 - of aiohttp
    ) -> aiohttp.ClientResponse:
        """Return an answer that is not an error, its body not yet read."""
        renewals = self._renewals
        response = await self._send(method, path, query, **options)
        if response.status == _UNAUTHORIZED and await self._renewed(since=renewals):
            response.close()
            response = await self._send(method, path, query, **options)
        if response.status < _ERRORS_FROM:
            return response
        async with response:
            raise _error_in(await response.read(), response)

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        content_type: str = "application/json",
        server: Server | None = None,
        **options: Any,  # noqa: ANN401 - of aiohttp
    ) -> aiohttp.ClientResponse:
        configuration = self._configuration
        headers = {**self._headers, "Content-Type": content_type}
        token = await configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return await self.session.request(
            method,
            f"{server.url if server else configuration.host}{path}{'?' if query else ''}"
            f"{urlencode(query)}",
            headers=headers,
            server_hostname=(server.name if server else configuration.tls_server_name) or None,
            proxy=configuration.proxy or None,
            proxy_headers=configuration.proxy_headers or None,
            **options,
        )

    async def _renewed(self, *, since: int) -> bool:
        """Return whether there are newer credentials; one of many concurrent calls renews them."""
        async with self._renewing:
            if self._renewals == since and await self._identity.renew(self._configuration):
                self._renewals += 1
                if self._configuration.cert_file:
                    # A certificate belongs to a connection, so all open ones must end.
                    old, self.session = self.session, _session(self._configuration)
                    await old.close()
            return self._renewals != since


class Requests(Protocol):
    """Requests to the API server, as `Connection` and `WatchedObjects` make them."""

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Return the body of an answer."""

    async def write(
        self,
        method: str,
        path: str,
        body: bytes,
        *,
        content_type: str = "application/json",
        query: Query = (),
    ) -> bytes:
        """Create, replace, patch or delete an object; return the body of the answer."""

    def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a watch."""


async def find(connection: Requests, path: str) -> bytes | None:
    try:
        return await connection.get(path)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise


async def find_as(connection: Requests, path: str, kind: type[_T]) -> _T | None:
    """Return an object, None where there is none; raises `DecodeError` if it is another."""
    found = await find(connection, path)
    return None if found is None else msgspec.json.decode(found, type=kind)


@asynccontextmanager
async def object_changes(connection: Requests, path: str) -> AsyncIterator[AsyncIterator[Event]]:
    """Watch one object: yields its changes, the first of which is its present state, if any."""
    collection, _, name = path.rpartition("/")
    query = (
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("fieldSelector", f"metadata.name={name}"),
    )
    watch = connection.watch(collection, query, read_timeout_seconds=_SILENCE_SECONDS)
    async with watch as lines:
        yield _changes(lines)


async def _changes(lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
    async for line in lines:
        event = event_of(line)
        if event.type == "ERROR":
            raise ApiError(NO_CONTACT, "", "the watch has ended")
        if event.type in {"ADDED", "MODIFIED", "DELETED"}:
            yield event


async def change(
    connection: Requests, path: str, version: str, operations: Sequence[Mapping[str, object]]
) -> bytes:
    """Apply a JSON patch to an object; fails with 409 if it has changed since a version."""
    # Not a `test`, which is refused with the status of any other change that is.
    unchanged = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
    body = msgspec.json.encode([unchanged, *operations])
    return await connection.write("PATCH", path, body, content_type="application/json-patch+json")


@asynccontextmanager
async def connected(
    # None for the service account of our pod if there is one, else for `$KUBECONFIG` or the default
    # place
    kubeconfig: Path | None,
    context: str | None,  # of the kubeconfig, None for its current one
    *,
    accept_encoding: str = "identity",  # `gzip` saves network for some 8 us of CPU per pod
    # environment variables, in which a pod finds its API server
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> AsyncIterator[Connection]:
    """Connect to the API server of a kubeconfig, or of the cluster that this process runs in.

    Nothing is sent before the first request.
    """
    identity = credentials(kubeconfig, context, environ, service_account)
    configuration = await identity.configuration()
    try:
        connection = Connection(configuration, identity, accept_encoding)
    except OSError as error:  # TLS errors are among them
        problem = f"its certificates cannot be used: {error}"
        raise InvalidFileError(
            [Diagnostic(file=str(kubeconfig or configuration.host), message=problem)]
        ) from error
    try:
        yield connection
    finally:
        await connection.session.close()


def _session(configuration: Any) -> aiohttp.ClientSession:  # noqa: ANN401 - it has no types
    tls = RESTClientObject(configuration).ssl_context
    # `trust_env` makes each request look in threads for proxies and for passwords in a .netrc.
    uses_proxy = bool(getproxies_environment().keys() - {"no"})
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=configuration.connection_pool_maxsize, ssl=tls),
        trust_env=uses_proxy,
        read_bufsize=_READ_BUFFER_BYTES,
    )


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Yield whole lines of any length; an unfinished one at the end is dropped."""
    rest = b""
    with _failures_as_api_errors():
        async for chunk in content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line


def _error_in(body: bytes, response: aiohttp.ClientResponse) -> ApiError:
    """Return the error of a refusal; a proxy on the way may answer in HTML."""
    try:
        status = status_of(body)
    except UNREADABLE:
        status = Status(message=body[:_LONGEST_MESSAGE].decode("utf-8", "replace").strip())
    retry_after = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        status.reason,
        status.message or f"HTTP status {response.status}",
        float(retry_after) if retry_after.isdecimal() else status.retry_after_seconds,
    )


@contextmanager
def _failures_as_api_errors() -> Iterator[None]:
    """Turn failures of the connection into an `ApiError` of status 0."""
    try:
        yield
    except _FAILURES as error:
        raise ApiError(NO_CONTACT, "", _failure_text(error)) from error


def _failure_text(error: Exception) -> str:
    """Return why there is no answer; of a refused connection without the words of our client."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        number = cause.errno or 0
        if not isinstance(cause, ssl.SSLError) and number in errno.errorcode:
            return f"{error.host}:{error.port}: {os.strerror(number).lower()}"
    return str(error) or "no answer in time"
