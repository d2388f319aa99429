"""The model of a policy that is an object of the API, before its spec is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from engine.model import api
from engine.model.time import micros

POLICY_GROUP: Final = "stowplan.dev"
POLICY_VERSION: Final = "v1alpha1"


class PolicyKind(StrEnum):
    """The two kinds of policies."""

    CLUSTER = "PlacementPolicy"  # for pods of all namespaces
    NAMESPACED = "NamespacedPlacementPolicy"  # for pods of its own namespace

    @property
    def plural(self) -> str:
        """Its resource in paths and rights."""
        return _PLURALS[self]


_PLURALS: Final = {
    PolicyKind.CLUSTER: "placementpolicies",
    PolicyKind.NAMESPACED: "namespacedplacementpolicies",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResource:
    """A policy of the API.

    Attributes:
        kind: its kind.
        namespace: "" for a PlacementPolicy.
        name: unique in its kind and namespace.
        spec: as it was written, of whatever type; never changed.
        uid: empty if it is not stored.
        generation: the number of its spec, 0 if it is not stored.
        version: its resourceVersion, 0 if it has none.
        created: microseconds since the epoch, 0 if it is not stored.
        status: as it was last written; never changed.
    """

    kind: PolicyKind
    namespace: str = ""
    name: str
    spec: Any
    uid: str = ""
    generation: int = 0
    version: int = 0
    created: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy_name(self) -> str:
        """The name of the policy in reports, metrics and annotations."""
        return policy_name(self.namespace, self.name)

    @property
    def path(self) -> str:
        """What diagnostics name in the place of a file, such as `placementpolicies/web`."""
        return f"{self.kind.plural}/{self.policy_name}"

    @property
    def manifest(self) -> dict[str, Any]:
        """The object without what the API server adds to it."""
        metadata = {"name": self.name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        manifest = {
            "apiVersion": f"{POLICY_GROUP}/{POLICY_VERSION}",
            "kind": self.kind.value,
            "metadata": metadata,
        }
        return manifest if self.spec is None else {**manifest, "spec": self.spec}


def policy_name(namespace: str, name: str) -> str:
    """Return the name by which a policy is known, `namespace/name` of a namespaced one."""
    return f"{namespace}/{name}" if namespace else name


def policy_resource_of(wire: api.PlacementPolicy) -> PolicyResource:
    """Return the model of a policy of either kind."""
    meta = wire.metadata
    is_namespaced = isinstance(wire, api.NamespacedPlacementPolicy)
    return PolicyResource(
        kind=PolicyKind.NAMESPACED if is_namespaced else PolicyKind.CLUSTER,
        namespace=meta.namespace,
        name=meta.name,
        spec=wire.spec,
        uid=meta.uid,
        generation=meta.generation,
        version=meta.version,
        created=micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
        status=wire.status,
    )
