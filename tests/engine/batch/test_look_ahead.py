"""Pods have one key only where no rule can tell them apart."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from engine.batch.look_ahead import template_keys
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.policy import PolicySet
from engine.view import ClusterState
from tests.engine.batch.worlds import request

_Containers: TypeAlias = Sequence[dict[str, Any]]

# All that a rule reads of containers, and what none does: the name and the environment.
_containers: st.SearchStrategy[_Containers] = st.lists(
    st.fixed_dictionaries(
        {"image": st.sampled_from(["a", "a", "b"]), "name": st.sampled_from(["x", "y"])},
        optional={
            "resources": st.sampled_from([{}, {"requests": {"cpu": "1"}}]),
            "restartPolicy": st.just("Always"),
        },
    ),
    max_size=2,
)


def _request(name: str, containers: _Containers, init_containers: _Containers) -> PlacementRequest:
    spec = {"containers": containers, "initContainers": init_containers}
    return request({"metadata": {"namespace": "default"}, "spec": spec}, name)


def _read(containers: Sequence[api.Container]) -> list[tuple[object, ...]]:
    """Return what rules read of containers."""
    return [(each.image, each.resources, each.restart_policy) for each in containers]


def _keys(*requests: PlacementRequest) -> list[Hashable | None]:
    return template_keys(requests, PolicySet([]), ClusterState().view())


@given(_containers, _containers, _containers, _containers)
def test_pods_with_other_containers_have_other_keys(
    a: _Containers, init_a: _Containers, b: _Containers, init_b: _Containers
) -> None:
    first, second = _request("p0", a, init_a), _request("p2", b, init_b)
    key, other = _keys(first, second)
    are_alike = all(
        _read(one) == _read(two)
        for one, two in (
            (first.pod.containers, second.pod.containers),
            (first.pod.init_containers, second.pod.init_containers),
        )
    )
    assert (key == other) == are_alike
