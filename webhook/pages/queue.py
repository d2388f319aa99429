"""The page of the queue: which held pods are released next, and why the others wait."""

from __future__ import annotations

from typing import Final

from engine.report import QueueReport
from webhook.pages.page import Page
from webhook.pages.query import Query, part_of, text_of
from webhook.pages.templates import linked, render

_ROWS: Final = 100


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
            part=part_of(report.pods, query, _ROWS),
            link=linked({"namespace": namespace}),
        ),
    )
