"""Definitions of kinds on the API server: those of others that stowplan reads, and its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.cluster import Cluster, Json, eventually

DEFINITIONS: Final = "customresourcedefinitions"

_OF_OTHERS: Final = Path(__file__).parent / "crds"
_OF_THE_CHART: Final = Path(__file__).parents[2] / "charts" / "stowplan" / "files" / "crds"


def definitions_of_others() -> list[Json]:
    """Return NodeMetric, PodGroup, and ElasticQuota in both groups, as others define them."""
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in _OF_OTHERS.iterdir()]


def definition_of_the_chart(name: str) -> Json:
    """Return a definition as the chart brings it.

    Args:
        name: such as `elasticquotas.scheduling.x-k8s.io`.
    """
    definition: Json = yaml.safe_load((_OF_THE_CHART / f"{name}.yaml").read_text(encoding="utf-8"))
    return definition


@asynccontextmanager
async def defined(cluster: Cluster, *definitions: Json) -> AsyncIterator[None]:
    """Define kinds until the block is left."""
    names = {definition["metadata"]["name"] for definition in definitions}
    try:
        for definition in definitions:
            await install(cluster, definition)
        yield
    finally:
        await undefine(cluster, names)


async def install(cluster: Cluster, definition: Json) -> None:
    """Create a CustomResourceDefinition, and wait until its objects can be found and listed."""
    path, name = _path(definition), definition["metadata"]["name"]
    await cluster.create(definition)
    await eventually(lambda: cluster.call("GET", path), f"{path} is served")
    await eventually(lambda: cluster.offers(name), f"{name} is listed")


async def undefine(cluster: Cluster, names: Collection[str]) -> None:
    """Delete definitions, those there are, and wait until they are gone: their objects go first.

    One that is deleted while the watch cache of its objects begins is never gone: so what that
    cache answers is waited for.
    """

    async def gone() -> bool:
        every = await cluster.list_all(DEFINITIONS)
        left = [each for each in every if each["metadata"]["name"] in names]
        for each in left:
            if "deletionTimestamp" not in each["metadata"]:
                await cluster.call("GET", _path(each), params={"resourceVersion": "0"})
                await cluster.delete(DEFINITIONS, each["metadata"]["name"])
        return not left

    await eventually(gone, f"{', '.join(sorted(names))} are gone")


def _path(definition: Json) -> str:
    """Return the path of all objects of a kind."""
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
