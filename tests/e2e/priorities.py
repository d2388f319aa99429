"""PriorityClasses of tests, which pods may name as soon as they are there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.workloads import pod


@asynccontextmanager
async def priority_class(
    cluster: Cluster,
    name: str,
    value: int,
    *,
    annotations: Mapping[str, str] | None = None,
    preempts: bool = True,
) -> AsyncIterator[None]:
    """Create a PriorityClass until the block is left.

    Args:
        cluster: as its admin.
        name: of the class.
        value: the priority.
        annotations: of the class.
        preempts: whether the scheduler preempts others for its pods.
    """
    obj: Json = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority" if preempts else "Never",
    }
    await cluster.create(obj)
    tried = pod("default", "tried")
    tried["spec"]["priorityClassName"] = name
    try:
        # The API server refuses pods of a class until its own watch has shown it.
        await eventually(lambda: cluster.create(tried, dry_run=True), f"pods may name {name}")
        yield
    finally:
        await cluster.delete("priorityclasses", name)
