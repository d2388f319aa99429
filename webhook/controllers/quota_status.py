"""What the holder of the Lease does for quotas: keeps `status.used` true and reservations few.

Nothing decides by `status.used`; it is for people and dashboards. So it may be late: a status
that is written makes whoever reserves at that moment try again, which must stay rare.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import msgspec

from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota
from engine.model.quantity import amount_text
from engine.model.resources import Amounts
from engine.quota import StatusCounts, decode_reservations, status_used
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError, Connection
from webhook.quota.observed_cluster import QuotaTiming

_Identity: TypeAlias = tuple[str, str, str]

_MERGE_PATCH = "application/merge-patch+json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """What is kept in order, and how often.

    Attributes:
        counts: which pods `status.used` adds up. With `Running` the controller of scheduler-plugins
            writes the same, should it run as well.
        groups: the API groups whose status is written. Koordinator's scheduler writes that of its
            own quotas.
        round_seconds: the pause between two looks at the cluster.
        tidy_seconds: the least time between two looks at reservations.
        settle_seconds: how long a status has to be wrong before it is written: pods rarely come
            alone.
        apart_seconds: the least time between two writes of one status.
        most_writes: of all quotas in a round.
        drift_seconds: how long something may be wrong before it is called drift.
    """

    counts: StatusCounts = "Running"
    groups: Collection[str] = (UPSTREAM_GROUP,)
    round_seconds: float = 1.0
    tidy_seconds: float = 5.0
    settle_seconds: float = 1.0
    apart_seconds: float = 5.0
    most_writes: int = 20
    drift_seconds: float = 60.0


@dataclass(slots=True)
class _Care:
    """What the controller remembers of a quota; moments by its clock."""

    wrong_since: float | None = None
    asked_at: float = float("-inf")
    written: tuple[int, Amounts] | None = None  # of which version was written what
    complained: bool = False


class QuotaController:
    """The duty; begun anew whenever this replica starts to lead.

    Args:
        connection: to the API server.
        view: the cluster as it is.
        tidy: takes reservations that are over off all quotas.
        timing: what time is to the ledger, and how long reservations are kept.
        may_write: whether this replica leads at this very moment.
        show_drift: told, every now and then, of how many quotas something has been wrong for long:
            their `status` or their `reservations`.
        rules: what is kept in order, and how often.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        view: Callable[[], ClusterView],
        tidy: Callable[[], Awaitable[None]],
        timing: QuotaTiming | None = None,
        may_write: Callable[[], bool] = lambda: True,
        show_drift: Callable[[str, int], None] = lambda _what, _quotas: None,
        rules: ControllerRules | None = None,
    ) -> None:
        self._connection = connection
        self._view = view
        self._tidy = tidy
        self._timing = timing or QuotaTiming()
        self._clock = self._timing.clock
        self._may_write = may_write
        self._show_drift = show_drift
        self._rules = rules or ControllerRules()
        self._care: dict[_Identity, _Care] = {}
        self._reserved_since: dict[tuple[_Identity, str], float] = {}
        self._stuck: set[_Identity] = set()
        self._tidied_at = float("-inf")

    async def run(self) -> None:
        """Keep quotas in order until cancelled."""
        self._care.clear()
        self._reserved_since.clear()
        self._stuck.clear()
        while True:
            await self.round()
            await self._timing.sleep(self._rules.round_seconds)

    async def round(self) -> None:
        """Look once at all quotas, and write what is wrong and due."""
        # 1. Reservations that are over go, also where nobody asks for any more.
        if self._clock() - self._tidied_at >= self._rules.tidy_seconds:
            self._tidied_at = self._clock()
            await self._tidy()
            self._show_drift("reservations", self._with_stuck_reservations(self._clock()))

        # 2. What the status of each quota should say is written where it has not for a while.
        now = self._clock()
        wrong = [
            (quota, used) for quota, used in self._expected() if self._is_wrong(quota, used, now)
        ]
        for quota, used in islice(self._due(wrong, now), self._rules.most_writes):
            await self._write(quota, used)
        self._show_drift("status", sum(self._has_drifted(quota, now) for quota, _ in wrong))

    def _expected(self) -> list[tuple[ElasticQuota, Amounts]]:
        """Return what each status should say; forget the quotas that are gone."""
        view = self._view()
        expected = [
            (quota, status_used(quota, view, self._rules.counts))
            for some in view.namespaces.quotas.values()
            for quota in some
            if quota.group in self._rules.groups
        ]
        for one in self._care.keys() - {_identity(quota) for quota, _ in expected}:
            del self._care[one]
        return expected

    def _is_wrong(self, quota: ElasticQuota, used: Amounts, now: float) -> bool:
        """Whether a status says something else; what we wrote last may not be seen yet."""
        care = self._care.setdefault(_identity(quota), _Care())
        said = quota.used
        if care.written is not None and care.written[0] > quota.version:
            said = care.written[1]
        if said != used:
            if care.wrong_since is None:
                care.wrong_since = now
            return True
        if care.complained:
            _log.info("status of quota `%s/%s` is right again", quota.namespace, quota.name)
        care.wrong_since, care.complained = None, False
        return False

    def _due(
        self, wrong: list[tuple[ElasticQuota, Amounts]], now: float
    ) -> Iterator[tuple[ElasticQuota, Amounts]]:
        """Yield what should be written now, what has been wrong for longest first."""
        rules = self._rules
        for quota, used in sorted(wrong, key=lambda one: self._wrong_since(one[0])):
            settled = now - self._wrong_since(quota) >= rules.settle_seconds
            if settled and now - self._care[_identity(quota)].asked_at >= rules.apart_seconds:
                yield quota, used

    def _wrong_since(self, quota: ElasticQuota) -> float:
        return self._care[_identity(quota)].wrong_since or 0.0

    async def _write(self, quota: ElasticQuota, used: Amounts) -> None:
        """Write a status; what fails is tried again when it is due."""
        if not self._may_write():
            return
        care = self._care[_identity(quota)]
        care.asked_at = self._clock()
        texts: dict[str, str | None] = dict.fromkeys(quota.used)  # null takes a name off
        texts |= {name: amount_text(name, amount) for name, amount in used.items()}
        path = (
            f"/apis/{quota.group}/v1alpha1/namespaces/{quota.namespace}"
            f"/elasticquotas/{quota.name}/status"
        )
        try:
            async with asyncio.timeout(self._timing.call_seconds):
                answer = await self._connection.write(
                    "PATCH",
                    path,
                    msgspec.json.encode({"status": {"used": texts}}),
                    content_type=_MERGE_PATCH,
                )
            version = _version(answer)
        except (ApiError, TimeoutError, msgspec.DecodeError) as error:
            why = str(error) or "no answer in time"
            _log.debug("status of quota `%s/%s`: %s", quota.namespace, quota.name, why)
            return
        care.written = version, used

    def _has_drifted(self, quota: ElasticQuota, now: float) -> bool:
        """Whether a status has been wrong for so long that it is no delay; logged once."""
        if now - self._wrong_since(quota) < self._rules.drift_seconds:
            return False
        care = self._care[_identity(quota)]
        if not care.complained:
            care.complained = True
            _log.warning("status of quota `%s/%s` stays wrong", quota.namespace, quota.name)
        return True

    def _with_stuck_reservations(self, now: float) -> int:
        """Return how many quotas have reservations that should be over, or that nobody can read."""
        late = now - self._timing.timeouts.unseen_seconds - self._rules.drift_seconds
        known: dict[tuple[_Identity, str], float] = {}
        stuck: set[_Identity] = set()
        for quota in (quota for some in self._view().namespaces.quotas.values() for quota in some):
            one = _identity(quota)
            reservations = decode_reservations(quota.reservations, quota.uid)
            if reservations is None:
                stuck.add(one)
                continue
            of_replicas = (
                f"{one.replica} {one.serial}" for one in reservations.allowances.values()
            )
            for key in (*reservations.by_key, *of_replicas):
                known[one, key] = since = self._reserved_since.get((one, key), now)
                if since <= late:
                    stuck.add(one)
        for namespace, _, name in stuck - self._stuck:
            _log.warning(
                "reservations of quota `%s/%s` are not what they should be", namespace, name
            )
        self._reserved_since, self._stuck = known, stuck
        return len(stuck)


def _identity(quota: ElasticQuota) -> _Identity:
    return quota.namespace, quota.group, quota.name


class _Metadata(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Stored(msgspec.Struct):
    metadata: _Metadata


def _version(answer: bytes) -> int:
    """Return the version that a write made, 0 if it is no number."""
    digits = msgspec.json.decode(answer, type=_Stored).metadata.resource_version
    return int(digits) if digits.isdecimal() else 0
