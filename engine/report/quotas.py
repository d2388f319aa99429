"""The quotas of a cluster at one moment: how full each is, what it borrows, what waits for it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice
from typing import Final

import msgspec

from engine.model.elastic_quota import ElasticQuota
from engine.model.resources import Amounts
from engine.quota import QuotaFigures, mode_of, quota_figures, quota_usages, reserved_amounts
from engine.quota.queueing import QueueRules
from engine.view import ClusterState, ClusterView


class QuotaReport(msgspec.Struct, frozen=True):
    """The verdict of the quotas of a namespace.

    Attributes:
        allowed: whether the pod fits each of them.
        message: one clause per quota that it exceeds, as in the denial; "" if it fits.
        queues: whether the namespace has pods wait that do not fit, rather than denies them; by its
            annotation, as a recording does not know the mode of the installation.
    """

    allowed: bool
    message: str
    queues: bool = False


class QuotaAmount(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One resource of a quota, in base units; see `engine.model.quantity.amount_text`.

    Attributes:
        used: by the requests of its pods.
        reserved: for pods that were admitted and are not observed yet.
        min: guaranteed; None where it names none.
        max: the limit; None where it names none.
        runtime: what its pods may use now; None where its quotas form no tree.
        borrowed: used beyond `min`, where pods wait for quota.
        lent: of `min`, unused and used by others, where pods wait for quota.
    """

    resource: str
    used: int
    reserved: int = 0
    min: int | None = None
    max: int | None = None
    runtime: int | None = None
    borrowed: int = 0
    lent: int = 0


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One quota.

    Attributes:
        group: its API group.
        mode: what becomes of pods that exceed it: Enforce, Queue, Audit or Off.
        amounts: sorted by resource.
        queued: pods that wait for it.
        max_queued: pods that may wait for it.
    """

    namespace: str
    name: str
    group: str
    mode: str
    amounts: tuple[QuotaAmount, ...]
    queued: int = 0
    max_queued: int = 0


class QuotasReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The quotas of a cluster or of a namespace.

    Attributes:
        total: how many there are; `quotas` may be fewer.
        quotas: sorted by namespace and name.
    """

    total: int
    quotas: tuple[QuotaRow, ...]


_MOST_LISTED: Final = 1_000
_MOST_RESOURCES: Final = 16  # of a quota


def quotas_report(
    state: ClusterState, rules: QueueRules, *, namespace: str, groups: Container[str]
) -> QuotasReport:
    """Return the quotas of a cluster, the first 1,000 by namespace and name."""
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
    return reserved_amounts(
        quota,
        lambda name: state.requests(f"{quota.namespace}/{name}", scheduled=is_scheduled),
    )


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
