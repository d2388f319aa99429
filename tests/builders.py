"""Objects of the engine, made of what a test says about them; all else is as simple as can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.elastic_quota import UPSTREAM_GROUP, ElasticQuota, quota_of
from engine.model.node import Node, node_of
from engine.model.pod import Pod, pod_of
from engine.model.resources import Amounts

Json = Mapping[str, Any]


def pod_from(manifest: Json) -> Pod:
    """Return the pod of a manifest."""
    return pod_of(msgspec.convert(manifest, api.Pod))


def node_from(manifest: Json) -> Node:
    """Return the node of a manifest."""
    return node_of(msgspec.convert(manifest, api.Node))


def quota_from(manifest: Json) -> ElasticQuota:
    """Return the quota of a manifest."""
    return quota_of(msgspec.convert(manifest, api.ElasticQuota))


def request_from(manifest: Json, **more: Any) -> PlacementRequest:  # noqa: ANN401 (its fields)
    """Return the request to place the pod of a manifest."""
    raw = msgspec.json.encode(manifest)
    return PlacementRequest(pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw, **more)


def elastic_quota(
    name: str = "team",
    *,
    namespace: str = "shop",
    group: str = UPSTREAM_GROUP,
    least: Amounts | None = None,
    most: Amounts | None = None,
    **more: Any,  # noqa: ANN401 (any further field)
) -> ElasticQuota:
    """Return a quota of which nothing is used."""
    return ElasticQuota(
        namespace=namespace, name=name, group=group, min=least, max=most, used={}, **more
    )
