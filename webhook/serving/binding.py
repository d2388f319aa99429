"""What a process that may lead sees of bindings, from the first pod on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.binding import BindingLedger
from engine.model.selectors import parse_selector_text
from engine.model.time import SECOND, Micros
from engine.view import ClusterState
from webhook.binding import (
    BindingRecords,
    ReboundEvents,
    SeenBindings,
)
from webhook.cluster.client.connection import Connection
from webhook.cluster.watch.source_status import SourceStatus
from webhook.controllers.leader_election import steady_clock
from webhook.settings import Settings

_LAG: Final = 5 * SECOND
"""Of a watch behind what it reports on, at most, while it is heard at all."""


class BindingServices:
    """Bindings as this replica sees them, whether it leads or not."""

    def __init__(self, connection: Connection, *, identity: str, now: Callable[[], Micros]) -> None:
        self.now = _going_on_from(now())
        self.events = ReboundEvents(connection, identity=identity)
        self.seen = SeenBindings(self.events.record, self.now)  # an observer of pods
        self.records = BindingRecords()  # of decisions, for whoever counts outcomes
        self._day_time = now
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

    @property
    def ledger(self) -> BindingLedger:
        """The bindings on their way; there is one once a state is followed."""
        if self._ledger is None:
            raise ValueError("bindings are decided by what is followed")
        return self._ledger

    def seen_until(self, pods: SourceStatus) -> Micros:
        """Return the moment up to which all changes of pods have been seen."""
        silence = max(self._day_time() - (pods.last_contact or 0), 0)
        return Micros(self.now() - silence - _LAG)


def _going_on_from(now: Micros) -> Callable[[], Micros]:
    """Return a time of day that only goes forward: somebody may set the clock of the machine.

    What is on its way would else be forgotten at once, or count for as long as the clock went back.
    """
    began = steady_clock()
    return lambda: Micros(now + int((steady_clock() - began) * SECOND))
