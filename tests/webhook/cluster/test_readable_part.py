from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.model import api
from webhook.cluster.readable_part import readable_part


def part_of(pod: dict[str, Any]) -> api.Pod:
    return readable_part(msgspec.json.encode(pod), api.Pod)


POD: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "nodeName": "node-a",
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            {"name": "d", "resources": {"requests": {"cpu": "2"}}},
        ],
    },
    "status": {"phase": "Running"},
}


def test_of_an_object_that_can_be_read_nothing_is_missing() -> None:
    assert part_of(POD) == msgspec.convert(POD, api.Pod)


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": POD["spec"] | {"priority": "high"}},
        {"spec": POD["spec"] | {"containers": [*POD["spec"]["containers"], 7]}},
        {"spec": POD["spec"] | {"overhead": {"cpu": ["1"]}}},
        {"spec": POD["spec"] | {"overhead": {"cpu": "a lot"}}},
        {"spec": POD["spec"] | {"overhead": 1}},
        {"spec": POD["spec"] | {"affinity": {"nodeAffinity": 1}}},
        {"metadata": POD["metadata"] | {"creationTimestamp": "yesterday"}},
        {"metadata": POD["metadata"] | {"annotations": {"a": 1}}},
        {"status": POD["status"] | {"conditions": 1}},
    ],
)
def test_what_cannot_be_read_is_left_out_and_no_more(odd: dict[str, Any]) -> None:
    found = part_of(POD | odd)
    assert found.metadata.name == "a"
    assert found.metadata.labels == {"app": "web"}
    assert found.spec.node_name == "node-a"
    assert found.spec.containers is not None
    assert [container.name for container in found.spec.containers] == ["c", "d"]
    assert found.status.phase == "Running"


def test_amounts_that_can_be_read_stay_beside_those_that_cannot() -> None:
    requests: dict[str, object] = {
        "cpu": "1",
        "memory": "a lot",
        "nvidia.com/gpu": {},
        "pods": None,
    }
    found = part_of({"spec": {"containers": [{"resources": {"requests": requests}}]}})
    assert found.spec.containers is not None
    (container,) = found.spec.containers
    assert container.resources is not None
    assert container.resources.requests == {"cpu": "1", "pods": None}


def test_what_is_no_object_has_no_part() -> None:
    with pytest.raises(ValueError, match="truncated"):
        readable_part(b"{", api.Pod)
