"""What the leader keeps of ElasticQuotas: `status.used`, figures, reservations, Events over `max`.

No verdict rests on the status or the figures; they are for people and dashboards. A write makes a
replica that reserves on the same quota at that moment try again, so writes must stay rare.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from engine.model.elastic_quota import (
    SECONDS_PER_RELEASE_ANNOTATION,
    UPSTREAM_GROUP,
    ElasticQuota,
    QuotaKey,
    release_interval,
)
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota import QuotaUsage, StatusCounts, decode_reservations, status_used
from engine.view import ClusterView
from webhook.cluster.client.connection import Connection
from webhook.cluster.object_event import ObjectEvent, quota_reference
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.reconciler import DesiredState, WriteLimits
from webhook.quota import QuotaConfig

# The audit of ElasticQuotas: finds namespaces whose pods use more than `max`.
#
# No verdict lets that happen. It does where pods were created while nobody judged them, where a
# quota is younger than its pods, or where `max` was lowered.


_ROUND_SECONDS = 5.0
_SETTLE_SECONDS = 30.0  # pods that are replaced may overlap in the view for a moment
_INTERVAL_SECONDS = 3600.0  # an Event is kept for an hour
_RETRY_SECONDS = 60.0
_MOST_EVENTS = 20  # in a round


@dataclass(eq=False)
class QuotaAudit:
    """The task of the leader that reports quotas whose pods use more than `max`."""

    connection: Connection
    _: KW_ONLY
    usages: Callable[[], Iterable[QuotaUsage]]
    identity: str
    show: Callable[[int], None] = lambda _quotas: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: MonotonicClock = field(default_factory=MonotonicClock)
    may_write: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        self._since: dict[QuotaKey, tuple[float, datetime]] = {}
        self._due_at: dict[QuotaKey, float] = {}

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._since.clear()
        self._due_at.clear()
        try:
            while True:
                await self.round()
                await self.clock.sleep(_ROUND_SECONDS)
        finally:
            self.show(0)  # the next leader counts them

    async def round(self) -> None:
        """Count the quotas above `max`, and write the Events that are due."""
        now = self.clock.now()
        above = {usage.quota.key: usage for usage in self.usages() if usage.exceeded}
        self._since = {key: self._since.get(key, (now, self.now())) for key in above}
        self._due_at = {key: at for key, at in self._due_at.items() if key in above}
        lasting = [key for key, (since, _) in self._since.items() if now - since >= _SETTLE_SECONDS]
        self.show(len(lasting))
        due = [key for key in lasting if now >= self._due_at.get(key, now)]
        for key in due[:_MOST_EVENTS] if self.may_write() else ():
            written = await self._event(above[key]).write(self.connection, self.identity)
            self._due_at[key] = now + (_INTERVAL_SECONDS if written else _RETRY_SECONDS)

    def _event(self, usage: QuotaUsage) -> ObjectEvent:
        _, since = self._since[usage.quota.key]
        return ObjectEvent(
            about=quota_reference(usage.quota),
            reason="QuotaOverMax",
            action="Audited",
            message=f"pods use more than max: {usage.clause}",
            since=since,
            until=self.now(),
        )


# Figures: annotations of ElasticQuotas by which people see what they share.


_TOLERANCE: Final = 0.2
"""The part by which the time between releases must have changed to be written for itself alone."""

_log = logging.getLogger(__name__)


class QuotaFigures(DesiredState[ElasticQuota, Mapping[str, str]]):
    """The figures of quotas that pods queue on; a quota without any keeps none."""

    limits = WriteLimits(most_writes=10, apart_seconds=10.0)

    def __init__(
        self,
        quotas: Callable[[], Iterable[ElasticQuota]],
        figures: Callable[[], Mapping[QuotaKey, Mapping[str, str]]],
    ) -> None:
        self._quotas = quotas
        self._figures = figures
        self._expected: Mapping[QuotaKey, Mapping[str, str]] = {}

    async def objects(self) -> Iterable[ElasticQuota]:
        self._expected = self._figures()
        return self._quotas()

    def current(self, found: ElasticQuota) -> Mapping[str, str]:
        return found.figures

    def desired(self, found: ElasticQuota, current: Mapping[str, str]) -> Mapping[str, str]:
        """Return the figures, those that are there if no other is news."""
        wanted = self._expected.get(found.key, {})
        return wanted if _is_news(current, wanted) else current

    def merge_patch(
        self, found: ElasticQuota, current: Mapping[str, str], desired: Mapping[str, str]
    ) -> tuple[str, Mapping[str, object]]:
        texts = {**dict.fromkeys(current), **desired}  # null removes a name
        return _path(found), {"metadata": {"uid": found.uid, "annotations": texts}}

    def title(self, found: ElasticQuota) -> str:
        return f"figures of quota `{found.namespace}/{found.name}`"


def _path(quota: ElasticQuota) -> str:
    return f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}/elasticquotas/{quota.name}"


def _is_news(shown: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether figures differ by more than a time that is only guessed."""
    if _without_interval(shown) != _without_interval(wanted):
        return True
    before, after = release_interval(shown), release_interval(wanted)
    if before is None or after is None:
        return before != after
    return abs(after - before) > _TOLERANCE * before


