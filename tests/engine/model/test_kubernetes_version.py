from __future__ import annotations

import pytest

from engine.model.kubernetes_version import ASSUMED, KubernetesVersion, kubernetes_version_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.37.2", (1, 37)),
        ("v1.37.0-alpha.1", (1, 37)),
        ("v1.36.1-gke.1500", (1, 36)),
        ("v1.30+", (1, 30)),
        ("1.40", (1, 40)),
        ("", ASSUMED),
        ("v1", ASSUMED),
        ("v1.1234567890123", ASSUMED),
        ("next", ASSUMED),
    ],
)
def test_the_version_is_what_the_api_server_says(text: str, version: tuple[int, int]) -> None:
    assert kubernetes_version_of(text) == version


def test_a_later_version_is_greater() -> None:
    assert KubernetesVersion(1, 9) < KubernetesVersion(1, 36) < KubernetesVersion(2, 0)
