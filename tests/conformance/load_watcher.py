"""The cluster of a Trimaran case: nodes, pods, and the metrics that load-watcher gives of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

import msgspec

from engine.model import api
from engine.model.node import Node
from engine.model.pod import Pod, pod_of
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.plugins import Cycle
from engine.view import ClusterState
from tests.builders import node_from
from tests.conformance.cluster import NOW

if TYPE_CHECKING:
    from engine.model.resources import Amounts
    from engine.plugins.base import Plugin, Score
    from engine.view import ClusterView, IntColumn, PodSumProfile
    from tests.conformance.outcome import Json

_Metrics: TypeAlias = "Sequence[Json]"


@dataclass(frozen=True, slots=True)
class Reader:
    """How a plugin reads the metrics of one type.

    Attributes:
        pick: which of them count; of those the last of each operator.
        amount: what percent of a capacity is, in upstream's order of operations, for where points
            are cut off or rounded the last bit tells.
    """

    pick: Callable[[_Metrics], _Metrics]
    amount: Callable[[float, int], float]


def _loads(metrics: _Metrics) -> _Metrics:
    return [one for one in metrics if one.get("operator", "") in ("AVG", "Latest")]


EVERY_METRIC = Reader(lambda metrics: metrics, lambda percent, whole: percent * whole / 100)
LAST_LOAD = Reader(
    lambda metrics: _loads(metrics)[-1:], lambda percent, whole: percent / 100 * whole
)
FIRST_LOAD = Reader(lambda metrics: _loads(metrics)[:1], LAST_LOAD.amount)

_TYPES = {"CPU": "cpu", "Memory": "memory"}
_LONG_AGO = Micros(-3600 * SECOND)
"""When pods were seen of which a case does not say when."""


def cluster_of(
    case: Json, profiles: Sequence[PodSumProfile], reader: Reader = EVERY_METRIC
) -> ClusterView:
    """Return the view of a case that keeps these sums."""
    return state_of(case, profiles, reader).view()


def state_of(case: Json, profiles: Sequence[PodSumProfile], reader: Reader) -> ClusterState:
    """Return the state of the cluster of a case."""
    state = ClusterState()
    state.track_sums(profiles)
    for written in case["nodes"]:
        node = node_from(written)
        state.set_node(node)
        report = _report(case, node, reader)
        if report is not None:
            state.set_usage(report)
    for i, written in enumerate(case.get("pods", ())):
        pod = pod_of(msgspec.convert(written, api.Pod), namespace=f"namespace-{i}")
        state.set_pod(pod, seen_at=_LONG_AGO)
    return state


def placements(case: Json, plugin: Plugin, reader: Reader = EVERY_METRIC) -> dict[str, str]:
    """Return where pods go that come one after the other, each to the node with most points."""
    args = plugin.args.model_validate(case["args"])
    assert plugin.score
    rule = plugin.score(args)
    state = state_of(case, plugin.sum_profiles(args), reader)
    placed: dict[str, str] = {}
    for pod in _added(case):
        view = state.view()
        best = view.names[int(_points(rule, pod, view).argmax())]
        placed[pod.name] = best
        bound = msgspec.structs.replace(pod, node_name=best)
        state.set_pod(bound, seen_at=Micros(_window_end(case) + SECOND))
    return placed


def scores(case: Json, plugin: Plugin, reader: Reader = EVERY_METRIC) -> dict[str, int]:
    """Return the final scores of a case by node name."""
    args = plugin.args.model_validate(case["args"])
    assert plugin.score
    profiles = plugin.sum_profiles(args)
    view = cluster_of(case, profiles, reader)
    pod = pod_of(msgspec.convert(case["pod"], api.Pod), namespace="default")
    points = _points(plugin.score(args), pod, view)
    return dict(zip(view.names, points.tolist(), strict=True))


def _points(rule: Score, pod: Pod, view: ClusterView) -> IntColumn:
    return rule.normalize(rule.score(Cycle(pod, view, NOW)).values)


def _added(case: Json) -> Iterator[Pod]:
    for written in case["podsToAdd"]:
        yield pod_of(msgspec.convert(written, api.Pod), namespace="default")


def _window_end(case: Json) -> Micros:
    return Micros(case["metrics"]["window"]["end"] * SECOND)


def _report(case: Json, node: Node, reader: Reader) -> NodeUsage | None:
    """Return what load-watcher's metrics say of a node, None where there are none."""
    of_nodes = case["metrics"]["data"]["NodeMetricsMap"] or {}
    metrics = of_nodes.get(node.name, {}).get("metrics")
    if metrics is None:
        return None
    by_operator: dict[str, dict[str, float]] = {"AVG": {}, "Latest": {}, "STD": {}}
    for written, name in _TYPES.items():
        of_type = [one for one in metrics if one["type"] == written]
        for one in reader.pick(of_type):
            # Fractions of a unit, which no report has, so that no case is rounded.
            amount = reader.amount(one["value"], node.capacity.get(name, 0))
            by_operator[one.get("operator") or "Latest"][name] = amount
    exact = cast("dict[str, Amounts]", by_operator)
    return NodeUsage(
        node_name=node.name,
        update_time=_window_end(case),
        usage=exact["Latest"],
        average=exact["AVG"],
        deviation=exact["STD"],
    )
