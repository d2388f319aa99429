"""What a part of the control plane allocates: a cost that other work here does not change."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.control_plane import ControlPlane

_ALLOCATED = "go_memstats_alloc_bytes_total"
_ASK_SECONDS = 10


def allocated_bytes(control_plane: ControlPlane, url: str) -> float:
    """Return the bytes that a part has allocated since it started.

    Args:
        control_plane: whose part it is.
        url: of the part, `control_plane.url` or `control_plane.scheduler_url`.
    """
    with urllib.request.urlopen(  # noqa: S310 - a part of ours
        f"{url}/metrics", context=control_plane.client_context(), timeout=_ASK_SECONDS
    ) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = (sample for family in families for sample in family.samples)
    return next(sample.value for sample in samples if sample.name == _ALLOCATED)
