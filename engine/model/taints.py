"""Taints and the tolerations that tolerate them.

Source: api/core/v1/toleration.go (ToleratesTaint), component-helpers/scheduling/corev1/helpers.go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from engine.model import api
from engine.model.selectors import integer

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(toleration: api.Toleration, taint: api.Taint) -> bool:
    """Return whether one toleration tolerates one taint.

    An empty effect stands for every effect, an empty key for every key and an empty operator for
    Equal. Lt and Gt ask that the taint's value be less or greater than the toleration's, both
    64-bit integers; only clusters with that feature accept such pods.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            limit, value = integer(toleration.value), integer(taint.value)
            if limit is None or value is None:
                return False
            return value < limit if toleration.operator == "Lt" else value > limit
        case _:
            return False


def untolerated(
    taints: Iterable[api.Taint], tolerations: Iterable[api.Toleration], effects: Collection[str]
) -> list[api.Taint]:
    """Return the taints with one of `effects` that no toleration tolerates, in order."""
    return [
        taint
        for taint in taints
        if taint.effect in effects
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]
