"""Where the dashboard's pages get their reports from."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from engine.report import (
    NodeReport,
    NodesReport,
    PodReport,
    PodsReport,
    PoliciesReport,
    QueueReport,
    QuotasReport,
)


class DashboardSource(Protocol):
    """A cluster as the dashboard shows it.

    A report is made on the event loop, in milliseconds, and holds no view; a page is made of it in
    a thread.

    Attributes:
        name: of the cluster, for people.
        is_live: whether anything of it may change.
        has_queue: whether pods may be held.
        missing: names of what is not read yet since the start, and pages wait for.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above

    @property
    def is_live(self) -> bool: ...  # noqa: D102 - see above

    @property
    def has_queue(self) -> bool: ...  # noqa: D102 - see above

    @property
    def missing(self) -> tuple[str, ...]: ...  # noqa: D102 - see above

    def version(self) -> int:
        """Return a number that grows with every event."""

    def nodes(self) -> NodesReport:
        """Return the nodes."""

    def node(self, name: str) -> NodeReport | None:
        """Return a node with its pods, None where there is none."""

    def pods(self, namespace: str, text: str) -> PodsReport:
        """Return the pods of a namespace, "" for all, whose name contains a text."""

    async def pod(self, namespace: str, name: str, node: str) -> PodReport | None:
        """Return a pod with its decisions, None where there is none.

        Args:
            namespace: of the pod.
            name: of the pod.
            node: to be told of in any case; "" for none.

        Raises:
            UnavailableError: it cannot be read now.
        """

    def quotas(self, namespace: str, groups: Container[str]) -> QuotasReport:
        """Return the quotas of a namespace, "" for all, and of some API groups."""

    def queue(self, namespace: str) -> QueueReport:
        """Return the held pods of a namespace, "" for all, in the order of their release."""

    async def policies_in_force(self) -> PoliciesReport:
        """Return the policies in force."""
