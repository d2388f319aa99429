"""The filter of NodeResourcesFit."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.model import resource_names
from engine.model.pod import Pod
from engine.model.pod_shape import PodShape
from engine.model.resource_names import NATIVE, is_extended, is_scalar
from engine.model.rule_input import RuleInputs
from engine.model.rule_outcomes import FilterResult, and_not
from engine.model.shape_cache import cached_by_shape
from engine.model.time import Micros
from engine.plugins.base import NeverFaults
from engine.plugins.lib.inputs import requests_with_pod
from engine.plugins.lib.reason_codes import reason_texts, rejected_with
from engine.plugins.node_resources_fit.args import NodeResourcesFitArgs
from engine.view import BoolColumn, ClusterView, Sum, left_to_devices
from engine.view.axis import GREATEST_AMOUNT, PODS


class NodeResourcesFitFilter(NeverFaults):
    """Rejects nodes on which something the pod requests is not free, or that hold enough pods.

    An extended resource that devices may provide rejects no node but those that offer some of it.
    """

    def __init__(self, args: NodeResourcesFitArgs) -> None:
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:  # noqa: ARG002 (protocol)
        """Return PASS, or reasons: too many pods, then one per insufficient resource."""
        return rejected_with(_complaints(self._wanted(pod), view))

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the texts of the complaints in a code."""
        short = (f"Insufficient {name}" for name, _ in self._wanted(pod))
        return reason_texts(code, ["Too many pods", *short], "Insufficient extended resources")

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return the requests on the node with the pod, of its allocatable."""
        requests = {resource_names.PODS: 1, **dict(self._wanted(pod))}
        return requests_with_pod(view, Sum.REQUESTS, row, requests)

    def _wanted(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        return _wanted(pod.shape, self._ignored, self._ignored_groups)


def _complaints(wanted: Iterable[tuple[str, int]], view: ClusterView) -> list[BoolColumn]:
    """Return where there are too many pods, then where each resource falls short.

    Args:
        wanted: names, and the amount that the pod requests of each.
        view: the cluster.
    """
    requested, allocatable = view.sums[Sum.REQUESTS], view.allocatable
    complaints = [requested[PODS] >= allocatable[PODS]]
    for name, amount in wanted:
        at = view.axis.find(name)
        lacks = (
            np.ones(len(view), np.bool_) if at is None else requested[at] > allocatable[at] - amount
        )
        by_devices = left_to_devices(name, view)
        complaints.append(lacks if by_devices is None else and_not(lacks, by_devices))
    return complaints


@cached_by_shape
def _wanted(
    shape: PodShape, ignored: frozenset[str], ignored_groups: frozenset[str]
) -> tuple[tuple[str, int], ...]:
    """Return what must be free for a pod, in upstream's order, scalar resources by name."""
    requests = shape.requests
    scalars = sorted(
        name
        for name in requests.keys() - NATIVE
        if is_scalar(name)
        and not (
            is_extended(name) and (name in ignored or name.partition("/")[0] in ignored_groups)
        )
    )
    amounts = [(name, requests.get(name, 0)) for name in (*NATIVE, *scalars)]
    return tuple([(name, min(amount, GREATEST_AMOUNT)) for name, amount in amounts if amount > 0])
