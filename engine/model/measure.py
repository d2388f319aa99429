"""What is measured of a node, and how much of it a filter allows."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Measure(StrEnum):
    """What is measured of a node."""

    REQUESTS = "requests"  # of its pods
    LIMITS = "limits"  # of its pods
    LOAD = "load"  # what is in use


class NodeThreshold(msgspec.Struct, frozen=True):
    """A measure in percent of the allocatable amount, above which a filter rejects nodes."""

    measure: Measure
    resource: str
    percent: int
