"""The page of a policy: its effect, its rules and what went wrong with it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.report import PolicyRow, Threshold
from webhook.pages.page import Page
from webhook.pages.policies import OUTCOMES
from webhook.pages.templates import render


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
