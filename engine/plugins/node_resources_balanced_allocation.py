"""NodeResourcesBalancedAllocation: prefer nodes whose resources would be used evenly.

Source: pkg/scheduler/framework/plugins/noderesources/{balanced_allocation,resource_allocation}.go.
Let f be the share of each resource that is requested, at most 1, and std their deviation: half the
difference of two, the population's standard deviation of more, 0 of one. The balance of a node is
`(1 - std) * 100`, truncated. Up to Kubernetes 1.35 the score is the balance with the pod. From 1.36
on it is how much the pod improves the balance, `50 + (50 + with - without) / 2`, which is 75 for a
pod that changes nothing. Both lie in 50..100.

Differences from upstream:

- **Empty lists**: with an explicit empty list of resources nothing is scored. Upstream's
  configuration inserts its defaults.
- **`kubernetesVersion`** chooses the formula. It is not among upstream's args.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, Field, ValidationError, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from engine.model.pod import Pod
from engine.model.quantity import CPU, MEMORY, NATIVE, is_scalar
from engine.model.rule_outcomes import RuleInputs
from engine.plugins.base import MAX_SCORE, Args, Cycle, Plugin, ResourceName, Score, Scores
from engine.plugins.lib.arithmetic import FloatColumn
from engine.plugins.lib.reporting import requests_with_pod
from engine.view import GREATEST_AMOUNT, BoolColumn, ClusterView, Domain, IntColumn, Sum

_NODES_AND_PODS = (Domain.NODES, Domain.PODS)
_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:[.+-].*)?", re.ASCII)
_FIRST_BY_CHANGE: Final = (1, 36)
_TWO: Final = 2


def _one(weight: int) -> int:
    if weight != 1:
        raise ValueError("must be 1")
    return weight


def _version(text: str) -> str:
    if _VERSION.fullmatch(text) is None:
        raise ValueError(f"`{text}` is not a version of Kubernetes, as `1.36`")
    return text


class BalancedResource(Args):
    """A resource that counts; all count the same."""

    name: ResourceName
    weight: Annotated[int, Field(strict=True), AfterValidator(_one)] = 1


class NodeResourcesBalancedAllocationArgs(Args):
    """NodeResourcesBalancedAllocationArgs, and whose formula to use.

    Attributes:
        resources: cpu, memory, ephemeral-storage or a scalar resource each, no two the same.
        kubernetes_version: of the scheduler whose scores are wanted. Not among upstream's.
    """

    resources: tuple[BalancedResource, ...] = (
        BalancedResource(name=CPU),
        BalancedResource(name=MEMORY),
    )
    kubernetes_version: Annotated[str, AfterValidator(_version)] = "1.36"

    @field_validator("resources")
    @classmethod
    def _are_different(
        cls, resources: tuple[BalancedResource, ...]
    ) -> tuple[BalancedResource, ...]:
        names = [resource.name for resource in resources]
        twice = [i for i, name in enumerate(names) if name in names[:i]]
        if twice:
            raise ValidationError.from_exception_data(cls.__name__, [_duplicate(i) for i in twice])
        return resources

    @property
    def scores_the_change(self) -> bool:
        """Whether the formula is the one that compares with and without the pod."""
        version = _VERSION.fullmatch(self.kubernetes_version)
        assert version is not None  # noqa: S101 - INVARIANT: validated
        return (int(version[1]), int(version[2])) >= _FIRST_BY_CHANGE


def _duplicate(index: int) -> InitErrorDetails:
    error = PydanticCustomError("duplicate", "duplicate value")
    return InitErrorDetails(type=error, loc=(index, "name"), input=None)


class NodeResourcesBalancedAllocationScore(Score):
    """Scores nodes by how evenly their resources would be requested."""

    def __init__(self, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._names = tuple(resource.name for resource in args.resources)
        self._scores_the_change = args.scores_the_change

    def score(self, cycle: Cycle) -> Scores:
        """Return 50..100; 0 for a pod that requests nothing, a fault if no resource is named."""
        view = cycle.view
        if not self._names:
            return Scores(np.zeros(len(view), np.int64), np.ones(len(view), np.bool_))
        if self.skips(cycle.pod):
            return Scores(np.zeros(len(view), np.int64))
        counted = self._counted(cycle.pod)
        points = view.pod_column(
            (self, counted), _NODES_AND_PODS, lambda rows: self._points(rows, counted)
        )
        return Scores(points)

    def _points(self, view: ClusterView, counted: Sequence[tuple[str, int]]) -> IntColumn:
        """Return the scores by the resources that count, as `_counted` gives them."""
        names = tuple(name for name, _ in counted)
        own = np.array([[amount] for _, amount in counted], np.int64).reshape(-1, 1)
        allocatable = view.amounts(view.allocatable, names)
        offered = allocatable > 0
        requested = view.amounts(view.sums[Sum.REQUESTS], names)
        balance = _balance(requested + own, allocatable, offered)
        if self._scores_the_change:
            half = MAX_SCORE // 2
            gain = balance - _balance(requested, allocatable, offered)
            balance = half + (half + gain) // 2  # never negative, so `//` truncates as Go does
        return balance

    def fault(self, cycle: Cycle, row: int) -> str:
        return "resources not found"

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        requests = {} if self.skips(cycle.pod) else dict(self._counted(cycle.pod))
        return requests_with_pod(cycle.view, Sum.REQUESTS, row, requests)

    def skips(self, pod: Pod) -> bool:
        """Return whether a pod requests none of the resources, and so gets no points anywhere.

        Otherwise such pods would all go to the one node that is balanced best.
        """
        return not any(pod.shape.requests.get(name) for name in self._names)

    def _counted(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        """Return the resources that count for a pod, and its own requests of them.

        Scalar resources that it does not request do not.
        """
        requests = pod.shape.requests
        return tuple(
            (name, min(requests.get(name, 0), GREATEST_AMOUNT))
            for name in self._names
            if name in NATIVE or (requests.get(name) and is_scalar(name))
        )


def _balance(requested: IntColumn, allocatable: IntColumn, offered: BoolColumn) -> IntColumn:
    """Return the balance of each node, 0..100, shape (n,).

    Args:
        requested: (n_resources, n).
        allocatable: (n_resources, n).
        offered: (n_resources, n), where a resource counts.
    """
    # A pod that is still to be validated may request less than nothing.
    shares = np.clip(requested / np.maximum(allocatable, 1), 0, 1)
    shares *= offered
    return ((1 - _deviation(shares, offered)) * MAX_SCORE).astype(np.int64)


def _deviation(shares: FloatColumn, offered: BoolColumn) -> FloatColumn:
    """Return the deviation of the shares of each node, shape (n,).

    To the last bit as upstream, for it is truncated next: sums go resource by resource, in order,
    and two shares differ by the greater less the smaller, whichever comes first.
    """
    count = offered.sum(axis=0)
    lowest = np.where(offered, shares, 1).min(axis=0, initial=1)
    halved = (shares.max(axis=0, initial=0) - lowest) / 2
    deviation = np.where(count == _TWO, halved, 0)
    if len(shares) > _TWO:
        number = np.maximum(count, 1)
        squares = np.where(offered, shares - shares.sum(axis=0) / number, 0) ** 2
        deviation = np.where(count > _TWO, np.sqrt(squares.sum(axis=0) / number), deviation)
    return deviation


PLUGIN = Plugin(
    args=NodeResourcesBalancedAllocationArgs,
    score=NodeResourcesBalancedAllocationScore,
    reads=_NODES_AND_PODS,
)
