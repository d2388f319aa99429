"""Revocation: what quotas of a tree use beyond their runtime for long is taken back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from engine.eviction import (
    Candidate,
    OveruseSituation,
    Revocation,
    RunningPod,
    Victim,
    overusing,
    plan_revocations,
)
from engine.gang import pod_group_of_gang
from engine.model.elastic_quota import (
    BUILT_IN_QUOTAS,
    NAME_LABEL,
    ElasticQuota,
    EvictionMode,
    QuotaKey,
)
from engine.model.gang import GangKey
from engine.model.pod_classes import PriorityClass
from engine.model.time import SECOND, Micros
from engine.quota.tree import QuotaTree, TreeBounds, bounds_in, known_quota_name
from engine.view import ClusterView
from webhook.cluster.client.connection import ApiError
from webhook.cluster.object_event import quota_reference
from webhook.controllers.eviction.context import EndedError, EvictionContext
from webhook.controllers.eviction.execution import EvictionRound
from webhook.controllers.eviction.writer import EventReasons, EvictionOutcome

OVERUSED_FOR: Final = 120 * SECOND
"""For which a quota uses too much before its pods are evicted (upstream: delayEvictTime)."""

_LOOK_EVERY: Final = 1 * SECOND
_PLAN_AGAIN: Final = 10 * SECOND
_REPORT_AGAIN: Final = 600 * SECOND
"""Between two Events about what mode On would do for one quota."""

_NAME: Final = "overuse"
_REASONS: Final = EventReasons("WouldRevoke", "Revoking", "Revoked")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Overuse:
    """A quota that uses too much."""

    since: Micros  # when that began, as this leader knows
    plan_at: int = 0  # before which no plan is made for it
    report_at: int = 0  # before which it gets no Event about a plan


class OveruseRevocation:
    """Evicts pods of quotas whose annotation says so; a part of the reclaim controller."""

    def __init__(self, context: EvictionContext) -> None:
        self._context = context
        self._over: dict[QuotaKey, _Overuse] = {}
        self._tasks: dict[QuotaKey, asyncio.Task[None]] = {}
        self._look_at = 0

    def begin(self) -> None:
        """Begin again: a new leader sees for itself for how long a quota uses too much."""
        self._over.clear()
        self._look_at = 0

    async def end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def cycle(self) -> None:
        """Start the revocations that are due."""
        now = self._context.now()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY
        view = self._context.state.view()
        tree = self._context.tree(view)
        if all(quota.revoke is EvictionMode.OFF for quota in tree):
            self._over.clear()
            return

        # 1. Who uses too much, for how long.
        bounds = bounds_in(view, tree)
        over = [quota for quota in overusing(bounds) if quota.revoke is not EvictionMode.OFF]
        known = self._over
        self._over = {quota.key: known.get(quota.key) or _Overuse(now) for quota in over}
        due = [quota for quota in over if self._is_due(quota, now)]
        if not due:
            return
        for quota in due:
            self._over[quota.key].plan_at = now + _PLAN_AGAIN

        # 2. Plan for all of them together: what one gives, one above it need not give.
        for revocation in plan_revocations(due, self._situation(view, bounds, due, now)):
            await self._begin(revocation, now)
            await asyncio.sleep(0)  # reviews and events come in between

    def _is_due(self, quota: ElasticQuota, now: Micros) -> bool:
        over = self._over[quota.key]
        is_time = now - over.since >= OVERUSED_FOR and now >= over.plan_at
        return is_time and quota.key not in self._tasks

    def _situation(
        self, view: ClusterView, bounds: TreeBounds, quotas: Collection[ElasticQuota], now: Micros
    ) -> OveruseSituation:
        context = self._context
        keys = {quota.key for quota in quotas}
        return OveruseSituation(
            bounds=bounds,
            candidates=[
                Candidate(pod=pod, entry=entry, quotas=of_pod)
                for pod in context.running
                if not keys.isdisjoint(of_pod := _quotas_of(bounds.tree, pod))
                and context.is_limited(view, pod.namespace)
                and (entry := context.state.entry(pod.key)) is not None
                and not entry.is_overdue
            ],
            node_names=view.names,
            gangs=self._gangs(view),
            budgets=context.budgets(view),
            classes={each.name: each for each in view.all_of(PriorityClass)},
            guards=context.guards.state,
            leaving=context.planned.of_others(""),
            exhausted=context.turns.exhausted(),
            now=now,
        )

    def _gangs(self, view: ClusterView) -> dict[GangKey, int]:
        """Return how many members of each gang run that are not leaving."""
        context = self._context
        gone = context.planned.of_others("")
        named = Counter(
            pod.gang
            for pod in context.running
            if pod.gang is not None and not pod.deleting and pod.uid not in gone
        )
        return {
            key: size for key, size in named.items() if pod_group_of_gang(key, view) is not None
        }

    async def _begin(self, revocation: Revocation, now: Micros) -> None:
        """Carry out a plan as far as guards allow, or say what mode On would do."""
        context, quota = self._context, revocation.quota
        over = self._over[quota.key]
        if quota.revoke is EvictionMode.ON:
            victims = revocation.at_most(context.planned.room)
            if victims:
                self._start(revocation, victims)
        elif now >= over.report_at:
            over.report_at = now + _REPORT_AGAIN
            context.metrics.ended(_NAME, EvictionOutcome.REPORTED)
            await context.events.would_evict(quota_reference(quota), revocation, _REASONS)

    def _start(self, revocation: Revocation, victims: Sequence[Victim]) -> None:
        key = revocation.quota.key
        claimant = "/".join(key)
        self._context.planned.set(claimant, victims)
        task = asyncio.create_task(self._carry_out(revocation, victims))
        self._tasks[key] = task

        def done(_task: object) -> None:
            self._context.planned.remove(claimant)
            self._tasks.pop(key, None)

        task.add_done_callback(done)

    async def _carry_out(self, revocation: Revocation, victims: Sequence[Victim]) -> None:
        context, quota = self._context, revocation.quota

        async def tell(victim: Victim) -> None:
            await context.events.evicted(victim, f"evicted as {revocation.message}", _REASONS)

        evictions = EvictionRound(
            victims, context, is_evicted=tell, check=lambda: self._check(quota)
        )
        outcome = EvictionOutcome.REVOKED
        try:
            await evictions.dry_run()
            self._check(quota)
            await evictions.record()
            await context.events.evicting(quota_reference(quota), revocation, _REASONS)
            await evictions.evict()
            await evictions.wait_until_gone()
        except EndedError as end:
            outcome = end.outcome
            _log.info("revocation of quota `%s` ended: %s", quota.name, end)
        except ApiError as error:
            outcome = EvictionOutcome.UNREACHABLE
            _log.info("revocation of quota `%s` ended: %s", quota.name, error)
        except Exception:  # noqa: BLE001 - no bug in one revocation ends the others
            _log.exception("a revocation failed")
            return
        context.metrics.ended(_NAME, outcome)

    def _check(self, quota: ElasticQuota) -> None:
        """End a revocation whose quota does not ask for it any more."""
        found = self._context.tree(self._context.state.view()).get(quota.name)
        if found is None or found.revoke is not EvictionMode.ON:
            raise EndedError(EvictionOutcome.CHANGED, "nobody is to be evicted for it any more")


def _quotas_of(tree: QuotaTree, pod: RunningPod) -> tuple[QuotaKey, ...]:
    """Return the quota that a pod belongs to, and those above it; none where it is of no tree."""
    name = known_quota_name(tree, pod.namespace, pod.labels.get(NAME_LABEL, ""))
    quota = tree.get(name)
    if quota is None or name in BUILT_IN_QUOTAS:
        return ()
    return (quota.key, *(above.key for above in tree.ancestors_of(name)))
