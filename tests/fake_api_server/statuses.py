"""QuotaEventRecorder, as the Status objects a real API server answers with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiFault(Exception):  # noqa: N818  # an answer of the server; to the server no error
    """A request refused.

    Attributes:
        code: the HTTP status.
        headers: sent beside the body.
        body: the Status object; `details.retryAfterSeconds` repeats a `Retry-After` header.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.headers = dict(headers or {})
        details = dict(details or {})
        if "Retry-After" in self.headers:
            details["retryAfterSeconds"] = int(self.headers["Retry-After"])
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(metadata or {}),
            "status": "Failure",
            "message": message,
            "reason": reason or _REASONS.get(code, "InternalError"),
            **({"details": details} if details else {}),
            "code": code,
        }


def too_old(asked: int, oldest: int) -> ApiFault:
    """Return the refusal of a version whose history is gone."""
    return ApiFault(410, f"too old resource version: {asked} ({oldest})")


def too_new(asked: int, current: int) -> ApiFault:
    """Return the refusal of a version that does not exist yet, as after a restored backup."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiFault(
        504,
        f"Too large resource version: {asked}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
    )
