"""Requests to the API server, in raw bytes: status always checked, time always bounded.

`kubernetes.aio` does configuration, authentication, TLS and transport. Its models are for what is
written now and then; what is read in bulk never becomes one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import getproxies_environment

import aiohttp
import msgspec

from engine.errors import Diagnostic, InvalidFileError, StowplanError
from webhook.cluster.client.credentials import SERVICE_ACCOUNT, Credentials, credentials
from webhook.cluster.client.envelopes import Status, status_of
from webhook.cluster.client.kubernetes_aio import ApiClient, RESTClientObject
from webhook.cluster.decode_errors import UNREADABLE

Query = Sequence[tuple[str, str]]
"""Parameters of a request."""

NO_CONTACT = 0
"""The status of an `ApiError` where there was no answer."""

_CONNECT_SECONDS = 10.0
_READ_SECONDS = 30.0
_REQUEST_SECONDS = 60.0
_LONGEST_MESSAGE = 500
_UNAUTHORIZED = 401
_ERRORS_FROM = 400
_FAILURES = (aiohttp.ClientError, TimeoutError, OSError)


class ApiError(StowplanError):
    """The API server refused, or could not be asked.

    Attributes:
        status: of HTTP, or the code in an ERROR event; 0 where there was no answer.
        reason: the word for programs, as `Expired`; may be empty.
        message: what people are told.
        retry_after_seconds: how long the server asks us to wait, if it does.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class Connection:
    """Talks to one API server.

    Attributes:
        client: the same connection for typed calls, of which there should be few.
    """

    def __init__(self, client: ApiClient, identity: Credentials, accept_encoding: str) -> None:
        self.client = client
        self._identity = identity
        self._renewing = asyncio.Lock()
        self._renewals = 0
        self._headers = {"Accept": "application/json", "Accept-Encoding": accept_encoding}

    async def get(self, path: str, query: Query = ()) -> bytes:
        """Return what the API server answers to a GET.

        Args:
            path: begins with `/`.
            query: parameters, not yet encoded.

        Raises:
            ApiError: there is no such answer.
        """
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
        """Create, replace, patch or delete something; return what the API server answers.

        Args:
            method: of HTTP.
            path: begins with `/`.
            body: JSON, empty for none.
            content_type: of a patch, which kind of patch.
            query: parameters, not yet encoded.

        Raises:
            ApiError: it was refused, as with 409 after another writer, or nobody answered.
        """
        within = aiohttp.ClientTimeout(
            total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS
        )
        with _failures_told():
            response = await self._answer(method, path, query, within, body, content_type)
            async with response:
                return await response.read()

    @asynccontextmanager
    async def watch(
        self, path: str, query: Query, *, read_timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch: gives its lines as they come, until the API server ends it.

        Args:
            path: begins with `/`.
            query: parameters, not yet encoded; `watch` is among them.
            read_timeout_seconds: a silence longer than that ends it with an error.

        Raises:
            ApiError: it was refused; or, while it is read, it was cut.
        """
        within = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=read_timeout_seconds
        )
        with _failures_told():
            response = await self._answer("GET", path, query, within)
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
        within: aiohttp.ClientTimeout,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> aiohttp.ClientResponse:
        """Return an answer that is not an error, its body not yet read."""
        known = self._renewals
        response = await self._send(method, path, query, within, body, content_type)
        if response.status == _UNAUTHORIZED and await self._renewed(since=known):
            response.close()
            response = await self._send(method, path, query, within, body, content_type)
        if response.status < _ERRORS_FROM:
            return response
        async with response:
            raise _error_in(await response.read(), response)

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        within: aiohttp.ClientTimeout,
        body: bytes,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        client: Any = self.client  # it has no types
        headers = {**client.default_headers, **self._headers, "Content-Type": content_type}
        await client.update_params_for_auth(headers, [], ["BearerToken"], path, method, None)
        response = await client.rest_client.request(
            method,
            f"{client.configuration.host}{path}{'?' if query else ''}{urlencode(query)}",
            headers=headers,
            body=msgspec.json.decode(body) if body else None,  # the client encodes it again
            _request_timeout=within,
        )
        answer: aiohttp.ClientResponse = response.response
        return answer

    async def _renewed(self, *, since: int) -> bool:
        """Return whether we now have credentials newer than some; many may ask at once."""
        async with self._renewing:
            if self._renewals == since and await self._identity.renew(self.client.configuration):
                self._renewals += 1
                if self.client.configuration.cert_file:
                    # A certificate belongs to a connection, so all that are open must end.
                    old: Any = self.client.rest_client
                    self.client.rest_client = RESTClientObject(self.client.configuration)
                    await old.close()
            return self._renewals != since


@asynccontextmanager
async def connected(
    kubeconfig: Path | None,
    context: str | None,
    *,
    accept_encoding: str = "identity",
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> AsyncIterator[Connection]:
    """Connect to the API server of a kubeconfig, or to that of the cluster that we run in.

    Nothing is sent yet: whether it is there shows with the first request.

    Args:
        kubeconfig: None for the service account of the pod that we run in if there is one, else
            for `$KUBECONFIG` or the default place.
        context: of the kubeconfig, None for its current one.
        accept_encoding: `gzip` saves network for some 8 us of CPU per pod.
        environ: says whether we run in a pod.
        service_account: the folder with its token.

    Raises:
        InvalidFileError: the configuration cannot be used.
    """
    identity = credentials(kubeconfig, context, environ, service_account)
    configuration = await identity.configuration()
    # By default each request looks in threads for proxies and for passwords in a .netrc.
    uses_proxy = bool(getproxies_environment().keys() - {"no"})
    configuration.client_session_kwargs = {"trust_env": uses_proxy}
    try:
        client: Any = ApiClient(configuration)
    except OSError as error:  # TLS errors are among them
        problem = f"its certificates cannot be used: {error}"
        raise InvalidFileError(
            [Diagnostic(file=str(kubeconfig or configuration.host), message=problem)]
        ) from error
    client.user_agent = "stowplan"
    try:
        yield Connection(client, identity, accept_encoding)
    finally:
        await client.close()


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Yield whole lines, however long; what is left when the stream ends is none."""
    rest = b""
    with _failures_told():
        async for chunk in content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line


def _error_in(body: bytes, response: aiohttp.ClientResponse) -> ApiError:
    """Return what an answer says is wrong; a proxy on the way may say it in HTML."""
    try:
        said = status_of(body)
    except UNREADABLE:
        said = Status(message=body[:_LONGEST_MESSAGE].decode("utf-8", "replace").strip())
    asked = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        said.reason,
        said.message or f"HTTP status {response.status}",
        float(asked) if asked.isdecimal() else said.retry_after_seconds,
    )


@contextmanager
def _failures_told() -> Iterator[None]:
    """Turn what goes wrong on the way into an `ApiError` of status 0."""
    try:
        yield
    except _FAILURES as error:
        message = str(error) or "no answer in time"
        raise ApiError(NO_CONTACT, "", message) from error
