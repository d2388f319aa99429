"""What became of a write of a pod that failed, and so what to do about it."""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import Final

from engine.quota import is_exceeded
from webhook.cluster.client.connection import NO_CONTACT, ApiError

_DENIALS: Final = ("denied the request", "denied request")
_BUDGET: Final = "disruption budget"
_MANY_BUDGETS: Final = "more than one PodDisruptionBudget"
_WEBHOOK_FAILED: Final = "failed calling webhook"
_TRY_AGAIN: Final = frozenset(
    {
        NO_CONTACT,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


class WriteFailure(Enum):
    """The ways in which a write fails.

    Attributes:
        REFUSED: somebody's admission, or a right that we lack, stands against it, or the API server
            takes too long or fails for this pod alone. It is tried again after a back-off, see
            `Refusals`.
        OVER_QUOTA: the pod exceeds its quota, for somebody else was first. It waits until that has
            room.
        GONE: the pod was deleted, maybe replaced by another one of its name. There is nothing to
            do: the watch shows it.
        CHANGED: the pod is no longer what we know: its gate is gone, it is bound, or its affinity
            is another. It is decided again, as the watch shows it.
        BLOCKED: a PodDisruptionBudget stands against an eviction, now or for as long as there are
            two of them.
        UNREACHABLE: there was no answer, or the API server is too busy. Maybe it was written. It
            is tried again, after `PodWriter.pause_seconds`.
        NOT_LEADING: this replica no longer leads. Nothing was sent, and nothing may be.
    """

    REFUSED = "refused"
    OVER_QUOTA = "over-quota"
    GONE = "gone"
    CHANGED = "changed"
    BLOCKED = "blocked"
    UNREACHABLE = "unreachable"
    NOT_LEADING = "not-leading"


class WriteError(ApiError):
    """A write of a held pod failed.

    Attributes:
        failure: what became of it.
    """

    def __init__(self, failure: WriteFailure, error: ApiError) -> None:
        super().__init__(error.status, error.reason, error.message, error.retry_after_seconds)
        self.failure = failure


class UnclearError(ApiError):
    """A write of a held pod failed, and only the pod itself can tell why.

    A 409 or 422 is of somebody's admission, of another pod of the same name (the uid differs), of a
    `test` that failed, or of an object that would be too large; so may a 5xx be.
    """

    @property
    def failure_where_it_applies(self) -> WriteFailure:
        """What became of a write that would apply to the pod as it is.

        Of a 422 or a 5xx the pod itself is left; a 409 comes of many writes at a time.
        """
        is_conflict = self.status == HTTPStatus.CONFLICT
        return WriteFailure.CHANGED if is_conflict else WriteFailure.REFUSED


def write_error_of(error: ApiError, *, is_own: bool) -> WriteError | UnclearError:
    """Return the error of a write with what became of it.

    Args:
        error: of the API server.
        is_own: whether a 5xx may be of this object alone; otherwise the API server is out of reach.
    """
    failure = _failure_of(error)
    if is_own and error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        failure = failure if failure is WriteFailure.REFUSED else None
    if failure is None:
        return UnclearError(error.status, error.reason, error.message, error.retry_after_seconds)
    return WriteError(failure, error)


def _failure_of(error: ApiError) -> WriteFailure | None:
    status, message = error.status, error.message
    if status == HTTPStatus.NOT_FOUND:
        return WriteFailure.GONE
    if status == HTTPStatus.FORBIDDEN and is_exceeded(message):
        return WriteFailure.OVER_QUOTA
    if _WEBHOOK_FAILED in message or any(denial in message for denial in _DENIALS):
        return WriteFailure.REFUSED
    if _MANY_BUDGETS in message or (status == HTTPStatus.TOO_MANY_REQUESTS and _BUDGET in message):
        return WriteFailure.BLOCKED
    if status in _TRY_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return WriteFailure.UNREACHABLE
    if status in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
        return None
    return WriteFailure.REFUSED
