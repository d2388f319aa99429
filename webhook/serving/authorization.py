"""Readers of debug pages: the API server says who they are, and what they may read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from aiohttp import web

from webhook.cluster.client.access_reviews import AccessReviews, PageAccess
from webhook.cluster.client.connection import ApiError
from webhook.fairness import Shares

Authorize: TypeAlias = Callable[[web.Request], Awaitable[str]]
"""Returns who sent a request that may be answered, else raises the HTTP error to respond with."""

_SCHEME = "Bearer "
_SECONDS: Final = 5.0
_MOST_AT_ONCE: Final = 4  # from one address alone; each costs the API server two requests

_log = logging.getLogger(__name__)


class TokenAuthorizer:
    """Authenticates by TokenReview and authorizes by SubjectAccessReview, as kube components do.

    The right is to `get` the path of the page, a `nonResourceURL`. Nothing is cached: these pages
    are for people, and a right that is withdrawn ends at once.
    """

    def __init__(self, reviews: AccessReviews) -> None:
        self._reviews = reviews
        self._in_progress = Shares(2 * _MOST_AT_ONCE)

    async def authorize(self, request: web.Request) -> str:
        """Return the name of the caller if they may read the page."""
        header = request.headers.get("Authorization", "")
        token = header.removeprefix(_SCHEME).strip()
        if not header.startswith(_SCHEME) or not token:
            raise _unauthorized("a bearer token is needed: `kubectl create token` makes one")
        address = request.remote or ""  # anyone can make up tokens
        if not self._in_progress.has_room(address, 1):
            raise web.HTTPTooManyRequests(text="too many callers at a time\n")
        self._in_progress.take(address, 1)
        try:
            async with asyncio.timeout(_SECONDS):
                user = await self._reviews.user(token)
                page = PageAccess(request.path)
                allowed = user is not None and await self._reviews.may(user, page)
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("a caller of %s cannot be authorized: %s", request.path, error)
            text = "the API server does not say who you are and what you may read\n"
            raise web.HTTPServiceUnavailable(text=text) from error
        finally:
            self._in_progress.take(address, -1)
        if user is None:
            raise _unauthorized("the bearer token is not valid")
        if not allowed:
            raise web.HTTPForbidden(text=f"`{user.username}` may not {page}\n")
        return user.username


def _unauthorized(text: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=f"{text}\n", headers={"WWW-Authenticate": "Bearer"})


async def anybody(_: web.Request) -> str:
    """Authorize everybody: on a recording there is no API server, and nothing of a tenant."""
    return ""
