"""A namespace: its labels and its quota mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model import api

QUOTA_MODE_ANNOTATION = "stowplan.dev/quota-mode"
"""Annotation of a Namespace: what an exceeded quota does there (Enforce, Queue, Audit, Off)."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace.

    Attributes:
        quota_mode: text of its annotation `stowplan.dev/quota-mode`, "" without one.
    """

    name: str
    labels: Mapping[str, str]
    quota_mode: str


def namespace_of(wire: api.Namespace) -> Namespace:
    """Return the model of a Namespace."""
    meta = wire.metadata
    mode = (meta.annotations or {}).get(QUOTA_MODE_ANNOTATION, "")
    return Namespace(meta.name, meta.labels or {}, mode)
