"""The held pods in the order in which they are released."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import structs

from engine.errors import counted
from engine.model.time import SECOND, Micros
from engine.report import QueuedPodReport, QueueReport, ReleaserReport, eta_text, place_text
from webhook.pages import ui
from webhook.pages.document import Page, Query, page_of, part_of, text_of

_LINE_COLUMNS: Final = (
    *ui.columns("priority", "held for"),
    ui.Column("reason", ui.Kind.DETAIL),
    ui.Column("", ui.Kind.PROSE),
)
_DETAILS: Final = ("reason", "quota", "needs", "free", "blocked by")
_QUOTA_COLUMNS: Final = (
    ui.Column("held for"),
    *(ui.Column(title, ui.Kind.DETAIL) for title in _DETAILS),
    ui.Column("released in"),
)
_STALE_SECONDS: Final = 15.0  # then another replica takes the Lease over
_MINUTE, _HOUR = 60, 3_600
_ROWS: Final = 100
_NOBODY: Final = (
    "No pod is held. Where `stowplan serve --hold` is on, pods wait here for their quota, their"
    " gang, their turn, or for evictions."
)


def is_releasing(releaser: ReleaserReport) -> bool:
    """Return whether somebody releases pods."""
    age = releaser.renewed_seconds_ago
    return bool(releaser.holder) and releaser.releasing and age is not None and age < _STALE_SECONDS


def queue_page(report: QueueReport, query: Query) -> Page:
    """Return the page of held pods.

    Args:
        report: the queue, of the namespace that was chosen or of all.
        query: `namespace`, `part`.
    """
    namespace = text_of(query, "namespace")
    part = part_of(report.pods, query, _ROWS)
    shown = structs.replace(report, pods=tuple(part.items))
    facts = ui.Facts([("Held pods", f"{report.held}"), ("Overdue", f"{report.overdue}")])
    suggested = sorted({pod.pod.namespace for pod in report.pods})
    field = ui.Field("namespace", namespace, "Namespace", "all", suggested=suggested)
    blocks = (*queue_blocks(shown), part.links({"namespace": namespace}))
    held = blocks if report.held else (ui.Paragraph(_NOBODY),)
    return page_of("queue", "Queue", (ui.Form([field]), facts, *held))


def queue_blocks(report: QueueReport) -> Iterator[ui.Block]:
    """Yield the held pods: those that wait for no quota, then the others."""
    yield ui.Paragraph(_summary(report))
    for waits_for_quota, titles, cells in (
        (False, _LINE_COLUMNS, _in_line),
        (True, _QUOTA_COLUMNS, _in_quota),
    ):
        pods = [pod for pod in report.pods if (pod.quota is not None) == waits_for_quota]
        gangs = ui.columns("gang") if any(pod.gang for pod in pods) else ()
        yield ui.Table(
            columns=(ui.Column("place"), ui.name_column("pod"), *gangs, *titles),
            rows=[_row(pod, cells(pod), names_gang=bool(gangs)) for pod in pods],
        )


def _row(pod: QueuedPodReport, cells: ui.Row, *, names_gang: bool) -> ui.Row:
    gang = (pod.gang.rpartition("/")[2] or "-",) if names_gang else ()  # of the pod's namespace
    return (f"{pod.place}" if pod.place else "-", ui.pod_link(pod.pod), *gang, *cells)


def _in_line(pod: QueuedPodReport) -> ui.Row:
    held = _duration(pod.held_seconds)
    return (f"{pod.priority}", held, pod.reason, ui.joined((pod.message, *_notes(pod)), "; "))


def _in_quota(pod: QueuedPodReport) -> ui.Row:
    place = pod.quota
    if place is None:
        return ()
    eta = place.eta_seconds
    wait = "?" if eta is None else eta_text(Micros(eta * SECOND))
    return (
        _duration(pod.held_seconds),
        pod.reason,
        f"{place_text(place.position, place.of)} in {place.quota}",
        _amounts(place.needs),
        _amounts(place.free),
        ", ".join(place.blocked_by),
        ui.joined((wait, *_notes(pod)), "; "),
    )


def _summary(report: QueueReport) -> ui.Inline:
    """Return how many pods are held, in which order, and who releases them."""
    if not report.held:
        return "no pod is held"
    parts: list[ui.Inline] = [ui.strong(f"{counted(report.held, 'pod is', 'pods are')} held")]
    if report.overdue:
        parts.append(ui.bad(f"{report.overdue} overdue"))
    return ui.joined((*parts, f"order: {report.queue_sort}", _releaser(report.releaser)), "; ")


def _releaser(releaser: ReleaserReport | None) -> ui.Inline:
    if releaser is None:
        return "it is unknown who releases them"
    holder, age, nobody = (
        releaser.holder,
        releaser.renewed_seconds_ago,
        ui.bad("nobody releases them"),
    )
    if not holder or age is None:
        return (nobody, ": no replica leads")
    if age >= _STALE_SECONDS:
        return (nobody, f": {holder} led until {_duration(int(age))} ago")
    if not releaser.releasing:
        return (nobody, f": {holder} leads, and releases no pods")
    return f"{holder} releases them"


def _notes(pod: QueuedPodReport) -> Iterator[ui.Inline]:
    if pod.nominated_node:
        yield f"about to go to {pod.nominated_node}"
    if pod.overdue_seconds:
        yield ui.bad(f"overdue by {_duration(pod.overdue_seconds)}")


def _amounts(quantities: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {quantity}" for name, quantity in quantities.items())


def _duration(seconds: int) -> str:
    """Return a time in its largest unit and the next, such as `3 min 12 s`."""
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE} s"
    return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
