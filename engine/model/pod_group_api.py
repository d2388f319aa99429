"""The parts of PodGroups that are read, as msgspec structs.

Like those of `engine.model.api`, they mirror their APIs: scheduler-plugins' and Koordinator's.
"""

from __future__ import annotations

from datetime import datetime

from engine.model.api import ObjectMeta, ResourceList, WireStruct


class PodGroupSpec(WireStruct, frozen=True):
    """How many pods must run, and what they need."""

    min_member: int = 0
    min_resources: ResourceList | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(WireStruct, frozen=True):
    """What its controller has written."""

    phase: str = ""
    occupied_by: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: datetime | None = None


class PodGroup(WireStruct, frozen=True):
    """A `scheduling.x-k8s.io/v1alpha1` PodGroup."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class KoordinatorPodGroup(PodGroup, frozen=True):
    """A `scheduling.sigs.k8s.io/v1alpha1` PodGroup, another object than one of the same name."""
