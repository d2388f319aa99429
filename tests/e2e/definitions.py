"""Definitions of the kinds of others that stowplan reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from tests.e2e.cluster import Cluster, Json, eventually

_CRDS = Path(__file__).parent / "crds"


@asynccontextmanager
async def defined(cluster: Cluster) -> AsyncIterator[None]:
    """Define NodeMetric, and ElasticQuota in both groups, until the block is left."""
    definitions = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in _CRDS.iterdir()]
    for definition in definitions:
        await install(cluster, definition)
    yield
    names = {definition["metadata"]["name"] for definition in definitions}
    for name in names:
        await cluster.delete("customresourcedefinitions", name)

    async def gone() -> bool:
        left = await cluster.list_all("customresourcedefinitions")
        return names.isdisjoint(one["metadata"]["name"] for one in left)

    await eventually(gone, "the definitions are gone")  # their objects go first


async def install(cluster: Cluster, definition: Json) -> None:
    """Create a CustomResourceDefinition, and wait until its objects can be listed."""
    spec = definition["spec"]
    await cluster.create(definition)
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    await eventually(lambda: cluster.call("GET", path), f"{path} is served")
