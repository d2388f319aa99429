"""The version of Kubernetes that a cluster runs, for what its scheduler counts otherwise by now."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class KubernetesVersion(NamedTuple):
    """Major and minor version; later ones are greater."""

    major: int
    minor: int


ASSUMED: Final = KubernetesVersion(1, 36)
"""The version of a cluster that does not say its own."""

GREATEST_SUM: Final = KubernetesVersion(1, 37)
"""The first that counts a pod that is resized by the greatest of three sums over its containers."""

EMPTY_IS_UNSET: Final = KubernetesVersion(1, 37)
"""The first whose QoS class ignores pod-level resources that name nothing."""

VOLUMES_ADD: Final = KubernetesVersion(1, 37)
"""The first whose ImageLocality expects of an image volume as much as of a container."""

_TEXT: Final = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")


def kubernetes_version_of(text: str) -> KubernetesVersion:
    """Return the version in a `gitVersion`, such as `v1.37.2-gke.1`; ASSUMED if it is none."""
    match = _TEXT.match(text)
    return KubernetesVersion(int(match[1]), int(match[2])) if match else ASSUMED
