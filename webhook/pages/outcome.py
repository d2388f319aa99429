"""Where the pods of policies were bound, and how good that was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.report import OutcomeFigures, OutcomeReport, PolicyOutcome
from webhook.pages import ui

_ENFORCE: Final = "Enforce"
_WHOLE: Final = 100
_ACTING: Final = (
    "pods", "as meant", "at binding", "moved", "ranked first", "mean rank", "rejected",
    "points", "lost", "against stock", "hot, stock",
)  # fmt: skip
_AUDITED: Final = (
    "pods", "elsewhere", "rejected", "waiting", "points", "gained", "hot, stock", "rules",
)  # fmt: skip


def outcome_blocks(
    report: OutcomeReport, namespace: str = "", policy: str = ""
) -> Iterator[ui.Block]:
    """Yield the outcome of all policies, or of one by namespace."""
    since, until = report.since or "-", report.until or "-"
    yield ui.Paragraph(f"pods bound from {since} to {until}")
    yield from outcome_tables(report.policies, namespace, policy)
    for each in report.policies:
        if each.worse:
            yield ui.Paragraph(f"policy `{each.policy}` makes things worse: {each.worse}")
    for name, audited in sorted(report.audited.items()):
        yield ui.Paragraph(
            f"policy `{name}` is in Audit mode since {audited.since}: {audited.reason}\n"
            f"hint: change it, or take it back: `stowplan outcome --enforce {name}`"
        )


def outcome_tables(
    policies: Sequence[PolicyOutcome], namespace: str = "", policy: str = ""
) -> Iterator[ui.Block]:
    """Yield where pods landed of policies that act, and what those in Audit mode would change."""
    chosen = [each for each in policies if policy in {"", each.policy}]
    for title, titles, cells, shown in (
        ("", _ACTING, _acting, [each for each in chosen if each.mode == _ENFORCE]),
        ("in Audit mode", _AUDITED, _audited, [each for each in chosen if each.mode != _ENFORCE]),
    ):
        rows: list[ui.Row] = [
            (ui.policy_link(each.policy), name, *cells(each, figures))
            for each in shown
            for name, figures in _figures(each, namespace, by_namespace=bool(policy))
        ]
        if shown:
            yield ui.Table(
                title=(ui.strong(title), ": what would have changed") if title else "",
                columns=(
                    ui.name_column("policy"),
                    ui.name_column("namespace"),
                    *map(ui.number, titles),
                ),
                rows=rows,
                empty="no such pod was bound",
            )


def _figures(
    outcome: PolicyOutcome, namespace: str, *, by_namespace: bool
) -> Iterator[tuple[str, OutcomeFigures]]:
    """Yield the namespace, "all" for their total, and the figures of each row."""
    if not namespace and not by_namespace:
        yield "all", outcome.total
        return
    for each in outcome.namespaces:
        if namespace in {"", each.namespace}:
            yield each.namespace or "others", each.figures


def _acting(_: PolicyOutcome, figures: OutcomeFigures) -> ui.Row:
    return (
        f"{figures.pods}",
        _percent(figures.landed, figures.pods),
        f"{figures.decided}",
        _percent(figures.moved, figures.decided),
        _percent(figures.ranks[0], figures.decided),
        _number(figures.mean_rank),
        f"{figures.rejected}" if figures.decided else "-",
        _number(figures.mean_points),
        _number(figures.mean_lost),
        _signed(figures.mean_gained),
        _hot(figures),
    )


def _audited(outcome: PolicyOutcome, figures: OutcomeFigures) -> ui.Row:
    return (
        f"{figures.pods}",
        f"{figures.pods - figures.landed - figures.denied}",
        f"{figures.rejected}",
        f"{figures.denied}",
        _number(figures.mean_points),
        _signed(figures.mean_gained),
        _hot(figures),
        ", ".join(f"{rule.rule} {rule.pods}" for rule in outcome.rules),
    )


def _hot(figures: OutcomeFigures) -> str:
    return f"{figures.hot}, {figures.stock_hot}" if figures.measured else "-"


def _percent(part: int, whole: int) -> str:
    return f"{_WHOLE * part / whole:.0f} %" if whole else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"
