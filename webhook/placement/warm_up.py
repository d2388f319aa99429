"""Decisions that nobody asked for, so that nobody has to wait for what they work out once.

The first decision by a set of policies fills columns over all nodes, and takes ten times as long as
the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.pipeline import Scope, decide
from engine.policy import PolicySet
from webhook.cluster.cluster import Cluster

_REQUESTS: Final[tuple[dict[str, str], ...]] = ({"cpu": "100m", "memory": "128Mi"}, {})
"""Of one pod each: by them alone Koordinator counts the first as production, the other as batch."""

_log = logging.getLogger(__name__)


def warm_up(policies: PolicySet, cluster: Cluster, scope: Scope) -> Iterator[None]:
    """Decide for plain pods, one between each yield and the next, and drop what comes of it.

    Args:
        policies: in force or not yet; the cluster keeps the sums they need.
        cluster: what is known.
        scope: which pods are ours.
    """
    for raw in map(_pod_with, _REQUESTS):
        pod = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace="default")
        request = PlacementRequest(pod=pod, raw=raw)
        try:
            # The view goes with the call: one that is held would have to be copied.
            decide(
                request,
                policies,
                cluster.view(),
                cluster.now(),
                scope=scope,
                freshness=cluster.freshness(),
            )
        except Exception:  # noqa: BLE001 - a set of policies must not fail by what nobody needs
            _log.exception("no decision could be tried")
        yield


def _pod_with(requests: dict[str, str]) -> bytes:
    container = {"name": "plain", "resources": {"requests": requests}}
    return msgspec.json.encode({"metadata": {"name": "plain"}, "spec": {"containers": [container]}})
