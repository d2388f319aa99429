"""The page of a pod: why here, and why not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.report import DecisionReport, NodeNames, PodReport, PodsReport, RuleReason
from webhook.pages.document import Figure, Page, Query, linked, part_of, render, text_of
from webhook.pages.figures import Bars, stacked_rows

_RANKED: Final = 20
_DRAWN: Final = 10
_REJECTED: Final = 50
_LISTED: Final = 100


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a decision says of the node that a reader asks about."""

    node: str
    rank: int = 0  # 1 for the best, 0 if the node is no candidate, or beyond those that are listed
    points_behind: int = 0  # its points less than those of the best
    reasons: Sequence[RuleReason] = ()  # why it was rejected


@dataclass(frozen=True, slots=True)
class _Section:
    """One decision on the page, with what is listed of it."""

    key: str  # the beginning of the ids of its elements
    title: str
    decision: DecisionReport
    answer: _Answer | None

    @property
    def ranking(self) -> Sequence[object]:
        return self.decision.ranking[:_RANKED]

    @property
    def rejected(self) -> Sequence[tuple[str, Sequence[RuleReason]]]:
        return tuple(self.decision.rejected.items())[:_REJECTED]

    @property
    def rejected_nodes(self) -> int:
        return sum(summary.nodes for summary in self.decision.rejected_by)


def pod_page(report: PodReport | None, query: Query) -> Page:
    """Return the page of a pod.

    Args:
        report: the pod and the decisions for it; None if no pod is chosen.
        query: `namespace` and `name` of the pod, `node` to be told of.
    """
    node = text_of(query, "node")
    sections = [] if report is None else list(_sections(report, node))
    names = _names(report)
    figures = {
        f"{section.key}-points": _points(section.decision, names)
        for section in sections
        if _has_points(section.decision)
    }
    return Page(
        name="pod",
        title="Pod" if report is None else f"Pod {report.pod}",
        body=render(
            "pod.html",
            report=report,
            namespace=text_of(query, "namespace"),
            name=text_of(query, "name"),
            node=node,
            names=names,
            sections=sections,
            drawn=figures,
        ),
        figures=figures,
    )


def pods_page(report: PodsReport, query: Query) -> Page:
    """Return the page to choose a pod on.

    Args:
        report: the pods to choose from.
        query: `namespace`, `name` (a part of it), `part`.
    """
    choice = {key: text_of(query, key) for key in ("namespace", "name")}
    return Page(
        name="pod",
        title="Pod",
        body=render(
            "pods.html",
            report=report,
            **choice,
            suggested=sorted({each.pod.name for each in report.pods}),
            names=NodeNames.of({each.node for each in report.pods if each.node}),
            part=part_of(report.pods, query, _LISTED),
            link=linked(choice),
        ),
    )


def _names(report: PodReport | None) -> NodeNames:
    """Return how the nodes that a report names are named."""
    if report is None:
        return NodeNames()
    decisions = [each for each in (report.recorded, report.now) if each is not None]
    found = {report.node, report.expected_node} - {""}
    for decision in decisions:
        found.update(ranked.node for ranked in decision.ranking)
        found.update(decision.rejected)
    return NodeNames.of(found)


def _sections(report: PodReport, node: str) -> Iterator[_Section]:
    """Yield each decision, followed by what policies in Audit mode would have done."""
    titles: Mapping[str, tuple[str, DecisionReport | None]] = {
        "recorded": ("When it was decided", report.recorded),
        "now": ("If it were decided now", report.now),
    }
    for key, (title, decision) in titles.items():
        if decision is None:
            continue
        yield _Section(key, title, decision, _answer(decision, node))
        if decision.audit is not None:
            audit = decision.audit
            what = f"{title}: policies in Audit mode, not applied"
            yield _Section(f"{key}-audit", what, audit, _answer(audit, node))


def _answer(decision: DecisionReport, node: str) -> _Answer | None:
    standing = decision.standing
    if standing is not None and standing.node == node:
        return _Answer(node, standing.rank, standing.behind, standing.rejected)
    if not node:
        return None
    for rank, ranked in enumerate(decision.ranking, 1):
        if ranked.node == node:
            return _Answer(node, rank, decision.ranking[0].total - ranked.total)
    return _Answer(node, reasons=decision.rejected.get(node, ()))


def _has_points(decision: DecisionReport) -> bool:
    return any(score.weighted for ranked in decision.ranking[:_DRAWN] for score in ranked.scores)


def _points(decision: DecisionReport, names: NodeNames) -> Figure:
    """Return the points of the best nodes, rule by rule."""
    best = decision.ranking[:_DRAWN]
    bars = [
        Bars(
            score.rule if score.policy else f"scheduler: {score.rule}",
            [ranked.scores[i].weighted for ranked in best],
        )
        for i, score in enumerate(best[0].scores)
    ]
    return stacked_rows([names.short(ranked.node) for ranked in best], bars, x="points")
