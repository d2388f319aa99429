"""The page of a pod: why here, and why not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from engine.errors import counted
from engine.report import DecisionReport, NodeNames, PodReport, PodsReport
from webhook.pages import ui
from webhook.pages.decision import decision_blocks
from webhook.pages.document import Page, Query, page_of, part_of, text_of

_LISTED: Final = 100
_ALL_PODS: Final = ui.Span("show all", href="pod")


def pod_page(report: PodReport | None, query: Query, nodes: Sequence[str] = ()) -> Page:
    """Return the page of a pod.

    Args:
        report: the pod and the decisions for it; None if no pod is chosen.
        query: `namespace` and `name` of the pod, `node` to be told of.
        nodes: names to choose from.
    """
    node = text_of(query, "node")
    namespace, name = text_of(query, "namespace"), text_of(query, "name")
    fields = (
        ui.Field("namespace", namespace, "Namespace", "any"),
        ui.Field("name", name, "Name", "or a part of it"),
        ui.Field("node", node, "Why not on node", "any", suggested=nodes),
    )
    if report is None:
        text = "Name a pod, or a namespace to choose one of its pods: you see why it is where it is"
        shown: list[ui.Block] = [ui.Paragraph(f"{text}, and why not elsewhere.")]
    else:
        shown = [*_pod(report, node)]
    title = "Pods" if report is None else f"Pod {report.pod}"
    return page_of("pod", title, [ui.Form(fields, "Explain"), *shown])


def _pod(report: PodReport, node: str) -> Iterator[ui.Block]:
    names, binding = _names(report), report.binding
    facts: list[tuple[str, ui.Inline]] = [("Node", ui.node_link(report.node, names) or "none yet")]
    if binding is not None:
        link = ui.node_link(binding.scheduler_node, names)
        facts.append(("Scheduler's node", link))
        facts.append(("At its binding", f"{binding.action}: {binding.reason}"))
    if report.expected_node:
        link = ui.node_link(report.expected_node, names)
        facts.append(("Expected on", link))
    if report.is_held:
        facts.append(("Held", "yes"))
    yield ui.Facts(facts)
    if binding is not None:
        yield ui.Paragraph(f"Decided at its binding: {binding.message}")
    elif report.noted:
        yield ui.Paragraph(f"Noted on the pod: {report.noted}")
    if report.problem:
        yield ui.Paragraph(report.problem, "problem")
    if report.recorded is None and report.now is None:
        yield ui.Paragraph("No decision for this pod is remembered.")
    decisions = (
        ("recorded", "When it was decided", report.recorded),
        ("now", "If it were decided now", report.now),
    )
    for key, title, decision in decisions:
        if decision is not None:
            yield ui.Paragraph(title, "heading")
            of = node or (report.node if _tells_of(decision, report.node) else "")
            yield from decision_blocks(decision, names, key, of)
            yield ui.Paragraph(f"Decided at {ui.moment_text(decision.decided_at)}.", "quiet")


def _tells_of(decision: DecisionReport, node: str) -> bool:
    listed = {*decision.rejected, *(ranked.node for ranked in decision.ranking)}
    return decision.standing is not None or node in listed


def _names(report: PodReport) -> NodeNames:
    """Return how the nodes that a report names are named."""
    found = {report.node, report.expected_node} - {""}
    for decision in (report.recorded, report.now):
        if decision is not None:
            found.update(ranked.node for ranked in decision.ranking)
            found.update(decision.rejected)
    return NodeNames.of(found)


def pods_page(report: PodsReport, query: Query) -> Page:
    """Return the page to choose a pod on.

    Args:
        report: the pods to choose from.
        query: `namespace`, `name` (a part of it), `part`.
    """
    choice = {key: text_of(query, key) for key in ("namespace", "name")}
    namespace, name = choice["namespace"], choice["name"]
    names = NodeNames.of({each.node for each in report.pods if each.node})
    part = part_of(report.pods, query, _LISTED)
    suggested = sorted({each.pod.name for each in report.pods})
    fields = (
        ui.Field("namespace", namespace, "Namespace", "any", suggested=report.namespaces),
        ui.Field("name", name, "Name", "or a part of it", suggested=suggested),
    )
    title = counted(report.total, "pod")
    title += f" of {namespace}" if namespace else ""
    title += f" with {name}" if name else ""
    if len(report.pods) < report.total:
        title += f", the first {len(report.pods)}"
    return page_of(
        "pod",
        "Pods",
        [
            ui.Form(fields, "Find"),
            ui.Paragraph("Choose a pod: you see why it is where it is, and why not elsewhere."),
            ui.Table(
                title=title,
                columns=(ui.name_column("Pod"), ui.name_column("Node")),
                rows=[
                    (ui.pod_link(each.pod), ui.node_link(each.node, names) or ui.quiet("none yet"))
                    for each in part.items
                ],
                note=names.note,
                empty=("No such pod: leave a field empty to find more, or ", _ALL_PODS, "."),
            ),
            part.links(choice),
        ],
    )
