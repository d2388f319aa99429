from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.pod_shape import PodShape, cached_by_shape, decode_large_pod
from tests.bench.load.giants import giants
from tests.engine.measured_cluster import pod
from tests.engine.model.hostile_pods import hostile_pod


class Counter:
    """Counts how often the number of names in a shape is computed."""

    def __init__(self) -> None:
        self.computed = 0
        self.names = cached_by_shape(self._names)

    def _names(self, shape: PodShape, more: int) -> int:
        self.computed += 1
        return len(shape.requests) + more


def test_pods_of_a_template_have_a_result_computed_once_for_each_argument() -> None:
    counter = Counter()
    shapes = [pod(name, requests={"cpu": "1", "memory": "1Gi"}).shape for name in "abc"]
    assert [counter.names(shape, more) for shape in shapes for more in (0, 1)] == [2, 3] * 3
    assert counter.computed == 2


def test_a_large_shape_is_not_kept() -> None:
    counter, shape = Counter(), hostile_pod(1).shape
    assert [counter.names(shape, 0) for _ in range(3)] == [100] * 3
    assert counter.computed == 3


def test_a_pod_in_parts_is_the_pod_as_a_whole() -> None:
    for giant in giants("shop"):
        raw = msgspec.json.encode(giant)
        assert decode_large_pod(raw) == msgspec.json.decode(raw, type=api.Pod)


def test_a_pod_without_containers_has_none() -> None:
    pod = decode_large_pod(b'{"metadata": {"name": "web-1"}, "spec": {"nodeName": "a"}}')
    assert (pod.metadata.name, pod.spec.node_name) == ("web-1", "a")
    assert (pod.spec.containers, pod.spec.init_containers) == (None, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"spec": {"containers": 1}}',
        '{"spec": {"containers": [{"name": 1}]}}',
        '{"spec": {"initContainers": [{}, null]}}',
        '{"metadata": []}',
    ],
)
def test_what_is_no_pod_in_whole_is_none_in_parts(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=api.Pod)
    with pytest.raises(msgspec.ValidationError):
        decode_large_pod(text.encode())
