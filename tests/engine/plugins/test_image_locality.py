from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.model.api import ContainerImage
from engine.plugins import Cycle
from engine.plugins.image_locality import ImageLocalityScore
from tests.engine.measured_cluster import NOW, by_node, cluster, node, pod

MIB = 2**20


def scores(
    images: list[str],
    nodes: dict[str, dict[str, int]],
    **spec: Any,  # noqa: ANN401 (any part of a pod's spec)
) -> dict[str, int]:
    """Return the scores of nodes that hold images of so many MiB, for a pod of some."""
    made = [
        replace(
            node(name),
            images=tuple(
                ContainerImage(names=(image,), size_bytes=mib * MIB) for image, mib in held.items()
            ),
        )
        for name, held in nodes.items()
    ]
    view = cluster(made)
    one = pod(containers=[{"image": image} for image in images], **spec)
    return by_node(view, ImageLocalityScore().score(Cycle(one, view, NOW)).values)


def test_what_need_not_be_pulled_counts_by_its_share_of_the_nodes() -> None:
    # On one of two nodes: 600 MiB * 1/2 = 300; (300 - 23) * 100 / (1000 - 23) = 28.35.
    assert scores(["app:v1"], {"has": {"app:v1": 600}, "not": {}}) == {"has": 28, "not": 0}
    # On both of them: (600 - 23) * 100 / 977 = 59.06.
    both = {"one": {"app:v1": 600}, "other": {"app:v1": 600}}
    assert scores(["app:v1"], both) == {"one": 59, "other": 59}


def test_an_image_that_several_containers_run_counts_for_each() -> None:
    # 2 * 600 = 1200 of 2000: (1200 - 23) * 100 / 1977 = 59.5.
    assert scores(["app:v1", "app:v1"], {"has": {"app:v1": 600}}) == {"has": 59}


def test_init_containers_count() -> None:
    # 600 of the 2000 of two containers: 577 * 100 / 1977 = 29.2.
    init = [{"image": "app:v1"}]
    assert scores(["no:v1"], {"has": {"app:v1": 600}}, initContainers=init) == {"has": 29}


def test_images_of_volumes_count_and_add_nothing_to_the_most() -> None:
    # 4000 MiB of at most 1000, of the one container.
    volumes = [{"name": "model", "image": {"reference": "model:v1"}}, {"name": "claim"}]
    assert scores(["no:v1"], {"has": {"model:v1": 4000}, "not": {}}, volumes=volumes) == {
        "has": 100,
        "not": 0,
    }


def test_small_images_count_nothing_and_huge_ones_no_more_than_a_gigabyte() -> None:
    assert scores(["app"], {"has": {"app:latest": 23}}) == {"has": 0}
    assert scores(["app"], {"has": {"app:latest": 5000}}) == {"has": 100}


@pytest.mark.parametrize("written", ["docker.io/library/app:v1", "app:v2", "app"])
def test_names_are_compared_as_they_are_written(written: str) -> None:
    assert scores([written], {"has": {"app:v1": 600}}) == {"has": 0}


def test_a_pod_without_containers_gets_nothing() -> None:
    assert scores([], {"has": {"app:v1": 600}}) == {"has": 0}


def test_each_node_has_its_own_size_of_an_image() -> None:
    # Both hold it, so all counts: (523 - 23) * 100 / 977 = 51.2 and (1000 - 23) * 100 / 977.
    both = {"part": {"app:v1": 523}, "whole": {"app:v1": 1000}}
    assert scores(["app:v1"], both) == {"part": 51, "whole": 100}
