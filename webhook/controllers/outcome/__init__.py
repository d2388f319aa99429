"""What became of decisions: where pods were bound, and what that says of policies."""

from webhook.controllers.outcome.audited_policies import AuditedPolicies
from webhook.controllers.outcome.bound_pods import BoundPods
from webhook.controllers.outcome.controller import (
    OutcomeController,
    OutcomeParts,
    OutcomeRules,
)
from webhook.controllers.outcome.metrics import OutcomeCollector
from webhook.controllers.outcome.record import AUDITED_KEY, OutcomeRecord, Recorded

__all__ = [
    "AUDITED_KEY",
    "AuditedPolicies",
    "BoundPods",
    "OutcomeCollector",
    "OutcomeController",
    "OutcomeParts",
    "OutcomeRecord",
    "OutcomeRules",
    "Recorded",
]
