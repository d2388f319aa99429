"""A decision: the nodes that fit, those that do not, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from engine.errors import counted
from engine.model.decision import Verdict
from engine.model.quantity import EPHEMERAL_STORAGE, MEMORY
from engine.report import DecisionReport, NodeNames, PodName, RuleReason
from webhook.pages import ui
from webhook.pages.figures import Bars, stacked_rows

_STYLES: Final = {
    Verdict.PLACE: ui.Style.GOOD,
    Verdict.ABSTAIN: ui.Style.DOUBT,
    Verdict.DENY: ui.Style.BAD,
}
_IN_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)
_MEBIBYTE: Final = 1 << 20
_DRAWN: Final = 10


def verdict_line(verdict: Verdict, pod: PodName, message: str) -> ui.Paragraph:
    """Return the verdict on a pod, and the reason for it."""
    return ui.Paragraph((ui.Span(str(verdict), _STYLES[verdict]), f" {pod}: {message}"))


def decision_blocks(
    report: DecisionReport, names: NodeNames, key: str = "decision", node: str = ""
) -> Iterator[ui.Block]:
    """Yield a decision.

    Args:
        report: the decision.
        names: how nodes are named.
        key: the beginning of the ids of plots.
        node: to be told of; "" for none.
    """
    yield verdict_line(report.verdict, report.pod, names.in_text(report.message))
    yield from reason_blocks(report, names, key, node)


def reason_blocks(
    report: DecisionReport, names: NodeNames, key: str = "decision", node: str = ""
) -> Iterator[ui.Block]:
    """Yield a decision without its verdict."""
    yield from _circumstances(report)
    if node:
        yield from _standing(report, names, node)
    if names.note and (report.ranking or report.rejected):
        yield ui.Paragraph(names.note, "quiet")
    if any(score.weighted for ranked in report.ranking[:_DRAWN] for score in ranked.scores):
        yield _points(report, names, f"{key}-points")
    if report.ranking:
        yield _ranking(report, names)
    for abstention in report.abstained:
        yield ui.Paragraph(f"{abstention.rule} has no effect: {names.in_text(abstention.reason)}")
    yield from _rejected(report, names)
    yield ui.Fold("Inputs of the rules", [_inputs(report, names)], in_terminal=True)
    if report.audit:
        yield ui.Paragraph("Not applied: what policies in Audit mode would have done", "heading")
        yield from decision_blocks(report.audit, names, f"{key}-audit", node)


def _circumstances(report: DecisionReport) -> Iterator[ui.Block]:
    """Yield what a decision was made by, when it is made, and what went wrong."""
    if report.policies:
        yield ui.Paragraph(("policies: ", ui.joined(map(ui.policy_link, report.policies))))
    if report.held:
        yield ui.Paragraph(
            "the pod is held before the scheduler sees it, where `stowplan serve --hold` is on"
        )
    if report.estimate:
        yield ui.Paragraph(f"expected usage: {', '.join(_amounts(report.estimate))}")
    for error in report.errors:
        yield ui.Paragraph(
            (ui.Span("could not be evaluated:", ui.Style.DOUBT), f" {error}"), "problem"
        )


def _standing(report: DecisionReport, names: NodeNames, node: str) -> Iterator[ui.Block]:
    """Yield what the decision says of a node."""
    rank, behind, reasons = 0, 0, report.rejected.get(node, ())
    if report.standing is not None and report.standing.node == node:
        standing = report.standing
        rank, behind, reasons = standing.rank, standing.behind, standing.rejected
    else:
        for place, ranked in enumerate(report.ranking, 1):
            if ranked.node == node:
                rank, behind = place, report.ranking[0].total - ranked.total
    name = ui.strong(names.short(node))
    if rank == 1:
        yield ui.Paragraph((name, " is the best node."))
    elif rank:
        text = f" fits: {counted(behind, 'point')} behind the best, number {rank} of"
        yield ui.Paragraph((name, f"{text} {report.candidates}."))
    elif reasons:
        yield ui.Paragraph((name, " was rejected:"))
        yield ui.Listing([_reason(names, each) for each in reasons])
    else:
        yield ui.Paragraph((name, " is not among the nodes that are listed."))


def _points(report: DecisionReport, names: NodeNames, plot: str) -> ui.Plot:
    """Return the points of the best nodes, rule by rule."""
    best = report.ranking[:_DRAWN]
    bars = [
        Bars(
            score.rule if score.policy else f"scheduler: {score.rule}",
            [ranked.scores[i].weighted for ranked in best],
        )
        for i, score in enumerate(best[0].scores)
    ]
    figure = stacked_rows([names.short(ranked.node) for ranked in best], bars, x="points")
    return ui.Plot(plot, "Points of the best nodes, rule by rule", figure)


def _ranking(report: DecisionReport, names: NodeNames) -> ui.Table:
    """Return the candidates, best first: their points by rule, and the sum."""
    several = len(report.policies) > 1
    without_effect = {(each.policy, each.rule) for each in report.abstained}
    first = report.ranking[0].scores
    shown = [
        i
        for i, score in enumerate(first)
        if (score.policy, score.rule) not in without_effect
        or any(ranked.scores[i].weighted for ranked in report.ranking)
    ]
    rules = []
    for score in (first[i] for i in shown):
        policy = f"{score.policy or 'scheduler'}\n" if several or not score.policy else ""
        rules.append(ui.number(f"{policy}{score.rule} x {score.weight}"))
    rows: list[ui.Row] = [
        (
            ui.node_link(ranked.node, names),
            ui.strong(ranked.total),
            *(
                (f"{score.weighted} ", ui.quiet(f"({_raw(score.raw)})"))
                for score in (ranked.scores[i] for i in shown)
            ),
        )
        for ranked in report.ranking
    ]
    return ui.Table(
        title=(ui.strong(f"{report.candidates} of {report.nodes} nodes fit"), ", best first"),
        columns=(ui.name_column("node"), ui.number("total"), *rules),
        rows=[*rows, *_rest(report.candidates - len(rows))],
        note="points from 0 to 100 x weight, and (the raw score)" if rules else "",
    )


def _rejected(report: DecisionReport, names: NodeNames) -> Iterator[ui.Block]:
    """Yield the rejected nodes, each with every rule that rejected it."""
    total = sum(count.nodes for count in report.rejected_by)
    by_rule = ui.Table(
        title=(ui.strong(f"{total} left out"), ", by the first rule that rejected them"),
        columns=(
            ui.name_column("rule"),
            ui.number("nodes"),
            ui.Column("policy"),
            ui.Column("reason", ui.Kind.PROSE),
        ),
        rows=[
            (each.rule, f"{each.nodes}", each.policy, names.in_text(each.reason))
            for each in report.rejected_by
        ],
    )
    if not report.rejected:
        yield by_rule
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, rejections in report.rejected.items():
        alike.setdefault(tuple(map(partial(_reason, names), rejections)), []).append(node)
    yield ui.Paragraph(f"{counted(total, 'node')} left out", "heading")
    yield ui.Listing(
        [
            ("\n".join(reasons), "\n", ui.joined(ui.node_link(node, names) for node in nodes))
            for reasons, nodes in alike.items()
        ]
    )
    more = total - len(report.rejected)
    yield ui.Paragraph(f"... and {more:,} more" if more else "", "quiet")
    yield ui.Fold("By the first rule that rejected them", [by_rule])


def _reason(names: NodeNames, by: RuleReason) -> str:
    return f"{by.rule} of {by.policy}: {names.in_text(by.reason)}"


def _inputs(report: DecisionReport, names: NodeNames) -> ui.Table:
    """Return the inputs of rules for the first nodes."""
    several = len(report.policies) > 1
    rows: list[ui.Row] = []
    for node, rules in (report.inputs or {}).items():
        counts = Counter((rule.policy, rule.rule) for rule in rules)
        for i, rule in enumerate(rules):
            inputs = "\n".join(f"{value.name}: {value.describe()}" for value in rule.inputs)
            policy = [rule.policy] if several else []
            is_twice = counts[rule.policy, rule.rule] > 1
            name = f"{rule.rule} ({rule.kind})" if is_twice else rule.rule
            rows.append(
                (None if i else ui.node_link(node, names), *policy, name, names.in_text(inputs))
            )
    policy_column = ui.columns("policy") if several else ()
    return ui.Table(
        columns=(ui.name_column("node"), *policy_column, *ui.columns("rule", "inputs")),
        rows=rows,
    )


def _rest(count: int) -> Sequence[ui.Row]:
    return [(ui.quiet(f"... and {count} more"),)] if count > 0 else []


def _raw(score: float) -> str:
    return str(score) if isinstance(score, int) else f"{score:.3g}"


def _amounts(estimate: Mapping[str, str]) -> Iterable[str]:
    """Yield amounts; an estimate in bytes is rounded to MiB."""
    for name, amount in estimate.items():
        bytes_ = int(amount) if name in _IN_BYTES and amount.isdigit() else 0
        yield f"{name} {f'{bytes_ // _MEBIBYTE}Mi' if bytes_ >= _MEBIBYTE else amount}"
