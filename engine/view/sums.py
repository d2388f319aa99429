"""The sums that every view keeps of the pods of each node, and what one pod adds to them."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from engine.model.resource_names import PODS

if TYPE_CHECKING:
    from engine.model.pod import PodShape
    from engine.model.resources import Amounts
    from engine.view.axis import IntColumn, ResourceAxis


class Sum(IntEnum):
    """The sums kept per node over its pods; see `PodShape` for what each one counts."""

    REQUESTS = 0
    NON_ZERO_REQUESTS = 1
    LIMITS = 2
    EFFECTIVE_LIMITS = 3
    EFFECTIVE_LIMITS_NON_ZERO = 4
    CONTAINER_LIMITS = 5


def counted_requests(shape: PodShape) -> Amounts:
    """Return what a pod adds to its node's and namespace's requests: its own, and one pod."""
    return {**shape.requests, PODS: 1}


def named_resources(shape: PodShape) -> tuple[str, ...]:
    """Return the names of all resources in which a pod adds to the sums of its node."""
    amounts = (shape.requests, shape.limits, shape.effective_limits_non_zero)
    return tuple(name for each in amounts for name, amount in each.items() if amount)


def shape_vector(shape: PodShape, axis: ResourceAxis) -> IntColumn:
    """Return what a pod adds to the sums of its node, shape (len(Sum), n_resources)."""
    return np.stack(
        [
            axis.vector(counted_requests(shape)),
            axis.vector(shape.non_zero_requests),
            axis.vector(shape.limits),
            axis.vector(shape.effective_limits),
            axis.vector(shape.effective_limits_non_zero),
            axis.vector(shape.container_limits),
        ]
    )
