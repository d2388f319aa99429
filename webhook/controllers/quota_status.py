"""The controller of ElasticQuotas: keeps `status.used` correct and removes ended reservations.

No verdict rests on `status.used`; it is for people and dashboards. So it may be late: a write of
the status makes a replica that reserves at that moment try again, which must stay rare.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from engine.model import api
from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, QuotaKey
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota import StatusCounts, decode_reservations, status_used
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError, Connection
from webhook.quota import QuotaConfig

_MERGE_PATCH = "application/merge-patch+json"

_decode = msgspec.json.Decoder(api.ElasticQuota).decode
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """Scope and rates of the controller.

    Attributes:
        counts: pods that `status.used` adds up. With `Running` the controller of scheduler-plugins
            writes the same, should it run as well.
        groups: API groups whose status is written. Koordinator's scheduler writes that of its own
            quotas.
        round_seconds: pause between two rounds.
        prune_seconds: least time between two removals of reservations.
        settle_seconds: time for which a status is wrong before it is written: pods rarely come
            alone.
        apart_seconds: least time between two writes of one status.
        most_writes: of all quotas in a round.
        drift_seconds: time after which a wrong status or a reservation counts as drift.
    """

    counts: StatusCounts = "Running"
    groups: Collection[str] = (UPSTREAM_GROUP,)
    round_seconds: float = 1.0
    prune_seconds: float = 5.0
    settle_seconds: float = 1.0
    apart_seconds: float = 5.0
    most_writes: int = 20
    drift_seconds: float = 60.0


@dataclass(slots=True)
class _Record:
    """The status of a quota; moments by the clock of the controller."""

    wrong_since: float | None = None
    attempted_at: float = float("-inf")
    written: tuple[int, Amounts] | None = None  # version made by the last write, and its amounts
    drift_logged: bool = False


class QuotaController:
    """The task of the leader; restarted whenever this replica starts to lead.

    Args:
        connection: to the API server.
        view: the cluster.
        prune: removes ended reservations from all quotas.
        config: clock and timeouts of the ledger.
        may_write: whether this replica leads at this very moment.
        show_drift: called in each round with the number of quotas whose `status` or `reservations`
            drift.
        rules: scope and rates.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        prune: Callable[[], Awaitable[None]],
        config: QuotaConfig | None = None,
        may_write: Callable[[], bool] = lambda: True,
        show_drift: Callable[[str, int], None] = lambda _what, _quotas: None,
        rules: ControllerRules | None = None,
    ) -> None:
        self._connection = connection
        self._view = view
        self._prune = prune
        self._config = config or QuotaConfig()
        self._clock = self._config.clock
        self._may_write = may_write
        self._show_drift = show_drift
        self._rules = rules or ControllerRules()
        self._records: dict[QuotaKey, _Record] = {}
        self._reserved_since: dict[tuple[QuotaKey, str], float] = {}
        self._stuck: set[QuotaKey] = set()
        self._pruned_at = float("-inf")

    async def run(self) -> None:
        """Repeat rounds until cancelled."""
        self._records.clear()
        self._reserved_since.clear()
        self._stuck.clear()
        while True:
            await self.round()
            await self._clock.sleep(self._rules.round_seconds)

    async def round(self) -> None:
        """Prune reservations if it is time, and write each status that is wrong and due."""
        # 1. Remove ended reservations, also in namespaces without requests.
        if self._clock.now() - self._pruned_at >= self._rules.prune_seconds:
            self._pruned_at = self._clock.now()
            await self._prune()
            self._show_drift("reservations", self._with_stuck_reservations(self._clock.now()))

        # 2. Write the status of quotas where it has been wrong for a while.
        now = self._clock.now()
        wrong = [
            (quota, used) for quota, used in self._expected() if self._is_wrong(quota, used, now)
        ]
        for quota, used in islice(self._due(wrong, now), self._rules.most_writes):
            await self._write(quota, used)
        self._show_drift("status", sum(self._has_drifted(quota, now) for quota, _ in wrong))

    def _expected(self) -> list[tuple[ElasticQuota, Amounts]]:
        """Return each quota with its correct status; drop the records of deleted quotas."""
        view = self._view()
        expected = [
            (quota, status_used(quota, view, self._rules.counts))
            for listed in view.namespaces.quotas.values()
            for quota in listed
            if quota.group in self._rules.groups
        ]
        for key in self._records.keys() - {quota.key for quota, _ in expected}:
            del self._records[key]
        return expected

    def _is_wrong(self, quota: ElasticQuota, used: Amounts, now: float) -> bool:
        """Whether a status differs; the last write may not have been observed yet."""
        record = self._records.setdefault(quota.key, _Record())
        reported = quota.used
        if record.written is not None and record.written[0] > quota.version:
            reported = record.written[1]
        if reported != used:
            if record.wrong_since is None:
                record.wrong_since = now
            return True
        if record.drift_logged:
            _log.info("status of quota `%s/%s` is right again", quota.namespace, quota.name)
        record.wrong_since, record.drift_logged = None, False
        return False

    def _due(
        self, wrong: list[tuple[ElasticQuota, Amounts]], now: float
    ) -> Iterator[tuple[ElasticQuota, Amounts]]:
        """Yield the statuses to write now, those wrong for longest first."""
        rules = self._rules
        for quota, used in sorted(wrong, key=lambda pair: self._wrong_since(pair[0])):
            settled = now - self._wrong_since(quota) >= rules.settle_seconds
            if settled and now - self._records[quota.key].attempted_at >= rules.apart_seconds:
                yield quota, used

    def _wrong_since(self, quota: ElasticQuota) -> float:
        return self._records[quota.key].wrong_since or 0.0

    async def _write(self, quota: ElasticQuota, used: Amounts) -> None:
        """Write a status; after a failure it is tried again when it is due."""
        if not self._may_write():
            return
        record = self._records[quota.key]
        record.attempted_at = self._clock.now()
        texts: dict[str, str | None] = dict.fromkeys(quota.used)  # null removes a name
        texts |= {name: amount_text(name, amount) for name, amount in used.items()}
        path = (
            f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}"
            f"/elasticquotas/{quota.name}/status"
        )
        try:
            async with asyncio.timeout(self._config.call_seconds):
                answer = await self._connection.write(
                    "PATCH",
                    path,
                    msgspec.json.encode({"status": {"used": texts}}),
                    content_type=_MERGE_PATCH,
                )
            version = _decode(answer).metadata.version
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            reason = str(error) or "no answer in time"
            _log.debug("status of quota `%s/%s`: %s", quota.namespace, quota.name, reason)
            return
        record.written = version, used
        record.wrong_since = self._clock.now()  # if it is wrong again, then of something new

    def _has_drifted(self, quota: ElasticQuota, now: float) -> bool:
        """Whether a status has been wrong for too long; logged once."""
        if now - self._wrong_since(quota) < self._rules.drift_seconds:
            return False
        record = self._records[quota.key]
        if not record.drift_logged:
            record.drift_logged = True
            _log.warning("status of quota `%s/%s` stays wrong", quota.namespace, quota.name)
        return True

    def _with_stuck_reservations(self, now: float) -> int:
        """Return how many quotas have reservations that should have ended, or unreadable ones."""
        late = now - self._config.timeouts.unseen_seconds - self._rules.drift_seconds
        known: dict[tuple[QuotaKey, str], float] = {}
        stuck: set[QuotaKey] = set()
        for quota in (
            quota for listed in self._view().namespaces.quotas.values() for quota in listed
        ):
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
        return len(stuck)
