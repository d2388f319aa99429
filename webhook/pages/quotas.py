"""The page of quotas: how full each is, what it borrows, what is reserved, how many pods wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.report import QueueReport, QuotaAmount, QuotaRow, QuotasReport
from webhook.pages.document import (
    Figure,
    Page,
    Query,
    chosen,
    linked,
    part_of,
    percent,
    render,
    text_of,
)
from webhook.pages.figures import Bars, marks_in_rows, stacked_rows, upright

_ROWS: Final = 50
_DRAWN: Final = 25


@dataclass(frozen=True, slots=True)
class _Level:
    """How full one resource of a quota is."""

    quota: QuotaRow
    amount: QuotaAmount
    whole: int  # what percentages are of: `max`, or `min` where there is no `max`

    @property
    def name(self) -> str:
        return f"{self.quota.namespace}/{self.quota.name}"

    def of_whole(self, amount: int | None) -> float:
        return percent(amount, self.whole) or 0.0


def quotas_page(report: QuotasReport, query: Query) -> Page:
    """Return the page of quotas.

    Args:
        report: the quotas of the namespace that was chosen, or of all.
        query: `namespace`, `resource` of the plot, `part` of the table.
    """
    namespace = text_of(query, "namespace")
    resources = _resources(report)
    resource = chosen(query, "resource", resources) if resources else ""
    fullest = _fullest(report, resource)[:_DRAWN]
    return Page(
        name="quotas",
        title="Quotas",
        body=render(
            "quotas.html",
            report=report,
            namespace=namespace,
            resource=resource,
            resources=resources,
            drawn=len(fullest),
            queued=sum(quota.queued for quota in report.quotas),
            part=part_of(report.quotas, query, _ROWS),
            link=linked({"namespace": namespace, "resource": resource}),
        ),
        figures={"fill": _fill(fullest)} if fullest else {},
    )


def _resources(report: QuotasReport) -> tuple[str, ...]:
    """Return the resources that quotas limit; cpu and memory, where they do, come first."""
    found = {amount.resource for quota in report.quotas for amount in quota.amounts}
    return tuple(sorted(found, key=lambda name: (name != "cpu", name != "memory", name)))


def _fullest(report: QuotasReport, resource: str) -> Sequence[_Level]:
    levels = [
        _Level(quota, amount, whole)
        for quota in report.quotas
        for amount in quota.amounts
        if amount.resource == resource and (whole := amount.max or amount.min)
    ]
    return sorted(levels, key=lambda level: -level.of_whole(level.amount.used))


def _fill(levels: Sequence[_Level]) -> Figure:
    """Return a row for each quota: used within min, beyond it, reserved; min as a mark."""
    within, beyond, reserved, minima = [], [], [], dict[str, float]()
    for level in levels:
        least = level.amount.used if level.amount.min is None else level.amount.min
        within.append(level.of_whole(min(level.amount.used, least)))
        beyond.append(level.of_whole(max(0, level.amount.used - least)))
        reserved.append(level.of_whole(level.amount.reserved))
        if level.amount.min is not None:
            minima[level.name] = level.of_whole(level.amount.min)
    bars = (
        Bars("used", within),
        Bars("used beyond min", beyond),
        Bars("reserved", reserved),
    )
    whole, _ = upright(100, "")  # the axis says it
    figure = stacked_rows(
        [level.name for level in levels],
        bars,
        x="% of max, or of min where there is no max",
        shapes=[whole],
    )
    marks = marks_in_rows("min", minima)
    return {"data": [*figure["data"], marks], "layout": figure["layout"]}


_QUEUE_ROWS: Final = 100


def queue_page(report: QueueReport, query: Query) -> Page:
    """Return the page of held pods.

    Args:
        report: the queue, of the namespace that was chosen or of all.
        query: `namespace`, `part`.
    """
    namespace = text_of(query, "namespace")
    return Page(
        name="queue",
        title="Queue",
        body=render(
            "queue.html",
            report=report,
            namespace=namespace,
            part=part_of(report.pods, query, _QUEUE_ROWS),
            link=linked({"namespace": namespace}),
        ),
    )
