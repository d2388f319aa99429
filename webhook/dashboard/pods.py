"""Where the dashboard reads single pods from."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeAlias

from webhook.cluster.client.connection import ApiError, Connection
from webhook.dashboard.readers import UnavailableError

ReadPod: TypeAlias = Callable[[str, str], Awaitable[bytes | None]]
"""Returns a pod as JSON by namespace and name, None where there is none.

Raises `UnavailableError` where nobody knows.
"""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""Of objects, as the API server has them: with others a path would be of something else."""

_log = logging.getLogger(__name__)


def stored_pods(connection: Connection) -> ReadPod:
    """Return what reads pods from an API server."""

    async def read(namespace: str, name: str) -> bytes | None:
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
            return None
        try:
            return await connection.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            _log.warning("pod %s/%s cannot be read: %s", namespace, name, error)
            text = f"the API server does not answer with the pod: {error}"
            raise UnavailableError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error

    return read
