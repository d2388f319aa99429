"""Small reports for tests of pages."""

from __future__ import annotations

from engine.model.decision import RejectionSummary, Verdict
from engine.report import (
    DecisionReport,
    Measure,
    NodesReport,
    PodName,
    ResourceColumns,
    RuleReason,
    Threshold,
)
from engine.report.decision import RankedNode, RuleScore

HOSTILE = """</script><img src=x onerror="alert(1)">&'"""
"""A text that somebody may have written into a label, a name or a message."""


def nodes_of(
    usage: dict[str, int | None],
    *,
    zones: tuple[str, ...] = (),
    threshold: Threshold | None = None,
) -> NodesReport:
    """Return nodes of 1000 millicores and some usage by name; a tenth is requested of each."""
    count = len(usage)
    columns = ResourceColumns(
        allocatable=[1000] * count,
        raw_allocatable=[1000] * count,
        requests=[100] * count,
        limits=[200] * count,
        usage=list(usage.values()),
    )
    return NodesReport(
        at="2026-03-02T10:00:00+00:00",
        names=list(usage),
        zones=list(zones) or [""] * count,
        unschedulable=[False] * count,
        pods=[3] * count,
        report_age_seconds=[5] * count,
        resources={"cpu": columns},
        thresholds=() if threshold is None else (threshold,),
    )


def busy(percent: int) -> Threshold:
    """Return a threshold of cpu load."""
    return Threshold(
        measure=Measure.LOAD, resource="cpu", percent=percent, policy="calm", rule="busy"
    )


def decision(text: str = "because", *, audit: DecisionReport | None = None) -> DecisionReport:
    """Return a decision between two nodes that fit and one that does not; `text` is everywhere."""

    def ranked(node: str, points: int) -> RankedNode:
        score = RuleScore(
            policy=text, rule=text, raw=points, normalized=points, weight=2, weighted=2 * points
        )
        return RankedNode(node=node, total=2 * points, scores=(score,))

    return DecisionReport(
        pod=PodName("shop", "web"),
        verdict=Verdict.PLACE,
        message=text,
        policies=(text,),
        estimate={"cpu": "850m"},
        nodes=3,
        candidates=2,
        ranking=(ranked("node1", 90), ranked("node2", 70)),
        rejected={"node3": (RuleReason(text, text, text),)},
        rejected_by=(RejectionSummary(policy=text, rule=text, reason=text, nodes=1),),
        abstained=(RuleReason(text, text, text),),
        errors=(text,),
        decided_at="2026-03-02T10:00:00+00:00",
        view_version=7,
        age_seconds={},
        audit=audit,
    )
