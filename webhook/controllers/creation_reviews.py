"""Whether the API server asks about pods when they are created: not while nobody has an answer.

In our own MutatingWebhookConfiguration it is a condition of the placement webhook that no pod
meets. Nothing that is installed has a condition of this name, so a tool that applies the chart
again leaves it as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from engine.model.well_known import CREATION_CONDITION, PLACEMENT_WEBHOOK
from webhook.cluster.client.connection import JSON_PATCH, ApiError
from webhook.cluster.client.watched_objects import Requests

_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0
_NEEDLESS_SECONDS: Final = 30.0  # policies that are replaced leave and come

_log = logging.getLogger(__name__)


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the configuration; unknown fields are skipped."""


class _Metadata(_Part, frozen=True):
    resource_version: str


class _Webhook(_Part, frozen=True):
    name: str
    match_conditions: list[dict[str, Any]] | None = None


class _Configuration(_Part, frozen=True):
    metadata: _Metadata
    webhooks: list[_Webhook] | None = None


_decode = msgspec.json.Decoder(_Configuration).decode


class CreationReviewController:
    """The duty of the leader to have pods reviewed at their creation as long as that is needed.

    It has them reviewed as soon as something may be said, and no longer once nothing could be for
    half a minute. Between both, pods pass without advice, as they do while no replica answers.

    Args:
        connection: to the API server; reading the configuration should cost nothing.
        name: of our MutatingWebhookConfiguration.
        is_needed: whether something may be said of a new pod, None while that is unknown.
        may_write: whether this process leads at this very moment.
        now: seconds that only go forward.
    """

    def __init__(
        self,
        connection: Requests,
        name: str,
        *,
        is_needed: Callable[[], bool | None],
        may_write: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._connection = connection
        api = "/apis/admissionregistration.k8s.io/v1"
        self._path = f"{api}/mutatingwebhookconfigurations/{name}"
        self._is_needed = is_needed
        self._may_write = may_write
        self._now = now
        self._needless_since: float | None = None

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._needless_since = None
        last_error = ""
        while True:
            try:
                await self.round()
            except (ApiError, msgspec.DecodeError) as error:
                if str(error) != last_error:
                    _log.warning("reviews of new pods are left as they are: %s", error)
                last_error = str(error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                last_error = ""
                await asyncio.sleep(_LOOK_SECONDS)

    async def round(self) -> None:
        """Make the change that is due."""
        stored, is_needed = await self._read(), self._is_needed()
        index = -1 if stored is None else _index(stored)
        if stored is None or index < 0 or is_needed is None:
            return
        conditions = (stored.webhooks or [])[index].match_conditions or []
        names = [each["name"] for each in conditions]
        path = f"/webhooks/{index}/matchConditions"
        if is_needed:
            self._needless_since = None
            if CREATION_CONDITION in names:
                place = names.index(CREATION_CONDITION)
                removal = {"op": "remove", "path": f"{path}/{place}"}
                await self._write(stored, removal, "new pods are reviewed")
        elif CREATION_CONDITION in names:
            self._needless_since = None
        elif self._is_long_needless():
            ours = {"name": CREATION_CONDITION, "expression": "false"}
            addition = {"op": "add", "path": path, "value": [*conditions, ours]}
            await self._write(stored, addition, "new pods are left alone: nothing is said of them")

    def _is_long_needless(self) -> bool:
        """Note that nothing is said, and somebody is asked; return whether it was so long enough.

        Who asks again and again, against us, is not answered as fast.
        """
        now = self._now()
        if self._needless_since is None:
            self._needless_since = now
        return now - self._needless_since >= _NEEDLESS_SECONDS

    async def _read(self) -> _Configuration | None:
        try:
            return _decode(await self._connection.get(self._path))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def _write(self, over: _Configuration, operation: dict[str, Any], says: str) -> None:
        """Change the configuration unless somebody else has; what he wrote is read then."""
        if not self._may_write():
            return
        version = over.metadata.resource_version
        unchanged = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        try:
            await self._connection.write(
                "PATCH",
                self._path,
                msgspec.json.encode([unchanged, operation]),
                content_type=JSON_PATCH,
            )
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        else:
            _log.info(says)


def _index(configuration: _Configuration) -> int:
    """Return the place of the webhook, -1 if there is none."""
    names = [webhook.name for webhook in configuration.webhooks or ()]
    return names.index(PLACEMENT_WEBHOOK) if PLACEMENT_WEBHOOK in names else -1
