"""The release of gangs: all members that must run together, or none.

What belongs here: the steps from held members to bound ones, what becomes of a gang that fails on
the way, and what it tells. What never does: which pods are a gang (`engine.gang`), where they go
(`engine.batch`), and the queue that they stand in (`webhook.controllers.release`).
"""

from webhook.controllers.gang.controller import GangController
from webhook.controllers.gang.gang_context import GangContext
from webhook.controllers.gang.gang_outcome import (
    GangCollector,
    GangEvents,
    GangMetrics,
    GangOutcome,
    GangState,
)

__all__ = [
    "GangCollector",
    "GangContext",
    "GangController",
    "GangEvents",
    "GangMetrics",
    "GangOutcome",
    "GangState",
]
