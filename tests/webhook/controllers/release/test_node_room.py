from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.cluster import NOW, cluster_of, incoming
from webhook.controllers.release.node_room import has_room

_AMOUNTS = {"cpu": "2", "pods": "10"}


def _node(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    labels = {"host": name}
    status = {"allocatable": _AMOUNTS}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def _pod(name: str, on: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    requests = {"resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "shop"}},
        "spec": {"nodeName": on, "containers": [requests], **spec},
    }


_SHOP = {"labelSelector": {"matchLabels": {"app": "shop"}}, "topologyKey": "host"}
_APART = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_SHOP]}}
_SPREAD = {**_SHOP, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
_PORT = {"containers": [{"ports": [{"hostPort": 80}]}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"containers": [{"resources": {"requests": {"cpu": "1001m"}}}]}, False),
        ({"affinity": _APART}, False),
        # 2 and this one on a host, of at most 0 + 1 on any; on c there is none.
        ({"topologySpreadConstraints": [_SPREAD]}, False),
        (_PORT, False),
        ({"nodeSelector": {"host": "c"}}, False),
    ],
)
def test_a_node_has_room_where_the_scheduler_would_put_a_pod(
    spec: dict[str, Any], *, fits: bool
) -> None:
    neighbours = [_pod("first", "b"), _pod("port", "b", **_PORT)]
    view = cluster_of({"nodes": [_node("a"), _node("b"), _node("c")], "pods": neighbours})
    pod = incoming({"pod": _pod("landed", "a", **spec)})
    assert has_room(view, "b", pod, NOW) is fits


def test_a_node_that_is_cordoned_or_gone_has_no_room() -> None:
    view = cluster_of({"nodes": [_node("a"), _node("b", unschedulable=True)]})
    pod = incoming({"pod": _pod("landed", "a")})
    assert has_room(view, "a", pod, NOW)
    assert not has_room(view, "b", pod, NOW)
    assert not has_room(view, "gone", pod, NOW)
