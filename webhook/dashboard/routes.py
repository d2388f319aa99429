"""The pages by name: what each shows, and the rights that it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from engine.report import DecisionReport, PodReport
from webhook import pages
from webhook.cluster.client.access_reviews import Access, ListAccess, PageAccess
from webhook.dashboard.readers import Reader
from webhook.dashboard.source import ClusterSource

PREFIX: Final = "/dashboard"
"""Of all paths: a nonResourceURL should not be mistaken for one of the API server's own."""

NODES: Final = PageAccess(f"{PREFIX}/nodes")
POLICIES: Final = PageAccess(f"{PREFIX}/policies")

Query: TypeAlias = Mapping[str, str]
Render: TypeAlias = Callable[[], pages.Page]
"""Makes a page of reports that are complete; runs in a thread."""

Show: TypeAlias = Callable[[ClusterSource, Reader, Query], Awaitable[Render]]
"""Makes the reports of a page for a reader; runs on the event loop."""


class ForbiddenError(Exception):
    """A reader lacks the rights of a page.

    Attributes:
        lacks: any of them suffices.
    """

    def __init__(self, *lacks: Access) -> None:
        super().__init__(" or ".join(map(str, lacks)))
        self.lacks = lacks


class MissingError(Exception):
    """There is no such object; the text says which.

    Attributes:
        instead: where there are others, "" for nowhere.
    """

    def __init__(self, text: str, instead: pages.ui.Inline = "") -> None:
        super().__init__(text)
        self.instead = instead


async def pages_for(source: ClusterSource, reader: Reader) -> tuple[str, ...]:
    """Return the names of the pages that a reader may open.

    Those of a namespace are among them: nobody knows which one it is going to be.
    """
    names = []
    if await reader.may(NODES):
        names.append("nodes")
    names += ["pod", "quotas"]
    if source.has_queue:
        names.append("queue")
    if await reader.may(POLICIES):
        names.append("policies")
    return tuple(names)


async def _nodes(source: ClusterSource, reader: Reader, query: Query) -> Render:
    await _require(reader, NODES)
    report = source.nodes()
    return lambda: pages.nodes_page(report, query)


async def _node(source: ClusterSource, reader: Reader, query: Query) -> Render:
    await _require(reader, NODES)
    await _require(reader, ListAccess("", "pods", ""))
    name = query.get("name", "")
    report = source.node(name)
    if report is None:
        raise MissingError(f"There is no node `{name}`.", _link("All nodes", "nodes"))
    return lambda: pages.node_page(report)


async def _policy(source: ClusterSource, reader: Reader, query: Query) -> Render:
    await _require(reader, POLICIES)
    name = query.get("name", "")
    report = await source.policies_in_force()
    row = next((policy for policy in report.policies if policy.name == name), None)
    if row is None:
        raise MissingError(f"No policy `{name}` is in force.", _link("All policies", "policies"))
    thresholds = [each for each in source.nodes().thresholds if each.policy == name]
    return lambda: pages.policy_page(row, thresholds, counted=report.counted)


async def _policies(source: ClusterSource, reader: Reader, query: Query) -> Render:
    await _require(reader, POLICIES)
    report = await source.policies_in_force()
    return lambda: pages.policies_page(report, query)


async def _quotas(source: ClusterSource, reader: Reader, query: Query) -> Render:
    namespace = query.get("namespace", "")
    lists = [ListAccess(group, "elasticquotas", namespace) for group in _QUOTA_GROUPS]
    groups = [access.group for access in lists if await reader.may(access)]
    if not groups:
        raise ForbiddenError(*lists)
    report = source.quotas(namespace, groups)
    return lambda: pages.quotas_page(report, query)


async def _queue(source: ClusterSource, reader: Reader, query: Query) -> Render:
    if not source.has_queue:
        raise MissingError("Pods are never held here: see `--hold`.")
    namespace = query.get("namespace", "")
    await _require(reader, ListAccess("", "pods", namespace))
    report = source.queue(namespace)
    return lambda: pages.queue_page(report, query)


async def _pod(source: ClusterSource, reader: Reader, query: Query) -> Render:
    namespace, name = query.get("namespace", ""), query.get("name", "")
    access = ListAccess("", "pods", namespace)
    if not namespace and not await reader.may(access):
        return lambda: pages.pod_page(None, query)
    await _require(reader, access)
    report = (
        await source.pod(namespace, name, query.get("node", "")) if namespace and name else None
    )
    if report is None:
        found = source.pods(namespace, name)
        if not found.pods and namespace and name:
            others = _link(f"Pods of {namespace}", f"pod?namespace={quote(namespace, '')}")
            raise MissingError(f"There is no pod `{namespace}/{name}`.", others)
        return lambda: pages.pods_page(found, query)
    if not await reader.may(NODES):
        shown = _without_nodes(report)
        return lambda: pages.pod_page(shown, query)
    nodes = source.nodes().names
    return lambda: pages.pod_page(report, query, nodes)


SHOWN: Final[Mapping[str, Show]] = {
    "nodes": _nodes,
    "node": _node,
    "pod": _pod,
    "quotas": _quotas,
    "queue": _queue,
    "policies": _policies,
    "policy": _policy,
}


def _link(text: str, href: str) -> pages.ui.Span:
    return pages.ui.Span(text, href=href)


_QUOTA_GROUPS: Final = (UPSTREAM_GROUP, KOORDINATOR_GROUP)


async def _require(reader: Reader, access: Access) -> None:
    if not await reader.may(access):
        raise ForbiddenError(access)


def _without_nodes(report: PodReport) -> PodReport:
    """Return a report for somebody who may not read what is known of single nodes.

    How many nodes each rule rejects stays: the scheduler says as much in the Events of a pod.
    """
    return msgspec.structs.replace(
        report, recorded=_summary(report.recorded), now=_summary(report.now)
    )


def _summary(decision: DecisionReport | None) -> DecisionReport | None:
    if decision is None:
        return None
    return msgspec.structs.replace(
        decision,
        ranking=(),
        rejected={},
        inputs=None,
        standing=None,
        audit=_summary(decision.audit),
    )
