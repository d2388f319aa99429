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

_ROWS: Final = 50
_DRAWN: Final = 25
_AMOUNTS: Final = ("Used", "Reserved", "Min", "Max", "May use now", "Borrowed", "Lent", "Waiting")
_CAPTION: Final = (
    "of the fullest quotas: used, used beyond min, reserved; the mark is min, the dashed line max"
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
    fields = [ui.Field("namespace", namespace, "Namespace", "all")]
    if len(resources) > 1:
        label = "Resource of the plot"
        fields.append(ui.Field("resource", resource, label, options=resources))
    queued = sum(quota.queued for quota in report.quotas)
    blocks: list[ui.Block] = [
        ui.Form(fields),
        ui.Facts([("Quotas", f"{report.total}"), ("Pods that wait", f"{queued}")]),
    ]
    if fullest := _fullest(report, resource)[:_DRAWN]:
        blocks.append(ui.Plot("fill", f"{resource} {_CAPTION}", _fill(fullest)))
    part = part_of(report.quotas, query, _ROWS)
    of = f" of {namespace}" if namespace else ""
    more = f", of {report.total} in all" if part.total < report.total else ""
    table = ui.Table(
        title=f"{counted(part.total, 'quota')}{of}{more}",
        columns=(
            ui.Column("Quota"),
            ui.Column("Mode"),
            ui.Column("Resource"),
            *map(ui.number, _AMOUNTS),
        ),
        rows=[row for quota_ in part.items for row in _rows(quota_)],
        empty="no quota",
    )
    blocks += (ui.Paragraph("All quotas", "heading"), table)
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
            None if place else quota_.mode,
            name,
            (
                ui.amount(each.used, name),
                ui.quiet(f" {ui.percent(each.used, each.max)} %") if each.max else "",
                (" ", ui.strong("over max")) if is_over else "",
            ),
            ui.amount(each.reserved, name) if each.reserved else "",
            "none" if each.min is None else ui.amount(each.min, name),
            "none" if each.max is None else ui.amount(each.max, name),
            "" if each.runtime is None else ui.amount(each.runtime, name),
            ui.amount(each.borrowed, name) if each.borrowed else "",
            ui.amount(each.lent, name) if each.lent else "",
            None if place else waiting,
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
        x="% of max, or of min where there is no max",
        shapes=[whole],
    )
    marks = marks_in_rows("min", minima)
    return {"data": [*figure["data"], marks], "layout": figure["layout"]}
