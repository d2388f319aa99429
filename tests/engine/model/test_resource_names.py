from __future__ import annotations

import pytest

from engine.model.resource_names import is_extended, is_scalar


@pytest.mark.parametrize(
    "name",
    [
        "nvidia.com/gpu",
        "n/e",
        "a.b-c.d/A_b.c-1",
        "a" * 244 + "/" + "b" * 63,
    ],
)
def test_a_qualified_name_outside_kubernetes_is_an_extended_resource(name: str) -> None:
    assert is_extended(name)
    assert is_scalar(name)


@pytest.mark.parametrize(
    "name",
    [
        "hugepages-2Mi",
        "attachable-volumes-csi-ebs",
        "kubernetes.io/batch-cpu",
        "sub.kubernetes.io/thing",
    ],
)
def test_the_families_of_kubernetes_itself_are_scalar_but_not_extended(name: str) -> None:
    assert not is_extended(name)
    assert is_scalar(name)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "gpu",
        "",
        "requests.nvidia.com/gpu",
        "NVIDIA.com/gpu",
        "nvidia..com/gpu",
        "nvidia.com/",
        "nvidia.com/gpu/1",
        "nvidia.com/-gpu",
        "nvidia.com/gpu\n",
        "a" * 245 + "/b",
        "a/" + "b" * 64,
        "a" * 1_000_000,
    ],
)
def test_every_other_name_is_counted_nowhere(name: str) -> None:
    assert not is_scalar(name)
