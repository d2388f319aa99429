"""How soon each quota releases the pods that wait for it, as the leader sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.model.elastic_quota import QuotaKey
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros
from engine.quota.queueing import QuotaWait, QuotaWaits
from engine.report import ReleaseRates, expected_wait
from webhook.controllers.release.conditions import Place, Wait


class QuotaPace:
    """Counts releases of pods that had to wait, and tells others how long they are going to.

    A new leader knows nothing at first: it tells none before it has seen five releases of a quota.

    Args:
        now: the time of day.
    """

    def __init__(self, now: Callable[[], Micros]) -> None:
        self._now = now
        self._rates = ReleaseRates()
        self._waits = QuotaWaits()

    def cycle_ended(self, waits: QuotaWaits, decided: Iterable[str]) -> None:
        """Count the pods that waited until this cycle, and are about to be released now.

        Args:
            waits: those that wait; the mapping of another cycle is another.
            decided: the keys of pods that are about to be released, or are released and still held.
        """
        now = self._now()
        for key in decided:
            if key in self._waits and key not in waits:
                self._rates.released(self._waits[key].quota, now)
        quotas = waits.quotas
        for quota in quotas:
            self._rates.waits(quota, now)
        self._rates.retain(now, quotas)
        self._waits = waits

    def first_waits(self) -> dict[QuotaKey, QuotaWait]:
        """Return why the first pod of each queue waits."""
        return {
            quota: wait
            for quota, wait in self._waits.firsts().items()
            if wait.reason is QueuedReason.WAITING_FOR_QUOTA
        }

    def interval(self, quota: QuotaKey) -> Micros | None:
        """Return the mean time between two releases of a quota, None if nobody knows it."""
        return self._rates.interval(quota, self._now())

    def condition(self, key: str) -> Wait | None:
        """Return what a pod by `namespace/name` says of its wait, None if it waits for no quota."""
        wait = self._waits.get(key)
        if wait is None:
            return None
        namespace, _, name = wait.quota
        interval = None
        if wait.reason is QueuedReason.WAITING_FOR_QUOTA:
            interval = self.interval(wait.quota)
        return Wait(
            wait.reason,
            wait.message,
            Place(wait.position, wait.of, f"{namespace}/{name}"),
            None if interval is None else expected_wait(wait.position, interval),
        )
