"""The document of a plan that moves running pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.errors import counted
from engine.report import NodeNames, RepackAim, RepackGoal, RepackReport, RepackStep
from webhook.pages import ui

_MOST_STEPS = 100
_MOST_PODS = 10
_AIMS = {
    RepackAim.KEPT: "running pods of priority {} that keep a node",
    RepackAim.PLACED: "waiting pods of priority {} that get a node",
    RepackAim.FREE: "free nodes",
    RepackAim.LEAVING: "running pods that leave their node",
}


def repack_blocks(report: RepackReport) -> Iterator[ui.Block]:
    """Yield what was asked about, the steps, and how far the plan is from what is possible."""
    names = NodeNames.of(report.nodes)
    waiting, nodes = counted(report.waiting, "waiting pod"), counted(len(report.nodes), "node")
    yield ui.Paragraph(
        (ui.strong(waiting), " on ", ui.strong(nodes), f", recorded {report.recorded_at}")
    )
    for answer in report.answers:
        yield ui.Paragraph(ui.strong(answer))
    if names.note:
        yield ui.Paragraph(names.note, "quiet")
    if report.steps:
        yield ui.Paragraph("Steps in order", "heading")
        yield _steps(report, names)
    if report.free_nodes:
        free = [names.short(each) for each in report.free_nodes]
        yield ui.Paragraph((ui.strong("Free"), f": {_few(free)}"))
    if report.unplaced:
        unplaced = [str(each) for each in report.unplaced]
        yield ui.Paragraph((ui.strong("Still waiting"), f": {_few(unplaced)}"))
    yield ui.Table(
        columns=ui.columns("goals in order", "found", "bound"),
        rows=[
            (_AIMS[goal.aim].format(goal.priority), f"{goal.found:,}", _bound(goal))
            for goal in report.goals
        ],
    )
    if report.staying:
        yield ui.Paragraph("Running pods that are not moved", "heading")
        rows = [(f"{pods:,}", why.value) for why, pods in report.staying.items()]
        yield ui.Table(columns=ui.columns("pods", "why"), rows=rows)
    yield ui.Paragraph("How to read this", "heading")
    yield ui.Listing(report.notes)


def _steps(report: RepackReport, names: NodeNames) -> ui.Table:
    comes_back = {step.pod for step in report.steps if step.target}

    def target(step: RepackStep) -> ui.Inline:
        """Return a node, or why a pod that leaves goes to none at once."""
        if step.target:
            return names.short(step.target)
        return ui.quiet("a later step") if step.pod in comes_back else ui.bad("waits")

    return ui.Table(
        columns=ui.columns("", "pod", "priority", "from", "to"),
        rows=[
            (
                str(number),
                str(step.pod),
                f"{step.priority:,}",
                names.short(step.source) if step.source else ui.quiet("waits"),
                target(step),
            )
            for number, step in enumerate(report.steps, 1)
        ],
        most=_MOST_STEPS,
    )


def _bound(goal: RepackGoal) -> str:
    if goal.bound is None:
        return "not known"
    if goal.bound == goal.found:
        return "best"
    return f"{'>=' if goal.aim is RepackAim.LEAVING else '<='} {goal.bound:,}"


def _few(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_PODS
    return ", ".join(texts[:_MOST_PODS]) + (f" and {more:,} more" if more > 0 else "")
