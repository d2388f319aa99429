"""Namespaces of tests, which go with their pods: what is left would take room in other tests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from tests.e2e.cluster import Cluster, eventually

_OWNERS: Final = ("deployments", "replicasets", "statefulsets", "daemonsets", "cronjobs", "jobs")


def new_names(count: int) -> list[str]:
    """Return names that no namespace has."""
    return [f"shop-{uuid.uuid4().hex[:8]}" for _ in range(count)]


async def create_namespaces(cluster: Cluster, *names: str) -> tuple[str, ...]:
    """Create namespaces, wait until pods can be created in them, and return their names."""
    await asyncio.gather(*(_create(cluster, name) for name in names))
    return names


@asynccontextmanager
async def passing_namespaces(cluster: Cluster, *names: str) -> AsyncIterator[tuple[str, ...]]:
    """Create namespaces, yield their names; they go with all that runs in them after the block."""
    try:
        yield await create_namespaces(cluster, *names)
    finally:
        await asyncio.gather(*(_remove(cluster, name) for name in names))


@asynccontextmanager
async def labelled(cluster: Cluster, name: str, labels: Mapping[str, str]) -> AsyncIterator[None]:
    """Label a namespace until the block is left."""
    await cluster.patch("namespaces", name, {"metadata": {"labels": dict(labels)}})
    try:
        yield
    finally:
        await cluster.patch("namespaces", name, {"metadata": {"labels": dict.fromkeys(labels)}})


async def _create(cluster: Cluster, name: str) -> None:
    await cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    # Pods are refused until the controllers have given the namespace its service account.
    await eventually(
        lambda: cluster.get("serviceaccounts", "default", name), "the default service account"
    )


async def _remove(cluster: Cluster, name: str) -> None:
    for owners in _OWNERS:
        await cluster.delete_all(owners, name)

    async def is_empty() -> bool:
        await cluster.delete_all("pods", name, grace_seconds=0)
        return not await cluster.list_all("pods", name)

    await eventually(is_empty, f"namespace {name} is empty")
    await cluster.delete("namespaces", name)
