"""A request to place a pod: the pod, and its context from the API server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from engine.model.pod import Pod


@dataclass(frozen=True, kw_only=True)
class PlacementRequest:
    """A pod about to be created, with its context.

    Attributes:
        pod: the model of the pod.
        raw: the object as JSON, decoded only if an expression or the patch needs it.
        namespace_labels: labels of its namespace, as far as they are known.
        request: the fields of the admission request that expressions may read (`operation`,
            `userInfo`, `dryRun`, ...), as plain JSON values.
        expired: called now and then while expressions run; True makes them err. None for no limit.
    """

    pod: Pod
    raw: bytes
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    expired: Callable[[], bool] | None = None

    @cached_property
    def object(self) -> dict[str, Any]:
        """The pod as plain JSON values."""
        return msgspec.json.decode(self.raw, type=dict[str, Any])
