"""What limits may add up to on each node, which filter and score of LimitAware share."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from engine.model.pod import Pod
from engine.model.rule_input import RuleInput, RuleInputs, unit_of
from engine.plugins.limit_aware.args import LimitAwareArgs
from engine.plugins.limit_aware.limit_ratios import NodeRatios
from engine.view import BoolColumn, ClusterView, Domain, IntColumn, Sum

_NODES = (Domain.NODES,)

UNCHECKED: Final = 2**62
"""The capacity where a resource has no ratio: nothing exceeds it."""

Limits: TypeAlias = tuple[tuple[str, int], ...]
"""Names of resources with amounts."""


class LimitCapacity:
    """The capacity for limits, which filter and score share, and where it is unknown."""

    def __init__(self, args: LimitAwareArgs) -> None:
        ratios = args.default_limit_to_allocatable_ratio
        self._ratios = NodeRatios(ratios)
        self._key = tuple(sorted(ratios.items()))

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return why the ratios of a node are unknown."""
        return self._ratios.fault_of(view.nodes[row])

    def _limits_with_pod(
        self, view: ClusterView, row: int, sums: Sum, limits: Limits
    ) -> RuleInputs:
        """Return the sums of limits on a node with those of the pod, of the capacity for them."""
        part, inputs = view.take(np.array([row])), []
        for name, amount in limits:
            (capacity,) = self._capacity(part, name).tolist()
            if capacity != UNCHECKED:
                (others,) = part.amount(part.sums[sums], name).tolist()
                total = others + amount
                inputs.append(RuleInput(f"{name} limits", total, unit_of(name), capacity=capacity))
        return tuple(inputs)

    def _is_faulty(self, view: ClusterView) -> BoolColumn:
        """Return where the ratios of a node are unknown."""
        return view.node_column(("LimitAware faulty", self._key), _NODES, self._ratios.faulty)

    def _capacity(self, view: ClusterView, name: str) -> IntColumn:
        """Return what limits of a resource may add up to per node, UNCHECKED without a ratio."""
        covered, capacity = self._ratios.capacity(view, name)
        return np.where(covered, capacity, UNCHECKED)
