"""Names of resources and their families.

The scheduler counts cpu, memory, ephemeral-storage and pods one by one, the *scalar* families by
name, and silently ignores every other name.
"""

from __future__ import annotations

import re
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources that every node offers."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME: Final = re.compile(
    rf"(?=[^/]{{1,244}}/){_LABEL}(?:\.{_LABEL})*/"
    r"(?=.{1,63}$)[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
"""`domain/name`; 244 is a DNS subdomain's 253 less `requests.`, which a quota puts before it."""


def is_scalar(name: str) -> bool:
    """Return whether the scheduler counts `name` besides cpu, memory, ephemeral-storage and pods.

    Other unprefixed names, such as `gpu`, are counted nowhere
    (pkg/scheduler/util/utils.go, IsScalarResourceName).
    """
    return (
        is_extended(name)
        or is_huge_pages(name)
        or is_prefixed_native(name)
        or name.startswith("attachable-volumes-")
    )


def is_extended(name: str) -> bool:
    """Return whether `name` is a vendor's: a qualified name outside Kubernetes' own domains.

    Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    return (
        "/" in name  # false for most names, and ten times as fast as the rest
        and not is_prefixed_native(name)
        and not name.startswith("requests.")
        and _QUALIFIED_NAME.fullmatch(name) is not None
    )


def is_huge_pages(name: str) -> bool:
    """Return whether `name` is an amount of huge pages of one size."""
    return name.startswith("hugepages-")


def counts_bytes(name: str) -> bool:
    """Return whether `name` counts bytes, such as `memory` and `kubernetes.io/batch-memory`."""
    return name.endswith((MEMORY, EPHEMERAL_STORAGE)) or is_huge_pages(name)


def is_prefixed_native(name: str) -> bool:
    """Return whether `name` lies in `kubernetes.io/` or a domain that ends so."""
    return "kubernetes.io/" in name
