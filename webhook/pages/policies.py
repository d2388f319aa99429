"""The page of policies: what each does to pods and nodes, where its pods land, what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.report import PoliciesReport, PolicyRow, RuleKind, Threshold
from webhook.pages.document import Figure, Page, Query, render
from webhook.pages.figures import Bars, stacked_rows

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


def policy_page(policy: PolicyRow, thresholds: Sequence[Threshold], *, counted: bool) -> Page:
    """Return the page of a policy.

    Args:
        policy: the policy.
        thresholds: of its filters.
        counted: whether decisions are counted: nobody does in a recording.
    """
    figures = None if policy.outcome is None else policy.outcome.total
    return Page(
        name="policy",
        title=f"Policy {policy.name}",
        body=render(
            "policy.html",
            policy=policy,
            figures=figures if figures is not None and figures.pods else None,
            thresholds=thresholds,
            outcomes=OUTCOMES,
            is_counted=counted,
        ),
    )
