"""Reports: the decision for a pod, quotas, held pods, a replica, a simulation, as data.

What belongs here: the structs behind JSON answers and terminal outputs, how they are built from a
`Decision`, and its one-line summary. What never does: rendering, a clock, or a decision. Fields are
in camelCase on the wire, in the order in which they are declared.
"""

from engine.report.decision import DecisionReport, PodName, RuleReason, decision_report
from engine.report.eta import ReleaseRates, eta_text, expected_wait
from engine.report.pod import PodReport
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
from engine.report.quotas import QuotaAmount, QuotaRow, QuotasReport
from engine.report.simulation import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    Measure,
    NodeLevels,
    PodFate,
    PodOutcome,
    RuleRejections,
    Sample,
    SimulatedCluster,
    SimulationReport,
    Spread,
    UnplacedReason,
    Victim,
)
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
    "ArmPlacement",
    "ArmReport",
    "ArrivalSource",
    "ArrivalsSummary",
    "CertificateStatus",
    "DecisionReport",
    "HeldStatus",
    "Measure",
    "NodeLevels",
    "PodFate",
    "PodName",
    "PodOutcome",
    "PodReport",
    "PoliciesStatus",
    "QueueEntry",
    "QueueReport",
    "QueuedPod",
    "QuotaAmount",
    "QuotaPlace",
    "QuotaReport",
    "QuotaRow",
    "QuotasReport",
    "ReleaseRates",
    "ReleaserReport",
    "RuleReason",
    "RuleRejections",
    "Sample",
    "SimulatedCluster",
    "SimulationReport",
    "SourceReport",
    "Spread",
    "StatusReport",
    "UnplacedReason",
    "Victim",
    "ViewStatus",
    "decision_report",
    "eta_text",
    "expected_wait",
    "overdue_seconds",
    "place_text",
    "queue_report",
    "summary",
]
