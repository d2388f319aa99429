"""The API groups of the API server, looked at by all reflectors of absent kinds together."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from webhook.cluster.client.connection import Connection

_PATH: Final = "/apis"


class _Group(msgspec.Struct, frozen=True):
    name: str


class _Groups(msgspec.Struct, frozen=True):
    groups: list[_Group] | None = None


class ApiGroups:
    """Tells whether a group is served; one request in a while, whoever asks and how often.

    Args:
        connection: to the API server.
        every_seconds: how long an answer counts.
    """

    def __init__(self, connection: Connection, every_seconds: float) -> None:
        self._connection = connection
        self._every_seconds = every_seconds
        self._names: frozenset[str] = frozenset()
        self._until = float("-inf")
        self._lock = asyncio.Lock()

    async def has(self, name: str) -> bool:
        """Return whether a group is served.

        Raises:
            ApiError: there was no answer.
            msgspec.DecodeError: it cannot be read.
        """
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._until:
                answer = msgspec.json.decode(await self._connection.get(_PATH), type=_Groups)
                self._names = frozenset(group.name for group in answer.groups or ())
                self._until = now + self._every_seconds
        return name in self._names
