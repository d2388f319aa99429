"""The pages of policies: what each does to pods and nodes, where its pods land, what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

from engine.report import (
    BindingStatus,
    OutcomeFigures,
    OutcomeReport,
    PoliciesReport,
    PolicyOutcome,
    PolicyRow,
    RuleKind,
    Threshold,
)
from webhook.pages import ui
from webhook.pages.document import Page, Query, page_of
from webhook.pages.figures import Bars, stacked_rows

_DRAWN: Final = 20
_OUTCOMES: Final = ("placed", "abstained", "denied")
_DIGITS: Final = 12  # of a digest


def policies_page(report: PoliciesReport, query: Query) -> Page:  # noqa: ARG001 (as of all pages)
    """Return the page of the policies in force; of its query nothing is read."""
    return page_of("policies", "Policies", [*_policies(report)])


def _policies(report: PoliciesReport) -> Iterator[ui.Block]:
    yield from (ui.Paragraph(text, "problem") for text in _problems(report))
    in_audit = sum(policy.mode == "Audit" for policy in report.policies)
    yield ui.Facts([("Policies", f"{len(report.policies)}"), ("In Audit mode", f"{in_audit}")])
    version = (
        *((f"loaded {ui.moment_text(report.loaded_at)}",) if report.loaded_at else ()),
        *((f"digest {report.digest[:_DIGITS]}",) if report.digest else ()),
    )
    yield ui.Paragraph(", ".join(version), "quiet")
    yield ui.Table(
        title="Policies by rank: those of the cluster first, then by falling priority",
        note=_COUNTED if report.counted else "decisions are not counted in a recording",
        columns=(
            ui.name_column("Policy"),
            *ui.columns("Mode", "Decides at"),
            ui.number("Priority"),
            *ui.columns("Filters", "Scores"),
            *(ui.number(outcome.capitalize()) for outcome in _OUTCOMES if report.counted),
        ),
        rows=[_row(policy, counted=report.counted) for policy in report.policies],
        empty=(
            "No policy is in force: every pod passes as it is. `stowplan dashboard --policies"
            " balanced` shows a cluster with one."
        ),
    )
    yield from _rejections(report)
    if report.bindings is not None and report.bindings.leads:
        yield from _bindings(report.bindings)
    if report.policies:
        yield ui.Paragraph("Where pods landed", "heading")
        outcomes = [each.outcome for each in report.policies if each.outcome is not None]
        tables = [*outcome_tables([each for each in outcomes if each.total.pods])]
        yield from tables
        if tables:
            yield ui.Paragraph(_OUTCOME_NOTE, "quiet")
        else:
            yield from _without_outcome("POLICY")


def _without_outcome(policy: str) -> Iterator[ui.Block]:
    yield ui.Paragraph("No pod has been bound yet. To see what a policy would do, run:")
    yield ui.Paragraph(
        f"stowplan simulate --cluster RECORDING --arm {policy} --html report.html", "command"
    )


_COUNTED: Final = (
    "decisions of this replica since it started; with a filter, the nodes that it was the first to"
    " reject"
)
_OUTCOME_NOTE: Final = (
    "Points, 0 to 100, by the policy's own scores: those of the nodes where pods were bound; lost,"
    " against the best node; against stock, or gained, against the node that the scheduler took. Of"
    " pods that were advised only is known whether they landed as meant."
)


def _problems(report: PoliciesReport) -> Iterator[str]:
    if report.last_reload_error:
        yield f"newer files are not loaded: {report.last_reload_error}"
    for refused in report.refused:
        why = f"\n{refused.message}" if refused.message else ""
        yield f"{refused.name} is not in force as it was written ({refused.reason}){why}"
    for policy in report.policies:
        if policy.outcome is not None and policy.outcome.worse:
            yield f"{policy.name}: {policy.outcome.worse}"
        yield from (f"{policy.name}: {warning}" for warning in policy.warnings)


def _row(policy: PolicyRow, *, counted: bool) -> ui.Row:
    mode: ui.Inline = policy.mode
    if audited := policy.audited:
        mode = (f"{mode}\n", ui.strong(f"set to Audit at {audited.since}"), f": {audited.reason}")
    filters = [
        f"{rule.name}: {rule.rejected_nodes:,}" if counted else rule.name
        for rule in policy.rules
        if rule.kind is RuleKind.FILTER
    ]
    scores = [f"{each.name} x {each.weight}" for each in policy.rules if each.weight]
    counts = (f"{policy.decisions.get(each, 0):,}" for each in _OUTCOMES if counted)
    return (
        ui.policy_link(policy.name),
        mode,
        policy.placed_at,
        f"{policy.priority}",
        "\n".join(filters),
        "\n".join(scores),
        *counts,
    )


def _rejections(report: PoliciesReport) -> Iterator[ui.Plot]:
    """Yield a bar for each filter that rejected nodes, the most effective first."""
    found = [
        (f"{policy.name}: {rule.name}", rule.rejected_nodes)
        for policy in report.policies
        for rule in policy.rules
        if rule.kind is RuleKind.FILTER and rule.rejected_nodes
    ]
    found.sort(key=lambda each: -each[1])
    if found:
        names, nodes = zip(*found[:_DRAWN], strict=True)
        figure = stacked_rows(names, [Bars("nodes", nodes)], x="nodes rejected")
        caption = "Nodes that each filter was the first to reject, added up over decisions"
        yield ui.Plot("turned-away", caption, figure)


def _bindings(bindings: BindingStatus) -> Iterator[ui.Block]:
    yield ui.Paragraph("At bindings", "heading")
    if bindings.paused:
        yield ui.Paragraph(f"no pod is moved just now: {bindings.paused}", "problem")
    counts = {
        "Kept": bindings.kept,
        "Moved": bindings.moved,
        "Denied": bindings.denied,
        "Escaped": bindings.escaped,
        "Answers lost": bindings.lost,
    }
    yield ui.Facts([(name, f"{count}") for name, count in counts.items()])
    reasons = sorted(bindings.reasons.items(), key=lambda each: -each[1])
    yield ui.Table(
        title="Bindings that this replica decided since it started, by reason",
        columns=(ui.Column("Reason"), ui.number("Bindings")),
        rows=[(reason, f"{count}") for reason, count in reasons],
    )
    yield ui.Table(
        title="Pods moved by each policy; of one in Audit mode, those that it would have moved",
        columns=(ui.Column("Policy"), ui.number("Moved")),
        rows=[(name, f"{count}") for name, count in bindings.moved_by.items()],
    )


def policy_page(policy: PolicyRow, thresholds: Sequence[Threshold], *, counted: bool) -> Page:
    """Return the page of a policy.

    Args:
        policy: the policy.
        thresholds: of its filters.
        counted: whether decisions are counted: nobody does in a recording.
    """
    rules = _rules_of(policy, thresholds, counted=counted)
    blocks = [*_policy(policy, counted=counted), ui.Paragraph("Rules", "heading"), rules]
    return page_of("policy", f"Policy {policy.name}", blocks)


def _policy(policy: PolicyRow, *, counted: bool) -> Iterator[ui.Block]:
    problems = [*policy.warnings]
    if policy.audited:
        problems.insert(0, f"set to Audit at {policy.audited.since}: {policy.audited.reason}")
    if policy.outcome and policy.outcome.worse:
        problems.insert(0, policy.outcome.worse)
    yield from (ui.Paragraph(text, "problem") for text in problems)
    facts: list[tuple[str, ui.Inline]] = [
        ("Mode", policy.mode),
        ("Decides at", policy.placed_at),
        ("Priority", f"{policy.priority}"),
    ]
    facts += (
        (outcome.capitalize(), f"{policy.decisions.get(outcome, 0):,}")
        for outcome in (_OUTCOMES if counted else ())
    )
    yield ui.Facts(facts)
    yield ui.Paragraph("Its effect", "heading")
    figures = None if policy.outcome is None else policy.outcome.total
    if figures is None or not figures.pods:
        yield from _without_outcome(policy.name)
        return
    rejected = f"{figures.rejected:,}" if figures.decided else "-"
    effect: list[tuple[str, ui.Inline]] = [
        ("Pods bound", f"{figures.pods:,}"),
        ("Where meant", f"{ui.percent(figures.landed, figures.pods)} %"),
        ("Points gained against the stock scheduler", ui.points(figures.mean_gained, signed=True)),
        ("Points lost against the best node", ui.points(figures.mean_lost)),
        ("On nodes that its filters reject", rejected),
    ]
    if figures.measured:
        hot = (f"{figures.stock_hot:,} ", ui.ARROW, f" {figures.hot:,}")
        effect.append(("Pods on hot nodes: stock scheduler, now", hot))
    yield ui.Facts(effect)
    if policy.mode == "Audit":
        yield ui.Paragraph("It is in Audit mode: this is what would have been.", "quiet")


def _rules_of(policy: PolicyRow, thresholds: Sequence[Threshold], *, counted: bool) -> ui.Table:
    rows: list[ui.Row] = []
    for rule in policy.rules:
        is_filter = rule.kind is RuleKind.FILTER
        links = [
            ui.Span(
                f"{each.resource} {each.measure} {each.percent} %",
                href=f"nodes?resource={quote(each.resource, '')}&measure={each.measure}",
            )
            for each in thresholds
            if is_filter and each.rule == rule.name
        ]
        nodes = (f"{rule.rejected_nodes:,}" if is_filter else "",) if counted else ()
        rows.append((rule.name, str(rule.kind), ui.joined(links), f"{rule.weight or ''}", *nodes))
    return ui.Table(
        title="Filters, then scores",
        note="a filter counts the nodes that it was the first to reject" if counted else "",
        columns=(
            *ui.columns("Rule", "Kind", "Thresholds"),
            ui.number("Weight"),
            *((ui.number("Nodes rejected"),) if counted else ()),
        ),
        rows=rows,
    )


# Where the pods of policies were bound, and how good that was.


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
