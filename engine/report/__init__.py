"""Reports: the decision for a pod, the verdict of its quotas, held pods, a replica, as data.

What belongs here: the structs behind JSON answers and terminal outputs, how they are built from a
`Decision`, and its one-line summary. What never does: rendering, a clock, or a decision. Fields are
in camelCase on the wire, in the order in which they are declared.
"""

from engine.report.decision import DecisionReport, PodName, RuleReason, decision_report
from engine.report.eta import ReleaseRates, eta_text, expected_wait
from engine.report.outcome import (
    POINT,
    RANK_BOUNDS,
    NamespaceOutcome,
    OutcomeFigures,
    OutcomeReport,
    PolicyOutcome,
    RuleOutcome,
)
from engine.report.queue import (
    QueuedPod,
    QueueEntry,
    QueueReport,
    QuotaPlace,
    ReleaserReport,
    overdue_seconds,
    place_text,
    queue_report,
)
from engine.report.quota import QuotaReport
from engine.report.status import (
    CertificateStatus,
    HeldStatus,
    PoliciesStatus,
    SourceReport,
    StatusReport,
    ViewStatus,
)
from engine.report.summary import summary

__all__ = [
    "POINT",
    "RANK_BOUNDS",
    "CertificateStatus",
    "DecisionReport",
    "HeldStatus",
    "NamespaceOutcome",
    "OutcomeFigures",
    "OutcomeReport",
    "PodName",
    "PoliciesStatus",
    "PolicyOutcome",
    "QueueEntry",
    "QueueReport",
    "QueuedPod",
    "QuotaPlace",
    "QuotaReport",
    "ReleaseRates",
    "ReleaserReport",
    "RuleOutcome",
    "RuleReason",
    "SourceReport",
    "StatusReport",
    "ViewStatus",
    "decision_report",
    "eta_text",
    "expected_wait",
    "overdue_seconds",
    "place_text",
    "queue_report",
    "summary",
]
