"""The page of quotas: how full each is, what it borrows and lends, what waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from engine.errors import counted
from engine.report import QuotaAmount, QuotaRow, QuotasReport
from webhook.pages import ui
from webhook.pages.document import Page, Query, chosen, page_of, part_of, text_of
from webhook.pages.figures import Bars, marks_in_rows, stacked_rows, upright

_RECORD: Final = "kubectl get elasticquotas -A -o json"
_ROWS: Final = 50
_DRAWN: Final = 25
_AMOUNTS: Final = ("Used", "Min", "Max", "Reserved", "May use now", "Borrowed", "Lent", "Waiting")
_ALWAYS: Final = 2  # columns; others only where there is something in them
_CAPTION: Final = (
    "of the fullest quotas in percent of max, the dashed line; of min, the mark, where there is no"
    " max"
)


def quotas_page(report: QuotasReport, query: Query) -> Page:
    """Return the page of quotas.

    Args:
        report: the quotas of the namespace that was chosen, or of all.
        query: `namespace`, `resource` of the plot, `part` of the table.
    """
    namespace = text_of(query, "namespace")
    resources = _resources(report)
    resource = chosen(query, "resource", resources) if resources else ""
    suggested = sorted({quota.namespace for quota in report.quotas})
    fields = [ui.Field("namespace", namespace, "Namespace", "all", suggested=suggested)]
    if len(resources) > 1:
        label = "Resource of the plot"
        fields.append(ui.Field("resource", resource, label, options=resources))
    queued = sum(quota.queued for quota in report.quotas)
    blocks: list[ui.Block] = [
        ui.Form(fields),
        ui.Facts([("Quotas", f"{report.total}"), ("Pods waiting", f"{queued}")]),
    ]
    if fullest := _fullest(report, resource)[:_DRAWN]:
        blocks.append(ui.Plot("fill", f"{resource} {_CAPTION}", _fill(fullest)))
    part = part_of(report.quotas, query, _ROWS)
    of = f" of {namespace}" if namespace else ""
    more = f", of {report.total} in all" if part.total < report.total else ""
    columns = (
        ui.name_column("Quota"),
        ui.Column("Resource"),
        *map(ui.number, _AMOUNTS),
        ui.Column("Mode"),
    )
    rows = [row for quota_ in part.items for row in _rows(quota_)]
    filled = [i for i in range(len(columns)) if i < _ALWAYS or any(row[i] for row in rows)]
    empty: ui.Inline = f"No ElasticQuota is known: `{_RECORD}` records them."
    if namespace:
        empty = (f"No ElasticQuota is known in {namespace}: ", ui.Span("show all", href="quotas"))
    table = ui.Table(
        title=f"{counted(part.total, 'quota')}{of}{more}",
        columns=[columns[i] for i in filled],
        rows=[[row[i] for i in filled] for row in rows],
        empty=empty,
    )
    blocks.append(table)
    blocks.append(part.links({"namespace": namespace, "resource": resource}))
    return page_of("quotas", "Quotas", blocks)


def _rows(quota_: QuotaRow) -> Iterator[ui.Row]:
    """Yield a row for each resource of a quota."""
    waiting: ui.Inline = "0"
    if quota_.queued:
        most = f" of {quota_.max_queued}" if quota_.max_queued else ""
        href = f"queue?namespace={quote(quota_.namespace, '')}"
        waiting = ui.Span(f"{quota_.queued}{most}", href=href)
    for place, each in enumerate(quota_.amounts):
        name, is_over = each.resource, each.max is not None and each.used > each.max
        yield (
            None if place else f"{quota_.namespace}/{quota_.name}",
            name,
            (
                ui.amount(each.used, name),
                ui.quiet(f" {ui.percent(each.used, each.max)} %") if each.max else "",
                (" ", ui.strong("over max")) if is_over else "",
            ),
            "none" if each.min is None else ui.amount(each.min, name),
            "none" if each.max is None else ui.amount(each.max, name),
            ui.amount(each.reserved, name) if each.reserved else "",
            "" if each.runtime is None else ui.amount(each.runtime, name),
            ui.amount(each.borrowed, name) if each.borrowed else "",
            ui.amount(each.lent, name) if each.lent else "",
            None if place else waiting,
            None if place else quota_.mode,
        )


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
        return ui.percent(amount, self.whole) or 0.0


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


def _fill(levels: Sequence[_Level]) -> ui.Figure:
    """Return a row for each quota: used within min, beyond it, reserved; min as a mark."""
    within, beyond, reserved, minima = [], [], [], dict[str, float]()
    for level in levels:
        least = level.amount.used if level.amount.min is None else level.amount.min
        within.append(level.of_whole(min(level.amount.used, least)))
        beyond.append(level.of_whole(max(0, level.amount.used - least)))
        reserved.append(level.of_whole(level.amount.reserved))
        if level.amount.min is not None:
            minima[level.name] = level.of_whole(level.amount.min)
    bars = (Bars("used", within), Bars("used beyond min", beyond), Bars("reserved", reserved))
    whole, _ = upright(100, "")  # the axis says it
    figure = stacked_rows(
        [level.name for level in levels],
        bars,
        x="% of max",
        shapes=[whole],
    )
    marks = marks_in_rows("min", minima)
    return {"data": [*figure["data"], marks], "layout": figure["layout"]}
