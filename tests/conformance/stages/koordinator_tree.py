"""Koordinator's tree of ElasticQuotas: runtime quotas, scaled min, and pods compared with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from engine.model import api
from engine.model.elastic_quota import (
    DEFAULT_QUOTA,
    KOORDINATOR_GROUP,
    NAME_LABEL,
    PREEMPTIBLE_LABEL,
    SYSTEM_QUOTA,
    ElasticQuota,
    quota_of,
)
from engine.model.resources import Amounts, amounts
from engine.quota.bounds import sum_of
from engine.quota.tree import (
    ChildMin,
    Claim,
    QuotaTree,
    TreeBounds,
    UsageByQuota,
    known_quota_name,
    redistribute,
    scaled_mins,
    sum_usage,
    tree_bounds,
)
from tests.builders import elastic_quota
from tests.conformance.koordinator import incoming, pods_of
from tests.conformance.outcome import Json, mismatch
from tests.conformance.stages.koordinator_prefilter import TreeUsage, check_pod_fits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine.model.pod import Pod
    from tests.conformance.outcome import Stage


def tree_of(case: Json) -> QuotaTree:
    """Return the tree of a case."""
    return QuotaTree(quotas_of(case))


def quotas_of(case: Json) -> list[ElasticQuota]:
    """Return the quotas of a case."""
    wires = (msgspec.convert(written, api.ElasticQuota) for written in case.get("quotas", ()))
    return [quota_of(wire) for wire in wires]


def _redistribute(case: Json, _: Json) -> str | None:
    claims = [
        Claim(
            node["name"],
            node["shared_weight"],
            node["request"],
            max(node["min"], node["guarantee"]),
            node["allow_lent_resource"],
        )
        for node in case["nodes"]
    ]
    return mismatch(case["expect"]["runtime"], redistribute(case["total"], claims))


def _scaled_min(case: Json, _: Json) -> str | None:
    children = [
        ChildMin(child["name"], amounts(child["min"]), child["enable_scale"])
        for child in case["children"]
    ]
    expected = case["expect"]["scaled_min"]
    wanted = {
        child.name: child.min
        if expected[child.name] == "unscaled"
        else amounts(expected[child.name])
        for child in children
    }
    return mismatch(wanted, scaled_mins(amounts(case["total_resource"]), children))


def _runtime(case: Json, _: Json) -> str | None:
    bounds = _bounds(case)
    non_preemptible = sum_usage(bounds.tree, _own(case, lambda pod: _is_bound(pod, fixed=True)))
    got = {
        quota.name: {
            "child_request": bounds.requests[quota.name].pods,
            "request": bounds.requests[quota.name].request,
            "used": bounds.used[quota.name],
            "non_preemptible_used": non_preemptible[quota.name],
            "runtime": bounds.shares[quota.name].runtime,
            "scaled_min": bounds.shares[quota.name].scaled_min,
        }
        for quota in bounds.tree
    }
    wanted = case["expect"]["quotas"]
    listed = {
        name: {key: _without_zeros(got[name][key]) for key in figures}
        for name, figures in wanted.items()
    }
    return mismatch(
        {
            name: {key: _without_zeros(amount) for key, amount in figures.items()}
            for name, figures in wanted.items()
        },
        listed,
    )


def _prefilter(case: Json, _: Json) -> str | None:
    # A pod that waits is among those that request already.
    waiting = case | {"pods": [*case.get("pods", ()), case["pod"]]}
    args, bounds, pod = case["args"], _bounds(waiting), incoming(case)
    tree = bounds.tree
    name = known_quota_name(tree, pod.namespace, pod.labels.get(NAME_LABEL, ""))
    quota = tree.get(name) or _default_quota()
    limits: Mapping[str, Amounts] = {key: share.runtime for key, share in bounds.shares.items()}
    if not args.get("enableRuntimeQuota", True):
        limits = {each.name: each.max or {} for each in (*tree, quota)}
    usage = TreeUsage(
        bounds=limits,
        used=bounds.used,
        non_preemptible=sum_usage(tree, _own(case, lambda other: _is_bound(other, fixed=True))),
    )
    refused = check_pod_fits(
        quota,
        pod.shape.spec_requests,
        usage,
        tree if args.get("enableCheckParentQuota") else None,
        is_preemptible=_is_preemptible(pod),
    )
    return mismatch(case["expect"]["status"], refused or "pass")


def _default_quota() -> ElasticQuota:
    """Return the default quota, which upstream's scheduler creates."""
    greatest = dict.fromkeys(("cpu", "memory"), (2**63 - 1) // 5)
    return elastic_quota(
        DEFAULT_QUOTA, namespace="koordinator-system", group=KOORDINATOR_GROUP, most=greatest
    )


def _bounds(case: Json) -> TreeBounds:
    used = _own(case, _is_bound)
    usage = UsageByQuota(used=used, queued=_own(case, lambda pod: not _is_bound(pod)))
    outside = sum_of(used.get(name, {}) for name in (DEFAULT_QUOTA, SYSTEM_QUOTA))
    total, scales = amounts(case["total_resource"]), case["args"].get("enableMinQuotaScale", True)
    return tree_bounds(tree_of(case), usage, total, outside, scales_min=scales)


def _own(case: Json, counts: Callable[[Pod], bool]) -> dict[str, Amounts]:
    """Return the requests of the pods that count, by the name of their quota."""
    tree = tree_of(case)
    own: dict[str, Amounts] = {}
    for pod in pods_of(case):
        if not pod.is_terminal and counts(pod):
            name = known_quota_name(tree, pod.namespace, pod.labels.get(NAME_LABEL, ""))
            own[name] = sum_of((own.get(name, {}), pod.shape.spec_requests))
    return own


def _is_bound(pod: Pod, *, fixed: bool = False) -> bool:
    return bool(pod.node_name) and not (fixed and _is_preemptible(pod))


def _is_preemptible(pod: Pod) -> bool:
    return pod.labels.get(PREEMPTIBLE_LABEL) != "false"


def _without_zeros(found: Amounts) -> Amounts:
    return {name: amount for name, amount in found.items() if amount}


TREE_STAGES: Mapping[str, Stage] = {
    "prefilter": _prefilter,
    "redistribute": _redistribute,
    "runtime": _runtime,
    "scaled-min": _scaled_min,
}
