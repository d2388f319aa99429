"""What the dashboard's page of all nodes costs a webhook."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.model.time import Micros
from engine.report import nodes_report
from engine.view import ClusterState
from tests.bench.measuring import clock
from webhook import pages

_FRAME = pages.Frame(cluster="bench", is_live=True)


class ShownNodes:
    """The page of the nodes of a cluster, and what an open one fetches.

    Args:
        state: the cluster.
        now: the moment.
    """

    def __init__(self, state: ClusterState, now: Micros) -> None:
        self._state = state
        self._now = now
        pages.document(pages.message_page("", ""), _FRAME)  # templates are loaded once

    def reported(self) -> Sequence[float]:
        """Make the report of them, which the event loop waits for."""
        return [_spent(lambda: nodes_report(self._state.view(), self._now))]

    def whole(self) -> Sequence[float]:
        """Render the page of a report."""
        report = nodes_report(self._state.view(), self._now)
        return [_spent(lambda: pages.document(pages.nodes_page(report, {}), _FRAME))]

    def update(self) -> Sequence[float]:
        """Render what an open page fetches after a change."""
        report = nodes_report(self._state.view(), self._now)
        return [_spent(lambda: pages.update(pages.nodes_page(report, {})))]


def _spent(step: Callable[[], object]) -> float:
    start = clock()
    step()
    return clock() - start
