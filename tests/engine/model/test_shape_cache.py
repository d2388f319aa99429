from __future__ import annotations

from engine.model.pod_shape import PodShape
from engine.model.shape_cache import cached_by_shape
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
