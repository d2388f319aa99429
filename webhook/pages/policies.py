"""The page of policies: what each does to pods and nodes, where its pods land, what went wrong."""

from __future__ import annotations

from typing import Final

from engine.report import PoliciesReport, RuleKind
from webhook.pages.figures import Bars, stacked_rows
from webhook.pages.page import Figure, Page
from webhook.pages.query import Query
from webhook.pages.templates import render

_DRAWN: Final = 20
OUTCOMES: Final = ("placed", "abstained", "denied")


def policies_page(report: PoliciesReport, query: Query) -> Page:  # noqa: ARG001 (as of all pages)
    """Return the page of the policies in force; of its query nothing is read."""
    turned_away = _turned_away(report)
    return Page(
        name="policies",
        title="Policies",
        body=render("policies.html", report=report, outcomes=OUTCOMES, drawn=bool(turned_away)),
        figures=turned_away,
    )


def _turned_away(report: PoliciesReport) -> dict[str, Figure]:
    """Return a bar for each filter that rejected nodes, the most effective first."""
    found = [
        (f"{policy.name}: {rule.name}", rule.rejected_nodes)
        for policy in report.policies
        for rule in policy.rules
        if rule.kind is RuleKind.FILTER and rule.rejected_nodes
    ]
    found.sort(key=lambda each: -each[1])
    if not found:
        return {}
    names, nodes = zip(*found[:_DRAWN], strict=True)
    return {"turned-away": stacked_rows(names, [Bars("nodes", nodes)], x="nodes rejected")}
