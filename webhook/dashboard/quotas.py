"""The report on the quotas of a cluster."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import partial
from itertools import islice
from typing import Final

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota import (
    QuotaFigures,
    mode_of,
    quota_figures,
    quota_usages,
    reserved_amounts,
)
from engine.quota.queueing import QueueRules
from engine.report import QuotaAmount, QuotaRow, QuotasReport
from engine.view import ClusterState, ClusterView

_MOST_LISTED: Final = 1_000
_MOST_RESOURCES: Final = 16  # of a quota


def quotas_report(
    state: ClusterState, rules: QueueRules, *, namespace: str, groups: Container[str]
) -> QuotasReport:
    """Return the quotas of a cluster, the first 1,000 by namespace and name.

    Args:
        state: the cluster.
        rules: by which pods are counted and wait.
        namespace: whose quotas; "" for all.
        groups: the API groups of the quotas to list.
    """
    view = state.view()
    found = sorted(_quotas(view, namespace, groups), key=lambda quota: quota.key)
    listed = {quota.key: quota for quota in islice(found, _MOST_LISTED)}
    used = {
        usage.quota.key: usage.used
        for usage in quota_usages(view, rules.rules)
        if usage.quota.key in listed
    }
    figures = {
        each.usage.quota.key: each
        for each in quota_figures(view, rules.rules, rules.mode, capacity=rules.capacity(view))
        if each.usage.quota.key in listed
    }
    return QuotasReport(
        total=len(found),
        quotas=tuple(
            _row(state, view, rules, quota, used.get(key), figures.get(key))
            for key, quota in listed.items()
        ),
    )


def _quotas(view: ClusterView, namespace: str, groups: Container[str]) -> Iterator[ElasticQuota]:
    of_namespaces = view.namespaces.quotas
    names = [namespace] if namespace else list(of_namespaces)
    for name in names:
        yield from (quota for quota in of_namespaces.get(name, ()) if quota.group in groups)


def _row(
    state: ClusterState,
    view: ClusterView,
    rules: QueueRules,
    quota: ElasticQuota,
    used: Amounts | None,
    figures: QuotaFigures | None,
) -> QuotaRow:
    if figures is not None:
        used = figures.usage.used
    if used is None:  # its pods are in other namespaces, and its controller counts them
        used = quota.used
    return QuotaRow(
        namespace=quota.namespace,
        name=quota.name,
        group=quota.group,
        mode=mode_of(view, quota.namespace, rules.mode),
        amounts=tuple(_amounts(quota, used, _reserved(state, rules, quota), figures)),
        queued=0 if figures is None else figures.queued,
        max_queued=0 if figures is None else quota.max_queued,
    )


def _reserved(state: ClusterState, rules: QueueRules, quota: ElasticQuota) -> Amounts:
    is_scheduled = rules.rules.count_pods == "Scheduled"
    counted = partial(_counted, state, quota.namespace, scheduled=is_scheduled)
    return reserved_amounts(quota, counted)


def _counted(state: ClusterState, namespace: str, name: str, *, scheduled: bool) -> Amounts:
    return state.requests(f"{namespace}/{name}", scheduled=scheduled)


def _amounts(
    quota: ElasticQuota, used: Amounts, reserved: Amounts, figures: QuotaFigures | None
) -> Iterator[QuotaAmount]:
    """Yield what there is of each resource that a quota names."""
    least, most = quota.min or {}, quota.max or {}
    for name in sorted({*least, *most})[:_MOST_RESOURCES]:
        yield QuotaAmount(
            resource=name,
            used=used.get(name, 0),
            reserved=reserved.get(name, 0),
            min=least.get(name),
            max=most.get(name),
            runtime=None if figures is None else figures.runtime.get(name),
            borrowed=0 if figures is None else figures.sharing.borrowed.get(name, 0),
            lent=0 if figures is None else figures.sharing.lent.get(name, 0),
        )
