"""Pods, quotas and profiles that tests of the state give it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from engine.model.decision import ADVICE_ANNOTATION, Advice
from engine.model.elastic_quota import ElasticQuota
from engine.model.pod import Pod
from engine.plugins.load_aware.estimation import LoadProfile
from tests.engine.measured_cluster import pod

GPU = "example.com/gpu"
QUOTA_GROUP = "scheduling.x-k8s.io"
PROFILES = (
    LoadProfile(known=("cpu", "memory"), factors=(("cpu", 85), ("memory", 70))),
    LoadProfile(known=("cpu",), factors=(("cpu", 100),), seconds_after_scheduled=30),
)

# What differs between pods in the ways that the sums tell apart.
TEMPLATES: tuple[dict[str, Any], ...] = (
    {},
    {"requests": {"cpu": "500m"}},
    {"requests": {"cpu": "250m", "memory": "1Gi"}, "limits": {"cpu": "2"}},
    {"limits": {GPU: "1"}},
    {"limits": {"cpu": "1", "unscoped": "3"}, "priority": 5500},
    {"overhead": {"cpu": "10m"}, "initContainers": [{"resources": {"limits": {"memory": "2Gi"}}}]},
)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-11-14T00:00:00Z"}


def a_pod(
    name: str = "p",
    on: str = "",
    *,
    namespace: str = "default",
    template: Mapping[str, Any] = TEMPLATES[1],
    conditions: Sequence[Mapping[str, str]] = (),
    advice: Advice | None = None,
    gated: bool = False,
) -> Pod:
    annotations = {ADVICE_ANNOTATION: msgspec.json.encode(advice).decode()} if advice else {}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    gates = [{"name": "hold"}] if gated else []
    return pod(
        name, on, metadata=metadata, conditions=conditions, schedulingGates=gates, **template
    )


def quota(namespace: str, name: str, cpu: int = 4_000, group: str = QUOTA_GROUP) -> ElasticQuota:
    return ElasticQuota(
        namespace=namespace, name=name, group=group, min=None, max={"cpu": cpu}, used={}
    )
