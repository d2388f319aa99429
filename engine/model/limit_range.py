"""The model of a LimitRange: the requests and limits of containers that name none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.model import api
from engine.model.quantity import base_units

_OF_CONTAINERS: Final = "Container"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """The defaults of a LimitRange for containers, as written; its bounds are not known here.

    Attributes:
        limits: quantities by resource.
        requests: likewise.
    """

    namespace: str
    name: str
    limits: Mapping[str, api.Quantity]
    requests: Mapping[str, api.Quantity]
    node_name: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def limit_range_of(wire: api.LimitRange) -> LimitRange:
    """Return the model of a LimitRange.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_LimitRangeItem: a default limit is
    the maximum where none is given, a default request the default limit, else the minimum.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    limits: dict[str, api.Quantity] = {}
    requests: dict[str, api.Quantity] = {}
    for item in wire.spec.limits or ():
        if item.type != _OF_CONTAINERS:
            continue
        of_item = {**(item.max or {}), **(item.default or {})}
        limits |= of_item
        requests |= {**(item.min or {}), **of_item, **(item.default_request or {})}
    for amounts in (limits, requests):
        for resource, amount in amounts.items():
            base_units(resource, amount)
    return LimitRange(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        limits=limits,
        requests=requests,
    )
