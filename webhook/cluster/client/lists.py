"""Lists in pages, for whoever reads a collection once and does not watch it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Any

import msgspec

from engine.model.kinds import KINDS, Kind
from webhook.cluster.client.connection import NO_CONTACT, ApiError, Connection, Query
from webhook.cluster.client.envelopes import Page, page_of
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.timing import DEFAULT_CONFIG, Backoff, ReflectorConfig

MOST_ATTEMPTS = 5  # some eight seconds of waiting

_PASSING = frozenset(
    {
        NO_CONTACT,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Statuses of failures that may pass."""


class PagedLists:
    """Reads lists page by page; a failure that may pass is followed by further attempts."""

    def __init__(
        self,
        connection: Connection,  # to the API server. If it was never reached, there is one attempt
        config: ReflectorConfig = DEFAULT_CONFIG,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._connection = connection
        self._config = config
        self._sleep = sleep
        self._had_contact = False

    async def pages(self, path: str, query: Query = ()) -> AsyncIterator[Page]:
        first: Query = [*query, ("limit", str(self._config.page_size))]
        next_page = first
        while True:
            page = await self._page(path, next_page)
            yield page
            if not page.metadata.token:
                return
            next_page = [*first, ("continue", page.metadata.token)]

    async def _page(self, path: str, query: Query) -> Page:
        config = self._config
        backoff = Backoff(config.first_retry_seconds, config.longest_retry_seconds)
        attempts = 0
        while True:
            attempts += 1
            try:
                page = page_of(await self._connection.get(path, query))
            except ApiError as error:
                was_never_there = error.status == NO_CONTACT and not self._had_contact
                if error.status not in _PASSING or was_never_there or attempts == MOST_ATTEMPTS:
                    raise
                await self._sleep(backoff.next(error.retry_after_seconds))
            except UNREADABLE as error:
                raise ApiError(NO_CONTACT, "", "the answer is not a list of objects") from error
            else:
                self._had_contact = True
                return page


async def list_kind(
    connection: Connection,
    kind: str,
    namespace: str = "",
    *,
    query: Query = (),
    decode: Callable[[msgspec.Raw], Any] | None = None,
    absent: Collection[int] = (HTTPStatus.NOT_FOUND,),
) -> list[Any] | None:
    """Return the objects of a kind of the table, of all API groups that have it.

    An object that cannot be read is left out: replicas count it among what they skip.

    Args:
        connection: to the API server.
        kind: `kind` of the objects.
        namespace: of the objects, "" for all.
        query: further parameters, such as selectors.
        decode: takes the JSON of an object and returns None to leave it out; without it the model
            of the object is returned.
        absent: statuses by which a group counts as one that the cluster does not have.

    Returns:
        None if the cluster has none of the groups.

    Raises:
        ApiError: a list was refused, or there was no answer.
    """
    found: list[Any] | None = None
    for each in KINDS:
        if each.kind != kind:
            continue
        root, _, plural = each.path.rpartition("/")
        path = f"{root}/namespaces/{namespace}/{plural}" if namespace else each.path
        try:
            listed = await _listed(connection, path, query, decode or _model_of(each))
        except ApiError as error:
            if error.status not in absent:
                raise
        else:
            found = [*(found or ()), *listed]
    return found


async def _listed(
    connection: Connection, path: str, query: Query, decode: Callable[[msgspec.Raw], Any]
) -> list[Any]:
    """Return what the objects of a list decode to, all of one version; again after a 410."""
    lists, attempts = PagedLists(connection), 0
    while True:
        attempts += 1
        found = []
        try:
            async for page in lists.pages(path, query):
                items = map(decode, page.items or ())
                found += [item for item in items if item is not None]
        except ApiError as error:
            if error.status != HTTPStatus.GONE or attempts == MOST_ATTEMPTS:
                raise
        else:
            return found


def _model_of(kind: Kind) -> Callable[[msgspec.Raw], Any]:
    decode = msgspec.json.Decoder(kind.wire).decode

    def model(raw: msgspec.Raw) -> Any:  # noqa: ANN401 - of any kind
        try:
            return kind.decode(decode(raw))
        except UNREADABLE:
            return None

    return model
