"""Who holds the Lease of the scheduler: a new holder has forgotten the nominations of gated pods.

Schedulers before 1.37 do. Nothing depends on it: where the Lease cannot be read, as in managed
clusters, or does not exist, a nomination that is older than 5 seconds is checked and confirmed
before its pod is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from webhook.cluster.client.connection import ApiError, Connection

_PATH: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_ROUND_SECONDS: Final = 2.0  # it is renewed as often
_UNREADABLE_SECONDS: Final = 60.0

_log = logging.getLogger(__name__)


class _Spec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_decode = msgspec.json.Decoder(_Lease).decode


class SchedulerLease:
    """The Lease of the stock scheduler.

    Other schedulers name theirs as they like, in any namespace: they are not followed.

    Args:
        connection: to the API server.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._holder = ""
        self._problem = ""

    async def run(self, on_new_holder: Callable[[], Awaitable[None]]) -> None:
        """Call a function whenever another process has taken the Lease; never returns."""
        while True:
            if await self.has_new_holder():
                await on_new_holder()
            await asyncio.sleep(_UNREADABLE_SECONDS if self._problem else _ROUND_SECONDS)

    async def has_new_holder(self) -> bool:
        """Read the Lease; return whether another process holds it than at the last call.

        False at the first, while nobody holds it, and where it cannot be read.
        """
        try:
            holder = _decode(await self._connection.get(_PATH)).spec.holder_identity
        except (ApiError, msgspec.DecodeError) as error:
            self._cannot_read(str(error))
            return False
        self._problem = ""
        if not holder or holder == self._holder:
            return False
        before, self._holder = self._holder, holder
        return bool(before)

    def _cannot_read(self, problem: str) -> None:
        if problem != self._problem:
            _log.info("the Lease of the scheduler cannot be read: %s", problem)
        self._problem = problem
