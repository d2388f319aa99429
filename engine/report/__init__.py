"""Reports: the decision for a pod, quotas, held pods, a replica, a simulation, as data.

What belongs here: the structs behind JSON answers and terminal outputs, how they are built from a
`Decision`, and its one-line summary. What never does: rendering, a clock, or a decision. Fields are
in camelCase on the wire, in the order in which they are declared.
"""

from engine.model.measure import Measure
from engine.report.answer import answers, arms_of_policies, spread_of
from engine.report.decision import (
    BindingReport,
    DecisionReport,
    NodeStanding,
    PodName,
    RuleKind,
    RuleReason,
)
from engine.report.eta import ReleaseRates, eta_text, expected_wait
from engine.report.excerpt import DecisionExcerpt, binding_excerpt, decision_report, excerpt_of
from engine.report.node_names import NodeNames
from engine.report.nodes import (
    NodesReport,
    ResourceColumns,
    Threshold,
    nodes_report,
    thresholds_of,
)
from engine.report.outcome import (
    POINT,
    RANK_BOUNDS,
    AuditedPolicy,
    NamespaceOutcome,
    OutcomeFigures,
    OutcomeReport,
    PolicyOutcome,
    RuleOutcome,
)
from engine.report.pod import PodReport
from engine.report.pods import (
    FoundPod,
    NodeReport,
    PodOnNode,
    PodsReport,
    node_report,
    pods_report,
)
from engine.report.policies import (
    PoliciesReport,
    PolicyRow,
    RefusedPolicy,
    RuleRow,
    policies_report,
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
from engine.report.quotas import QuotaAmount, QuotaRow, QuotasReport
from engine.report.replicas import Crowd, Replicas, owner_of
from engine.report.simulation import (
    ArmPlacement,
    ArmReport,
    ArrivalSource,
    ArrivalsSummary,
    BindingCounts,
    NodeLevels,
    NodeTime,
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
    BindingStatus,
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
    "ArmPlacement",
    "ArmReport",
    "ArrivalSource",
    "ArrivalsSummary",
    "AuditedPolicy",
    "BindingCounts",
    "BindingReport",
    "BindingStatus",
    "CertificateStatus",
    "Crowd",
    "DecisionExcerpt",
    "DecisionReport",
    "FoundPod",
    "HeldStatus",
    "Measure",
    "NamespaceOutcome",
    "NodeLevels",
    "NodeNames",
    "NodeReport",
    "NodeStanding",
    "NodeTime",
    "NodesReport",
    "OutcomeFigures",
    "OutcomeReport",
    "PodFate",
    "PodName",
    "PodOnNode",
    "PodOutcome",
    "PodReport",
    "PodsReport",
    "PoliciesReport",
    "PoliciesStatus",
    "PolicyOutcome",
    "PolicyRow",
    "QueueEntry",
    "QueueReport",
    "QueuedPod",
    "QuotaAmount",
    "QuotaPlace",
    "QuotaReport",
    "QuotaRow",
    "QuotasReport",
    "RefusedPolicy",
    "ReleaseRates",
    "ReleaserReport",
    "Replicas",
    "ResourceColumns",
    "RuleKind",
    "RuleOutcome",
    "RuleReason",
    "RuleRejections",
    "RuleRow",
    "Sample",
    "SimulatedCluster",
    "SimulationReport",
    "SourceReport",
    "Spread",
    "StatusReport",
    "Threshold",
    "UnplacedReason",
    "Victim",
    "ViewStatus",
    "answers",
    "arms_of_policies",
    "binding_excerpt",
    "decision_report",
    "eta_text",
    "excerpt_of",
    "expected_wait",
    "node_report",
    "nodes_report",
    "overdue_seconds",
    "owner_of",
    "place_text",
    "pods_report",
    "policies_report",
    "queue_report",
    "spread_of",
    "summary",
    "thresholds_of",
]
