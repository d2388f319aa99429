"""A client for the tests: any resource, as plain JSON, by the name `kubectl` knows it by."""

from __future__ import annotations

import asyncio
import io
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import aiohttp

from tests.e2e.certificates import KeyPair
from tests.e2e.control_plane import ControlPlane
from tests.e2e.resources import DISCOVERY, Resource, resources_in
from webhook.cluster.objects import shallow

Json = dict[str, Any]
Found = TypeVar("Found")

_PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_PATIENCE_SECONDS = 180  # nothing is proven by it: longer than a busy machine takes
_POLL_SECONDS = 0.1
_MOST_OF_A_LINE = 2 * 1024 * 1024  # an event of a watch: etcd keeps objects of 1.5 MiB


class CallError(Exception):
    """The API server said no.

    Attributes:
        status: the HTTP status.
        reason: the machine-readable reason (`NotFound`, `Expired`).
        message: what it said to a human.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Cluster:
    """The objects of a cluster.

    `resource` is a plural name (`pods`), with its group where two share it
    (`elasticquotas.scheduling.x-k8s.io`). Objects are the JSON of the API. Every call raises
    `CallError` where the API server refuses it.

    Attributes:
        warnings: what the API server warned of in its last answer to a `call`.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._resources: list[Resource] = []
        self.warnings: list[str] = []

    async def create(self, obj: Json, *, dry_run: bool = False) -> Json:
        """Create an object, wherever its `apiVersion` and `kind` say it lives."""
        resource = await self._kind(obj["apiVersion"], obj["kind"])
        path = resource.path(obj["metadata"].get("namespace", "default"))
        params = {"dryRun": "All"} if dry_run else {}
        return _object(await self.call("POST", path, obj, params=params))

    async def get(
        self, resource: str, name: str, namespace: str | None = None, *, subresource: str = ""
    ) -> Json:
        """Return one object."""
        found = await self._plural(resource)
        return _object(await self.call("GET", found.path(namespace, name, subresource)))

    async def list_all(
        self, resource: str, namespace: str | None = None, **params: str | int
    ) -> list[Json]:
        """Return the objects of a kind, in one namespace or all (`labelSelector=...`)."""
        found = await self._plural(resource)
        answer = await self.call("GET", found.path(namespace), params=params)
        items: list[Json] = answer["items"]
        return items

    async def replace(self, obj: Json, *, subresource: str = "") -> Json:
        """Write a whole object."""
        resource = await self._kind(obj["apiVersion"], obj["kind"])
        metadata = obj["metadata"]
        path = resource.path(metadata.get("namespace"), metadata["name"], subresource)
        return _object(await self.call("PUT", path, obj))

    async def patch(
        self,
        resource: str,
        name: str,
        patch: object,
        namespace: str | None = None,
        *,
        how: Literal["merge", "json", "strategic", "apply"] = "merge",
        subresource: str = "",
        **params: str,
    ) -> Json:
        """Change an object; `how="apply"` needs `fieldManager`."""
        path = (await self._plural(resource)).path(namespace, name, subresource)
        return _object(
            await self.call("PATCH", path, patch, params=params, content_type=_PATCHES[how])
        )

    async def delete(
        self,
        resource: str,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete one object, and what it owns after it; `grace_seconds=0` at once."""
        path = (await self._plural(resource)).path(namespace, name)
        await self.call("DELETE", path, _deletion(grace_seconds))

    async def delete_all(
        self, resource: str, namespace: str, *, grace_seconds: int | None = None
    ) -> None:
        """Delete every object of a kind in a namespace, and what they own after them."""
        path = (await self._plural(resource)).path(namespace)
        await self.call("DELETE", path, _deletion(grace_seconds))

    @asynccontextmanager
    async def watch(
        self, resource: str, namespace: str | None = None, **params: str | int
    ) -> AsyncIterator[AsyncIterator[Json]]:
        """Yield the events of a watch, from `resourceVersion=...`, until it is cut."""
        path = (await self._plural(resource)).path(namespace)
        async with self._session.get(
            f"{self._url}{path}", params={"watch": "true", **params}, timeout=_NO_TIMEOUT
        ) as response:
            await _check(response)
            yield _events(response)

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str | int] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:  # noqa: ANN401 (JSON)
        """Return the answer to any call; a body that is a text is sent as it is."""
        text = body if isinstance(body, str) else json.dumps(body)
        data = None if body is None else io.BytesIO(text.encode())
        headers = {"Accept": accept, **({"Content-Type": content_type} if data else {})}
        async with self._session.request(
            method, f"{self._url}{path}", data=data, headers=headers, params=params
        ) as response:
            self.warnings = [_warning(text) for text in response.headers.getall("Warning", [])]
            await _check(response)
            answer = await response.read()
        try:
            return json.loads(answer)
        except RecursionError:  # a test created what nests deeply
            return json.loads(shallow(answer))

    async def text(self, path: str) -> str:
        """Return what is at a path, which is not JSON."""
        async with self._session.get(f"{self._url}{path}") as response:
            await _check(response)
            return await response.text()

    async def offers(self, resource: str) -> bool:
        """Return whether a resource can be asked for by its name now.

        Of a kind that is defined, or served by others, the paths answer before it is listed.
        """
        self._resources = []  # those that were listed some time ago
        try:
            await self._plural(resource)
        except CallError:
            return False
        return True

    async def _kind(self, api_version: str, kind: str) -> Resource:
        return await self._find(
            f"{kind} of {api_version}",
            lambda resource: (resource.api_version, resource.kind) == (api_version, kind),
        )

    async def _plural(self, name: str) -> Resource:
        plural, _, group = name.partition(".")
        return await self._find(
            name,
            lambda resource: (
                resource.plural == plural
                and (not group or resource.api_version.startswith(f"{group}/"))
            ),
        )

    async def _find(self, what: str, is_it: Callable[[Resource], bool]) -> Resource:
        """Return the first that fits, of those known, else of those the API server has now."""
        for resource in self._resources:
            if is_it(resource):
                return resource
        self._resources = [*await self._discover("/api"), *await self._discover("/apis")]
        for resource in self._resources:
            if is_it(resource):
                return resource
        raise CallError(404, "NotFound", f"the cluster has no {what}")

    async def _discover(self, path: str) -> list[Resource]:
        async with self._session.get(
            f"{self._url}{path}", headers={"Accept": DISCOVERY}
        ) as response:
            await _check(response)
            groups = (await response.json(content_type=None))["items"]
        return resources_in(groups)


def _object(answer: Json) -> Json:
    """Give the answer of a call on one object its type."""
    return answer


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    while line := await response.content.readline():
        yield json.loads(line)


def _warning(header: str) -> str:
    """Return the text of a header such as `299 - "it has no effect"`."""
    text: str = json.loads(header.split(" ", maxsplit=2)[2])
    return text


def _deletion(grace_seconds: int | None) -> Json:
    options: Json = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
    }
    return options if grace_seconds is None else {**options, "gracePeriodSeconds": grace_seconds}


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status < 400:
        return
    text = await response.text()
    try:
        status = json.loads(text)
    except ValueError:
        status = {}
    raise CallError(response.status, status.get("reason", ""), status.get("message", text))


@asynccontextmanager
async def connected(
    control_plane: ControlPlane, client: KeyPair | None = None, *, url: str = ""
) -> AsyncIterator[Cluster]:
    """Yield the cluster, as its admin or the user of a client certificate sees it.

    Args:
        control_plane: of the cluster.
        client: the certificate; the admin's if there is none.
        url: of another of its API servers.
    """
    sockets: list[socket.socket] = []

    def remembered(address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        sockets.append(socket.socket(family, kind, protocol))
        return sockets[-1]

    connector = aiohttp.TCPConnector(
        ssl=control_plane.client_context(client), limit=0, socket_factory=remembered
    )
    try:
        async with aiohttp.ClientSession(
            connector=connector, read_bufsize=_MOST_OF_A_LINE
        ) as session:
            yield Cluster(session, url or control_plane.url)
    finally:
        # TLS says goodbye after the session is closed; the loop of a test must live that long.
        while any(one.fileno() >= 0 for one in sockets):  # noqa: ASYNC110 (a socket sets no event)
            await asyncio.sleep(_POLL_SECONDS / 10)


async def eventually(
    find: Callable[[], Awaitable[Found]], what: str, *, within: float = _PATIENCE_SECONDS
) -> Found:
    """Return what `find` finds as soon as it is true.

    A refused or broken call counts as not yet, and so does a failed assertion, which can tell more.

    Args:
        find: asks the cluster.
        what: is awaited; for the error.
        within: seconds.

    Raises:
        TimeoutError: it did not come true in time.
    """
    deadline = time.monotonic() + within
    while True:
        last: object
        try:
            last = found = await find()
        except (CallError, aiohttp.ClientError, OSError, AssertionError) as error:
            last = error
        else:
            if found:
                return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within:g} s; last: {last!r}")
        await asyncio.sleep(_POLL_SECONDS)
