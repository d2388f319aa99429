"""Classes that a pod names: PriorityClass and RuntimeClass.

Source of the annotations of a PriorityClass: scheduler-plugins, pkg/preemptiontoleration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from engine.model import api
from engine.model.quantity import base_units
from engine.model.time import SECOND, Micros

PREEMPT_LOWER_PRIORITY: Final = "PreemptLowerPriority"
"""The preemptionPolicy of pods whose class names none."""

NEVER: Final = "Never"
"""The preemptionPolicy of pods for which the scheduler evicts nobody."""

MINIMUM_PRIORITY_ANNOTATION: Final = (
    "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority"
)
TOLERATION_SECONDS_ANNOTATION: Final = (
    "preemption-toleration.scheduling.x-k8s.io/toleration-seconds"
)

PREEMPTION_ANNOTATION: Final = "stowplan.dev/preemption"
"""On a class with preemptionPolicy Never: whether others are evicted for its held pods even so."""

WHILE_HELD: Final = "WhileHeld"
"""They are, by us and not by the scheduler: so tolerations and budgets hold."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PreemptionToleration:
    """For how long the pods of a class are not evicted for others."""

    minimum_preemptable_priority: int  # pods of this priority, or a higher one, evict them at once
    # for which pods of lower priority do not, from their binding; below 0, for ever
    seconds: int = 0

    def protects(self, scheduled_at: Micros | None, priority: int, now: Micros) -> bool:
        """Return whether a pod of the class may not be evicted for one of some priority."""
        if priority >= self.minimum_preemptable_priority:
            return False
        if self.seconds < 0 or scheduled_at is None:
            return True
        return scheduled_at + self.seconds * SECOND > now


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A PriorityClass."""

    name: str
    # None where its annotations have mistakes, so that they protect nobody
    toleration: PreemptionToleration | None
    is_preempting: bool  # whether others may be evicted for its held pods
    value: int = 0  # the priority of its pods
    preemption_policy: str = PREEMPT_LOWER_PRIORITY  # of its pods
    is_global_default: bool = False  # whether pods that name no class are of this one
    node_name: str = ""

    @property
    def key(self) -> str:
        """Its name, which is unique."""
        return self.name


def priority_class_of(wire: api.PriorityClass) -> PriorityClass:
    annotations = wire.metadata.annotations or {}
    toleration = None
    with suppress(ValueError):  # as upstream: what cannot be read protects nobody
        toleration = toleration_of(wire.value, annotations)
    return PriorityClass(
        name=wire.metadata.name,
        toleration=toleration,
        is_preempting=(
            wire.preemption_policy != NEVER or annotations.get(PREEMPTION_ANNOTATION) == WHILE_HELD
        ),
        value=wire.value,
        preemption_policy=wire.preemption_policy or PREEMPT_LOWER_PRIORITY,
        is_global_default=wire.global_default,
    )


def toleration_of(value: int, annotations: Mapping[str, str]) -> PreemptionToleration:
    """Return what the annotations of a class of some value say."""
    minimum = annotations.get(MINIMUM_PRIORITY_ANNOTATION)
    seconds = annotations.get(TOLERATION_SECONDS_ANNOTATION)
    return PreemptionToleration(
        value + 1 if minimum is None else _integer(minimum, bits=32),
        0 if seconds is None else _integer(seconds, bits=64),
    )


def _integer(text: str, *, bits: int) -> int:
    """Return an integer as Go's strconv.ParseInt reads it in base 10."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        message = f"`{text[:64]}` is not an integer of {bits} bits"
        raise ValueError(message)
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeClass:
    """A RuntimeClass."""

    name: str
    # quantities by resource, as written; empty for none
    overhead: Mapping[str, api.Quantity] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)  # of the nodes that support it
    tolerations: tuple[api.Toleration, ...] = ()  # of its pods
    node_name: str = ""

    @property
    def key(self) -> str:
        """Its name, which is unique."""
        return self.name


def runtime_class_of(wire: api.RuntimeClass) -> RuntimeClass:
    overhead = (wire.overhead or api.Overhead()).pod_fixed or {}
    for resource, amount in overhead.items():
        base_units(resource, amount)
    scheduling = wire.scheduling or api.Scheduling()
    return RuntimeClass(
        name=wire.metadata.name,
        overhead=overhead,
        node_selector=scheduling.node_selector or {},
        tolerations=tuple(scheduling.tolerations or ()),
    )