def _without_interval(figures: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in figures.items() if key != SECONDS_PER_RELEASE_ANNOTATION}


class QuotaStatuses(DesiredState[ElasticQuota, Amounts]):
    """`status.used` of quotas, but for Koordinator's, whose scheduler writes it itself."""

    # Pods rarely come alone.
    limits = WriteLimits(most_writes=20, apart_seconds=5.0, settle_seconds=1.0)

    def __init__(self, view: Callable[[], ClusterView], counts: StatusCounts = "Running") -> None:
        # With `Running` the controller of scheduler-plugins writes the same, should it run as well.
        self._view = view
        self._counts = counts

    async def objects(self) -> Iterable[ElasticQuota]:
        return (quota for quota in _quotas(self._view()) if quota.group == UPSTREAM_GROUP)

    def current(self, found: ElasticQuota) -> Amounts:
        return found.used

    def desired(self, found: ElasticQuota, current: Amounts) -> Amounts:  # noqa: ARG002 - as every desired state
        return status_used(found, self._view(), self._counts)

    def merge_patch(
        self, found: ElasticQuota, current: Amounts, desired: Amounts
    ) -> tuple[str, Mapping[str, object]]:
        texts: dict[str, str | None] = dict.fromkeys(current)  # null removes a name
        texts |= {name: amount_text(name, amount) for name, amount in desired.items()}
        return f"{_path(found)}/status", {
            "metadata": {"uid": found.uid},
            "status": {"used": texts},
        }

    def title(self, found: ElasticQuota) -> str:
        return f"status of quota `{found.namespace}/{found.name}`"


def _quotas(view: ClusterView) -> Iterable[ElasticQuota]:
    return chain.from_iterable(view.namespaces.quotas.values())


_PRUNE_SECONDS: Final = 5.0
_STUCK_SECONDS: Final = 60.0
"""Time after which a reservation that should have ended counts as drift."""


@dataclass(eq=False)
class ReservationPruner:
    """The task of the leader that removes ended reservations, also where nobody asks for more."""

    view: Callable[[], ClusterView]
    prune: Callable[[], Awaitable[None]]
    config: QuotaConfig
    show_stuck: Callable[[int], None]

    def __post_init__(self) -> None:
        self._reserved_since: dict[tuple[QuotaKey, str], float] = {}
        self._stuck: set[QuotaKey] = set()

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._reserved_since.clear()
        self._stuck.clear()
        try:
            while True:
                await self.round()
                await self.config.clock.sleep(_PRUNE_SECONDS)
        finally:
            self.show_stuck(0)  # the next leader counts them

    async def round(self) -> None:
        """Remove ended reservations, and count the quotas where some stay."""
        await self.prune()
        now = self.config.clock.now()
        late = now - self.config.timeouts.unseen_seconds - _STUCK_SECONDS
        known: dict[tuple[QuotaKey, str], float] = {}
        stuck: set[QuotaKey] = set()
        for quota in _quotas(self.view()):
            reservations = decode_reservations(quota.reservations, quota.uid)
            if reservations is None:
                stuck.add(quota.key)
                continue
            allowances = (
                f"{allowance.replica} {allowance.serial}"
                for allowance in reservations.allowances.values()
            )
            # A surge is listed for as long as it lasts.
            pods = (key for key, pod in reservations.by_key.items() if not pod.surge)
            for key in (*pods, *allowances):
                known[quota.key, key] = since = self._reserved_since.get((quota.key, key), now)
                if since <= late:
                    stuck.add(quota.key)
        for namespace, _, name in stuck - self._stuck:
            _log.warning("reservations of quota `%s/%s` stay, or cannot be read", namespace, name)
        self._reserved_since, self._stuck = known, stuck
        self.show_stuck(len(stuck))
