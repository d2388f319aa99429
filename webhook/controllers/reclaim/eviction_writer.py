"""Evictions by the Eviction API: budgets hold, and owners see why their pod has ended.

Each names the pod by its uid, so that it never meets another one of that name. With a dry run the
API server checks everything, budgets included, and evicts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from webhook.cluster.client.connection import Connection, Query
from webhook.controllers.release.paced_connection import PacedConnection
from webhook.controllers.release.write_error import UnclearError, WriteError, WriteFailure

_JSON: Final = "application/json"
_DRY_RUN: Final[Query] = (("dryRun", "All"),)


class EvictionResult(Enum):
    """What became of an eviction.

    Attributes:
        EVICTED: the pod is being ended, or would be, where it was a dry run.
        GONE: it does not exist any more, or another pod has its name.
        BLOCKED: a PodDisruptionBudget stands against it.
        REFUSED: somebody's admission, or a right that we lack, stands against it.
        UNREACHABLE: there was no answer, or the API server is too busy. Maybe it was evicted.
        NOT_LEADING: this replica no longer leads; nothing was sent.
    """

    EVICTED = "evicted"
    GONE = "gone"
    BLOCKED = "blocked"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    NOT_LEADING = "not-leading"


_RESULTS: Final = {
    WriteFailure.GONE: EvictionResult.GONE,
    WriteFailure.BLOCKED: EvictionResult.BLOCKED,
    WriteFailure.UNREACHABLE: EvictionResult.UNREACHABLE,
    WriteFailure.NOT_LEADING: EvictionResult.NOT_LEADING,
}


class Eviction(msgspec.Struct, frozen=True):
    """An eviction that was tried.

    Attributes:
        result: what became of it.
        message: of who stands against it, "" where nobody does.
    """

    result: EvictionResult
    message: str = ""


class EvictionWriter:
    """Evicts pods; one at a time, or some.

    Args:
        connection: to the API server.
        may_write: whether this replica leads at this very moment.
        clock: seconds that only go forward.
        count: called with the result of each eviction that is no dry run.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[EvictionResult], None] = lambda _result: None,
    ) -> None:
        self._paced = PacedConnection(connection, may_write=may_write, clock=clock)
        self._count = count

    @property
    def pause_seconds(self) -> float:
        """Seconds to wait before the next one; 0 unless the API server was out of reach."""
        return self._paced.pause_seconds

    async def evict(
        self, namespace: str, name: str, uid: str, *, is_dry_run: bool = False
    ) -> Eviction:
        """Evict a pod, with the grace period that it asks for; may be repeated.

        Args:
            namespace: of the pod.
            name: of the pod.
            uid: of the pod; no other is evicted.
            is_dry_run: whether it is only checked.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        eviction = Eviction(EvictionResult.EVICTED)
        try:
            await self._paced.request(
                "POST",
                path,
                msgspec.json.encode(body),
                _JSON,
                is_large=False,
                query=_DRY_RUN if is_dry_run else (),
            )
        except WriteError as error:
            result = _RESULTS.get(error.failure, EvictionResult.REFUSED)
            eviction = Eviction(result, error.message)
        except UnclearError as error:
            # A 409 is of the uid: another pod has its name.
            eviction = Eviction(_result_where_unclear(error), error.message)
        if not is_dry_run:
            self._count(eviction.result)
        return eviction


def _result_where_unclear(error: UnclearError) -> EvictionResult:
    is_conflict = error.failure_where_it_applies is WriteFailure.CHANGED
    return EvictionResult.GONE if is_conflict else EvictionResult.REFUSED
