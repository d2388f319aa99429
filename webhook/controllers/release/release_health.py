"""Whether held pods are released, and who holds the Lease of the scheduler."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from itertools import islice
from typing import Final

import msgspec

from engine.model.hold import REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION, refused_text
from webhook.cluster.client.connection import ApiError, Connection

_log = logging.getLogger(__name__)


_LONGEST_SECONDS: Final = 10.0
_TRY_AGAIN_SECONDS: Final = 60.0
_MANY: Final = 3
_MOST_NAMESPACES: Final = 200


class ReleaseHealth:
    """Says whether pods are released, from what became of the last writes.

    It is so while no pod waits for a write, or one was accepted in the last 10 s. Where somebody
    refused those of several namespaces, one after the other, only an accepted write counts; a
    minute later it is tried again, with the few pods that are held then. One namespace alone proves
    nothing: who created its pods may be the one who has them refused. So it counts once for each
    pod, and the Lease names the namespaces in which pods are refused: that they are overdue is
    known to be their own affair.
    """

    def __init__(
        self, annotate: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._annotate = annotate
        self._clock = clock
        self._waiting_since: float | None = None
        self._refused: set[str] = set()  # namespaces, since the last accepted write
        self._refused_at = 0.0

    def accepted(self) -> None:
        self._waiting_since = None
        self._refused.clear()

    def refused(self, namespace: str) -> None:
        """Note that the release of a pod was refused for the first time."""
        self._refused_at = self._clock()
        if len(self._refused) < _MANY:
            self._refused.add(namespace)

    def cycle_ended(self, *, waiting: bool, refused: Mapping[str, int]) -> None:
        """Note that a cycle ended; write what follows."""
        now = self._clock()
        if now - self._refused_at >= _TRY_AGAIN_SECONDS:
            self._refused.clear()
        if not waiting and len(self._refused) < _MANY:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        is_releasing = self._waiting_since is None or now - self._waiting_since < _LONGEST_SECONDS
        self._annotate(RELEASING_ANNOTATION, "true" if is_releasing else "false")
        named = dict(islice(sorted(refused.items()), _MOST_NAMESPACES))
        self._annotate(REFUSED_IN_ANNOTATION, refused_text(named))


_PATH: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
_ROUND_SECONDS: Final = 2.0  # it is renewed as often
_UNREADABLE_SECONDS: Final = 60.0


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class SchedulerLease:
    """The Lease of the stock scheduler.

    Other schedulers name theirs as they like, in any namespace: they are not followed.
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
            lease = msgspec.json.decode(await self._connection.get(_PATH), type=_Lease)
        except (ApiError, msgspec.DecodeError) as error:
            self._cannot_read(str(error))
            return False
        self._problem, holder = "", lease.spec.holder_identity
        if not holder or holder == self._holder:
            return False
        before, self._holder = self._holder, holder
        return bool(before)

    def _cannot_read(self, problem: str) -> None:
        if problem != self._problem:
            _log.info("the Lease of the scheduler cannot be read: %s", problem)
        self._problem = problem
