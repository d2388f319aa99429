"""Any number of rules, half of them filters and half scores, half plugins and half CEL.

The first ten are those of `policy.yaml`, which the targets are set for. Each further ten are the
same with other numbers, so that no two rules have anything to share.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from engine.documents.places import read_documents
from engine.errors import InvalidFileError
from engine.policy import CompiledPolicy, PolicySet
from engine.policy.compile import compile_policy

_Rule: TypeAlias = tuple[str, dict[str, Any]]
"""A key of the spec, and what stands under it."""

_TEN = 10


def policy_set(rules: int) -> PolicySet:
    """Return policies with so many rules together, ten in each but the last."""
    firsts = range(0, rules, _TEN)
    return PolicySet([_policy(at // _TEN, min(_TEN, rules - at)) for at in firsts])


def _policy(number: int, rules: int) -> CompiledPolicy:
    spec: dict[str, Any] = {
        "variables": [
            {
                "name": "wantsGpu",
                "expression": f"pod.requests[?'nvidia.com/gpu'].orValue(0.0) > {number}.0",
            }
        ]
    }
    for key, rule in _ten(number)[:rules]:
        spec.setdefault(key, []).append(rule)
    document = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": f"bench-{number}"},
        "spec": spec,
    }
    (read,) = read_documents(msgspec.json.encode(document), "bench.json")
    policy, problems = compile_policy(read)
    if policy is None:
        raise InvalidFileError(problems)
    return policy


def _ten(number: int) -> list[_Rule]:
    """Return ten rules; those of another number have other constants."""
    limits = {
        "defaultLimitToAllocatableRatio": {"cpu": f"{400 + number}%", "memory": f"{150 + number}%"}
    }
    load = {
        "usageThresholds": {"cpu": 65 + number, "memory": 95},
        "enableScheduleWhenNodeMetricsExpired": True,
        "estimatedScalingFactors": {"cpu": 85 + number, "memory": 70 + number},
    }
    spot = "node.labels[?'karpenter.sh/capacity-type'].orValue('')"
    return [
        ("filters", {"plugin": "LimitAware", "args": limits}),
        _cel("scores", "few-pods", f"-double(node.podCount + {number})"),
        ("scores", {"plugin": "LimitAware", "args": limits}),
        _cel("filters", "room-to-spare", _ROOM.format(0.9 + number / 100)),
        ("filters", {"plugin": "LoadAware", "args": load}),
        _cel("scores", "idle-memory", _IDLE.format(1.0 + number)),
        ("scores", {"plugin": "LoadAware", "args": load, "weight": 2}),
        _cel(
            "filters",
            "keep-off-gpu-nodes",
            f"variables.wantsGpu || !('accelerator{number or ''}' in node.labels)",
        ),
        _cel(
            "filters",
            "no-services-on-spot",
            f"!('ReplicaSet' in pod.ownerKinds) || {spot} != 'spot{number or ''}'",
        ),
        _cel("scores", "large-for-large", _LARGE.format(2.0 + number)),
    ]


_ROOM = "node.requested.cpu + pod.requests.cpu <= {} * node.allocatable.cpu"
_IDLE = "has(node.usage) ? {} - node.usage.memory / node.allocatable.memory : 0.0"
_LARGE = "pod.requests.cpu >= {} ? node.allocatable.cpu : -node.allocatable.cpu"


def _cel(key: str, name: str, expression: str) -> _Rule:
    return key, {"name": name, "expression": expression}
