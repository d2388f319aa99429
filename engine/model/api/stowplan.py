"""The group `stowplan.dev`: policies as the API server stores them.

Their `spec` stays as it was written: `engine.policy` checks it, with the place of each mistake.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.model.api.meta import ObjectMeta, WireStruct


class PolicyMeta(ObjectMeta, frozen=True):
    """Metadata with the number of the spec: status and metadata change without a new one."""

    generation: int = 0


class PlacementPolicy(WireStruct, frozen=True):
    """A `stowplan.dev/v1alpha1` PlacementPolicy."""

    metadata: PolicyMeta = PolicyMeta()
    spec: Any = None
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class NamespacedPlacementPolicy(PlacementPolicy, frozen=True):
    """A `stowplan.dev/v1alpha1` NamespacedPlacementPolicy."""
