"""LoadAware: its args, its estimates, its sums over pods, its filter and its score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine.model import resources
from engine.model.time import parse_duration
from engine.plugins import Cycle
from engine.plugins.load_aware.estimation import (
    LoadSums,
    Readings,
    UsageSource,
    capacity,
    deadline,
    estimate,
    windows,
)
from engine.plugins.load_aware.plugin import LoadAwareArgs, LoadAwareFilter, LoadAwareScore
from engine.view import ClusterState, Sum
from tests.builders import node_from
from tests.conformance.koordinator import (
    by_node,
    cluster_of,
    incoming,
    moment,
    now_of,
    outcome_of_filter,
    pods_of,
)
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.view import ClusterView
    from tests.conformance.outcome import Stage


def _args(case: Json) -> LoadAwareArgs:
    return LoadAwareArgs.model_validate(case["args"])


def _filter(case: Json, _: Json) -> str | None:
    args = _args(case)
    view = cluster_of(case, [args.load_profile])
    return mismatch(case["expect"]["filter"], outcome_of_filter(LoadAwareFilter(args), case, view))


def _score(case: Json, _: Json) -> str | None:
    args = _args(case)
    view = cluster_of(case, [args.load_profile])
    scores = LoadAwareScore(args).score(Cycle(incoming(case), view, now_of(case)))
    return mismatch(case["expect"]["score"], by_node(view, scores.values))


def _validate(case: Json, _: Json) -> str | None:
    try:
        _args(case)
    except ValidationError:
        return mismatch(case["expect"]["valid"], got=False)
    return mismatch(case["expect"]["valid"], got=True)


def _defaults(case: Json, _: Json) -> str | None:
    expected = case["expect"]["args"]
    got = _args(case).model_dump(by_alias=True, mode="json")
    return mismatch(expected, _listed(expected, got))


def _estimate(case: Json, _: Json) -> str | None:
    got = estimate(incoming(case).shape, _args(case).load_profile)
    expected = case["expect"]["estimate"]
    return mismatch(expected, {name: got.get(name, 0) for name in expected})


def _estimate_node(case: Json, _: Json) -> str | None:
    state = ClusterState()
    state.set_node(node_from(case["node"]))
    expected = resources.amounts(case["expect"]["allocatable"])
    amounts = capacity(state.view(), tuple(expected))[:, 0].tolist()
    return mismatch(expected, dict(zip(expected, amounts, strict=True)))


def _aggregated_usage(case: Json, _: Json) -> str | None:
    profile = _args(case).load_profile
    view = cluster_of(case, [profile])
    source = UsageSource(
        aggregation=case["aggregation_type"],
        duration_ns=parse_duration(case["aggregated_duration"]),
    )
    # Without pods the usage is the reading itself, and nothing where there is none.
    amounts = Readings.of(view, profile.known, [source]).amounts[:, 0].tolist()
    got = dict(zip(profile.known, amounts, strict=True))
    expected = case["expect"]["usage"] or dict.fromkeys(profile.known, 0)
    return mismatch(expected, {name: got.get(name, 0) for name in expected})


def _deadline(case: Json, _: Json) -> str | None:
    pod = incoming(case)
    seen_at = case.get("assumed_at", {}).get(pod.key)
    assigned_at = pod.scheduled_at
    if assigned_at is None:
        assigned_at = now_of(case) if seen_at is None else moment(seen_at)
    own_windows = windows(_args(case).load_profile, pod.shape)
    expected = case["expect"]["deadline"]
    return mismatch(
        None if expected == "none" else moment(expected),
        deadline(assigned_at, pod.initialized_at or 0, *own_windows),
    )


def _cache(case: Json, _: Json) -> str | None:
    args = _args(case)
    view = cluster_of(case, [args.load_profile])
    for node, expected in case["expect"]["cache"].items():
        got = _sums(view, args, node) | _contributors(case, args, node)
        wrong = mismatch(expected, _listed(expected, got))
        if wrong:
            return f"{node}: {wrong}"
    return None


def _sums(view: ClusterView, args: LoadAwareArgs, node: str) -> Json:
    """Return the sums of a node by their upstream names."""
    sums = LoadSums.of(view, args.load_profile)
    outside_pods = Readings.of(view, args.known, [args.production_source] * len(view)).amounts
    columns = {
        "nodeDelta": sums.node_delta,
        "nodeEstimated": sums.node_estimated,
        "prodDelta": sums.prod_delta,
        "prodUsage": sums.prod_usage + outside_pods,
    }
    known, row = args.known, view.rows[node]
    return {
        key: dict(zip(known, column[:, row].tolist(), strict=True))
        for key, column in columns.items()
    }


def _contributors(case: Json, args: LoadAwareArgs, node: str) -> Json:
    """Return which pods of a node add to which of its sums: those that do so on their own."""
    found: Json = {"assigned_pods": 0, "nodeDelta": [], "nodeEstimated": [], "prodDelta": []}
    for written, pod in zip(case["pods"], pods_of(case), strict=True):
        alone = cluster_of(case | {"pods": [written]}, [args.load_profile])
        is_there = alone.amount(alone.sums[Sum.REQUESTS], "pods")[alone.rows[node]] > 0
        found["assigned_pods"] += int(is_there and not pod.shape.reserve_pod)
        for key, sums in _sums(alone, args, node).items():
            if key in found and any(sums.values()):
                found[key].append(pod.key)
    return {key if key == "assigned_pods" else f"{key}Pods": value for key, value in found.items()}


def _listed(expected: object, got: object) -> object:
    """Return that part of an outcome which a case lists, lists in any order."""
    if isinstance(expected, dict) and isinstance(got, dict):
        return {name: _listed(expected[name], got.get(name, 0)) for name in expected}
    if isinstance(expected, list) and isinstance(got, list) and sorted(expected) == sorted(got):
        return expected
    return got


STAGES: Mapping[str, Stage] = {
    "aggregated_usage": _aggregated_usage,
    "cache": _cache,
    "deadline": _deadline,
    "defaults": _defaults,
    "estimate": _estimate,
    "estimate-node": _estimate_node,
    "filter": _filter,
    "score": _score,
    "validate": _validate,
}
