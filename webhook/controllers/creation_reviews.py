"""Whether the API server asks about pods when they are created: not while nobody has an answer.

In our own MutatingWebhookConfiguration it is a condition of the placement webhook that no pod
meets. Nothing that is installed has a condition of this name, so a tool that applies the chart
again leaves it as it is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from engine.model import api
from engine.model.well_known import CREATION_CONDITION, PLACEMENT_WEBHOOK
from webhook.cluster.client.connection import ApiError, Requests, change, find_as

_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 10.0
_NEEDLESS_SECONDS: Final = 30.0  # policies that are replaced leave and come

_log = logging.getLogger(__name__)


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    match_conditions: list[dict[str, Any]] | None = None


class _Configuration(msgspec.Struct, frozen=True):
    metadata: api.ObjectMeta
    webhooks: list[_Webhook] | None = None


@dataclass(eq=False)
class CreationReviewController:
    """The duty of the leader to have pods reviewed at their creation as long as that is needed.

    It has them reviewed as soon as something may be said, and no longer once nothing could be for
    half a minute. Between both, pods pass without advice, as they do while no replica answers.
    """

    connection: Requests
    name: str
    _: KW_ONLY
    # whether something may be said of a new pod, None while that is unknown
    is_needed: Callable[[], bool | None]
    may_write: Callable[[], bool]
    now: Callable[[], float]

    def __post_init__(self) -> None:
        api = "/apis/admissionregistration.k8s.io/v1"
        self._path = f"{api}/mutatingwebhookconfigurations/{self.name}"
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
        stored = await find_as(self.connection, self._path, _Configuration)
        is_needed = self.is_needed()
        if stored is None or is_needed is None:
            return
        names = [webhook.name for webhook in stored.webhooks or ()]
        if PLACEMENT_WEBHOOK not in names:
            return
        index = names.index(PLACEMENT_WEBHOOK)
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
        now = self.now()
        if self._needless_since is None:
            self._needless_since = now
        return now - self._needless_since >= _NEEDLESS_SECONDS

    async def _write(self, over: _Configuration, operation: dict[str, Any], says: str) -> None:
        """Change the configuration unless somebody else has; what he wrote is read then."""
        if not self.may_write():
            return
        version = over.metadata.resource_version
        try:
            await change(self.connection, self._path, version, [operation])
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        else:
            _log.info(says)
