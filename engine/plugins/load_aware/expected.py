"""The usage to expect of a pod on nodes, and the reports that are too old to expect anything by."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.rule_input import RuleInput, unit_of
from engine.model.shape_cache import cached_by_shape
from engine.model.time import SECOND, Micros
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.load_aware.args import LoadAwareArgs
from engine.plugins.load_aware.estimation import estimate_vector
from engine.plugins.load_aware.sums import LoadProfile
from engine.plugins.load_aware.usage import Readings
from engine.view import ClusterView, Domain, IntColumn, stale_reports

NODE_SIDE: Final = (Domain.NODES, Domain.METRICS)
"""What the parts of filter and score are made from that no pod changes."""

UNREACHABLE: Final = 2**60
"""More than any node can use."""


@cached_by_shape
def expected_usage(shape: PodShape, profile: LoadProfile) -> IntColumn:
    """Return the estimated usage of a pod by known resource, shape (n_known, 1)."""
    return np.array(estimate_vector(shape, profile), np.int64)[:, np.newaxis]


def usage_inputs(
    profile: LoadProfile, readings: Readings, part: ClusterView, pod: Pod, totals: FloatColumn
) -> dict[str, RuleInput]:
    """Return the expected usage of each known resource on the one node of `part`."""
    others = (readings.amounts + readings.added(part, profile))[:, 0].tolist()
    expected = expected_usage(pod.shape, profile)[:, 0].tolist()
    return {
        name: RuleInput(f"{name} usage", used + more, unit_of(name), capacity=total, pod=more)
        for name, used, more, total in zip(
            profile.known, others, expected, totals.astype(np.int64).tolist(), strict=True
        )
    }


def expired_rows(view: ClusterView, args: LoadAwareArgs, now: Micros) -> NDArray[np.intp]:
    """Return the rows whose report is missing, has no time, or is too old."""
    last_expired = now - args.node_metric_expiration_seconds * SECOND
    return stale_reports(view).overdue(max(last_expired, 0)).rows
