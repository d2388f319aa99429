"""Inputs that several plugins report: requests with the pod, and the age of the usage report."""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.rule_input import RuleInput, RuleInputs, Unit, unit_of
from engine.model.time import SECOND, Micros
from engine.view import ClusterView, Sum


def requests_with_pod(
    view: ClusterView, sums: Sum, row: int, requests: Mapping[str, int]
) -> RuleInputs:
    """Return the requests on a node with those of the pod, of what it offers: `cpu requests`.

    Args:
        view: the cluster.
        sums: the sums of requests that count.
        row: the node.
        requests: those of the pod, by the resources to report.
    """
    return tuple(
        RuleInput(
            f"{name} requests",
            int(view.amount(view.sums[sums], name)[row]) + amount,
            unit_of(name),
            capacity=int(view.amount(view.allocatable, name)[row]),
        )
        for name, amount in requests.items()
    )


def report_age(view: ClusterView, row: int, now: Micros) -> RuleInput:
    """Return the age of the usage report of a node."""
    if view.usages[row] is None:
        return RuleInput("report", text="none")
    reported_at = int(view.metric_time[row])
    if not reported_at:
        return RuleInput("report", text="without a time")
    return RuleInput("report", (now - reported_at) // SECOND, Unit.SECONDS)
