"""The group `policy/v1`: how many pods may be evicted."""

from __future__ import annotations

from engine.model.api.meta import LabelSelector, ObjectMeta, WireStruct


class PodDisruptionBudgetSpec(WireStruct, frozen=True):
    """The pods that a budget protects."""

    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(WireStruct, frozen=True):
    """What the controller of budgets has counted."""

    disruptions_allowed: int = 0


class PodDisruptionBudget(WireStruct, frozen=True):
    """A `policy/v1` PodDisruptionBudget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
