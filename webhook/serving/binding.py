"""Composition of decisions at binding."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from prometheus_client import CollectorRegistry

from engine.binding import BindingLedger
from engine.model.selectors import parse_selector_text
from engine.model.time import SECOND, Micros
from engine.view import ClusterState
from webhook.background import in_background
from webhook.binding import (
    BindingCollector,
    BindingDecider,
    BindingRecords,
    DeciderParts,
    ReboundEvents,
    SeenBindings,
)
from webhook.cluster import Cluster
from webhook.cluster.client.connection import Connection
from webhook.cluster.watch.source_status import SourceStatus
from webhook.controllers.leader_election import LeaseElector, steady_clock
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.placer import Placer
from webhook.settings import Settings

_SETTLED: Final = "stowplan.dev/bindings-settled"
"""On the Lease: the last leader ended with no binding on its way."""

_LAG: Final = 5 * SECOND
"""Of a watch behind what it reports on, at most, while it is heard at all."""


class BindingServices:
    """What this replica sees of bindings, from the first pod on.

    Attributes:
        seen: an observer of pods.
        records: of decisions, for whoever counts outcomes.
    """

    def __init__(self, connection: Connection, *, identity: str, now: Callable[[], Micros]) -> None:
        self._events = ReboundEvents(connection, identity=identity)
        self._now, self._steady_now = now, _going_on_from(now())
        self.seen = SeenBindings(self._events, self._steady_now)
        self.records = BindingRecords()
        self._ledger: BindingLedger | None = None

    def follow(self, state: ClusterState, settings: Settings) -> None:
        """Note what is seen; before the first pod is."""
        selector = parse_selector_text(settings.binding_namespaces)

        def is_asked_about(namespace: str) -> bool:
            """Return whether the API server asks about bindings of a namespace, as far as known."""
            labels = state.namespace_labels(namespace)
            return labels is None or selector.matches(labels)

        self._ledger = BindingLedger(state, scope=settings.scope(), is_asked_about=is_asked_about)
        self.seen.follow(self._ledger)

    def decider(  # noqa: PLR0913 - named parts, joined in one place
        self,
        stack: AsyncExitStack,
        settings: Settings,
        cluster: Cluster,
        *,
        elector: LeaseElector,
        placer: Placer,
        policies: LivePolicies,
        counts: PolicyCounts,
        registry: CollectorRegistry,
    ) -> BindingDecider:
        """Return what decides while `lead` runs; it follows bindings until the stack unwinds."""
        if self._ledger is None:
            raise ValueError("bindings are decided by what is followed")
        pods = cluster.sources["pods"]
        decider = BindingDecider(
            DeciderParts(
                placer=placer,
                ledger=self._ledger,
                seen=self.seen,
                policies=lambda: policies.current,
                counts=counts,
                records=self.records if settings.outcome else None,
                hot_percent=settings.outcome_hot_percent,
                lead_seconds_left=lambda: elector.seconds_left,
                succeeds=lambda: elector.succeeds and _SETTLED not in elector.inherited,
                hand_over=lambda: elector.leave(_SETTLED, "true"),
                is_ready=lambda: cluster.is_synced and policies.is_loaded,
                seen_until=lambda: self._seen_until(pods),
                now=self._steady_now,
            )
        )
        in_background(stack, decider.run())
        in_background(stack, self._events.run())
        registry.register(BindingCollector(decider))
        return decider

    def _seen_until(self, pods: SourceStatus) -> Micros:
        """Return the moment up to which all changes of pods have been seen."""
        silence = max(self._now() - (pods.last_contact or 0), 0)
        return Micros(self._steady_now() - silence - _LAG)


def _going_on_from(now: Micros) -> Callable[[], Micros]:
    """Return a time of day that only goes forward: somebody may set the clock of the machine.

    What is on its way would else be forgotten at once, or count for as long as the clock went back.
    """
    began = steady_clock()
    return lambda: Micros(now + int((steady_clock() - began) * SECOND))
