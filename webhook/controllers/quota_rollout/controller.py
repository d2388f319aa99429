"""The task of the leader: quotas that nobody announced are covered, and the selection narrowed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec

from engine.quota import Reach
from webhook.cluster.client.connection import ApiError
from webhook.controllers.quota_rollout.configuration import (
    ConflictError,
    RolloutError,
    StoredSelection,
)
from webhook.controllers.quota_rollout.coverage import Configuration, QuotaCoverage
from webhook.controllers.quota_rollout.selection import (
    Narrowing,
    Selection,
    may_be_narrowed,
    narrowed,
)
from webhook.identity import new_identity
from webhook.quota import MonotonicClock

_ROUND_SECONDS = 2.0
_SURPLUS_SECONDS = 10.0  # the watch shows a quota some moments after its namespace was listed

_log = logging.getLogger(__name__)


class QuotaRolloutController:
    """Keeps the selection as narrow as the quotas allow.

    Additions do not depend on it: every replica makes them itself, before a quota is stored. So
    while nobody leads, namespaces stay longer than they must, and no other harm is done.

    Args:
        configuration: the stored selection.
        coverage: through which namespaces are added.
        known: returns the reach of the quotas that a watch has shown.
        stored: returns that of all quotas that are stored at the moment it is called.
        settle_seconds: longer than any request to an API server lasts, from its review by a webhook
            to the moment in which its object is stored.
        may_write: whether this replica leads at this very moment.
        show: called in each round with the namespaces that are asked about.
        clock: of rounds and announcements.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        configuration: Configuration,
        coverage: QuotaCoverage,
        *,
        known: Callable[[], Reach],
        stored: Callable[[], Awaitable[Reach]],
        settle_seconds: float,
        may_write: Callable[[], bool],
        show: Callable[[Reach], None],
        clock: MonotonicClock | None = None,
    ) -> None:
        self._configuration = configuration
        self._coverage = coverage
        self._known = known
        self._list_stored = stored
        self._settle_seconds = settle_seconds
        self._may_write = may_write
        self._show = show
        self._clock = clock or MonotonicClock()
        self._announced: tuple[str, float] | None = None
        self._surplus_since: float | None = None

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._announced = self._surplus_since = None
        try:
            while True:
                try:
                    await self.round()
                except ConflictError:
                    pass  # somebody was faster; what he wrote is read in the next round
                except (ApiError, RolloutError, msgspec.DecodeError) as error:
                    _log.warning("namespaces of quotas not kept: %s", error)
                await self._clock.sleep(_ROUND_SECONDS)
        finally:
            self._show(frozenset())  # the next leader shows them

    async def round(self) -> None:
        """Make the next change that is due.

        Raises:
            ConflictError: the configuration has changed since it was read.
            ApiError: something cannot be read or written.
            RolloutError: the configuration is not one for an automatic roll-out.
        """
        stored = await self._configuration.read()
        known = self._known()
        if stored is None or not self._may_write():
            return
        self._show(stored.selection.names)
        has_surplus = may_be_narrowed(stored.selection, known)
        if not has_surplus or self._surplus_since is None:
            self._surplus_since = self._clock.now()
        # 1. A quota that no replica was asked about, such as while all were away.
        if not stored.selection.covers(known):
            await self._coverage.add(known)
        # 2. Namespaces without a quota: announce that they will leave, and later let them.
        elif has_surplus:
            await self._narrow(stored, self._surplus_since)
        # 3. None of them left.
        elif stored.selection.narrowing is not None:
            await self._configuration.write(stored, Selection(names=stored.selection.names))

    async def _narrow(self, stored: StoredSelection, surplus_since: float) -> None:
        now, selection = self._clock.now(), stored.selection
        if selection.narrowing is None:
            if now - surplus_since < _SURPLUS_SECONDS:
                return
            announcement = Narrowing(id=new_identity())
            announcing = Selection(names=selection.names, narrowing=announcement)
            await self._configuration.write(stored, announcing)
            self._announced = announcement.id, self._clock.now()
        elif self._announced is None or self._announced[0] != selection.narrowing.id:
            # That of an earlier leader, of unknown age: counted from here on.
            self._announced = selection.narrowing.id, now
        elif now - self._announced[1] >= self._settle_seconds:
            # INVARIANT: whoever saw no announcement has stored his quota by now, or never will;
            # whoever saw it has noted his namespace. If one is noted from here on, the write fails.
            reach = await self._list_stored()
            if self._may_write():
                await self._configuration.write(stored, narrowed(selection, reach))
