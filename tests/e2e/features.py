"""What the version of Kubernetes that the tests run on can do, as its API server says.

A test says `await require(cluster, "GenericWorkload")`, never a version, and is skipped elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.e2e.cluster import Cluster

_GATE = re.compile(
    r'^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} ([01])$', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Feature:
    """What has a feature gate.

    Attributes:
        stage: `ALPHA` or `BETA`; empty if it is generally available.
        is_on: whether it is on.
    """

    stage: str
    is_on: bool


async def features(cluster: Cluster) -> dict[str, Feature]:
    """Return the features that have a gate; all components of a version have the same gates."""
    found = _GATE.findall(await cluster.text("/metrics"))
    return {name: Feature(stage, value == "1") for name, stage, value in found}


async def is_on(cluster: Cluster, name: str) -> bool:
    """Return whether a feature is there and on."""
    feature = (await features(cluster)).get(name)
    return feature is not None and feature.is_on


async def require_on(cluster: Cluster, name: str) -> None:
    """Skip the test unless a feature is on."""
    if not await is_on(cluster, name):
        pytest.skip(f"{name} is off")


async def require(cluster: Cluster, *names: str, stage: str | None = None) -> None:
    """Skip the test unless these features have a gate, on or off.

    Args:
        cluster: as its admin.
        names: of the features.
        stage: that they must have reached, where the stage before it has another API.
    """
    known = await features(cluster)
    for name in names:
        if name not in known:
            pytest.skip(f"there is no feature gate {name}")
        if stage not in {None, known[name].stage}:
            pytest.skip(f"{name} is {known[name].stage}, not {stage}")
