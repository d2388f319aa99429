"""What objects of every group have in common, as in `meta/v1`: metadata and selectors."""

from __future__ import annotations

from datetime import datetime

import msgspec

# A quantity in JSON, which may be a bare number.
Quantity = str | int | float | None

# A resource list in JSON: name to quantity.
ResourceList = dict[str, Quantity]

_MOST_DIGITS = 18  # of a resourceVersion, which is below 2**63


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, which grows with every write; 0 where it is none.

    Source: kubernetes.io, "Kubernetes API Concepts", comparison of resource versions.
    """
    is_number = resource_version.isdecimal() and len(resource_version) <= _MOST_DIGITS
    return int(resource_version) if is_number else 0


class WireStruct(
    msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, gc=False
):
    """Settings of every struct of an API object."""


class OwnerReference(WireStruct, frozen=True):
    """A reference to an owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


class ObjectMeta(WireStruct, frozen=True):
    """Standard object metadata."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    resource_version: str = ""

    @property
    def version(self) -> int:
        """The resourceVersion as a number; see `version_number`."""
        return version_number(self.resource_version)


class SelectorRequirement(WireStruct, frozen=True):
    """One requirement of a node selector term or of a label selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(WireStruct, frozen=True):
    """A selector of namespaces or objects by their labels; an empty one selects everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[SelectorRequirement] | None = None


class Present(WireStruct, frozen=True):
    """An object of which only matters that it is there."""
