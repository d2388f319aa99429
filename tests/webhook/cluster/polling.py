"""A poller whose pauses are the turns of a test, so that nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import ClusterState, Domain, UsageHistory
from webhook.cluster.usage import UsageFeed, UsagePoller, UsageSource
from webhook.cluster.watch.source_status import SourceStatus

NOW = Micros(1_767_258_000 * SECOND)  # 2026-01-01T09:00:00Z
INTERVAL_SECONDS = 15.0


class _OverError(Exception):
    """The turns of a test are over."""


class Polling:
    """A poller over a source, with all that it writes to.

    Attributes:
        pauses: the seconds it waited for, one for each look.
    """

    def __init__(
        self, source: UsageSource, state: ClusterState, *, koordinator: Iterable[str] = ()
    ) -> None:
        self.by_koordinator = set(koordinator)
        self.state = state
        self.history = UsageHistory(INTERVAL_SECONDS)
        self.pauses: list[float] = []
        self._turns: list[Callable[[], object]] = []
        self._poller = UsagePoller(
            source,
            UsageFeed(state, self.history, by_koordinator=self.by_koordinator.__contains__),
            SourceStatus(name="metrics.k8s.io", domain=Domain.METRICS, required=False),
            every_seconds=INTERVAL_SECONDS,
            now=lambda: NOW,
            sleep=self._pause,
        )

    @property
    def status(self) -> SourceStatus:
        return self._poller.status

    async def look(self, *turns: Callable[[], object]) -> None:
        """Look once, and once more after each of the turns."""
        self._turns = list(turns)
        try:
            await self._poller.run()
        except _OverError:
            return

    def usages(self) -> dict[str, NodeUsage]:
        """Return the usage that a view has, by node."""
        return {usage.node_name: usage for usage in self.state.view().usages if usage is not None}

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if not self._turns:
            raise _OverError
        self._turns.pop(0)()
