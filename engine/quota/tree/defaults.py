"""Labels and annotations that Koordinator fills in when a quota is created.

Messages are those of Koordinator's own webhook, word for word. Source: koordinator,
pkg/webhook/elasticquota/quota_topology.go, fillQuotaDefaultInformation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from engine.errors import QuantityError
from engine.model import api
from engine.model.koordinator_quota import (
    PARENT_LABEL,
    ROOT_QUOTA,
    SHARED_WEIGHT_ANNOTATION,
    TREE_ID_LABEL,
    AnnotationError,
    resource_list_in,
)
from engine.model.quantity import quantity_of
from engine.quota.tree.topology import KnownQuotas


@dataclass(frozen=True, slots=True)
class QuotaDefaults:
    """What is filled in.

    Attributes:
        labels: to be set.
        annotations: to be set.
        problem: why nothing can be filled in, "" if it can.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def quota_defaults(quota: api.ElasticQuota, others: KnownQuotas) -> QuotaDefaults:
    """Return what a new quota lacks: its parent, the tree of its parent, its shared weight.

    Args:
        quota: as its author wrote it.
        others: all that exist beside it.
    """
    meta = quota.metadata
    name, written = meta.name, meta.labels or {}
    if name == ROOT_QUOTA:
        return QuotaDefaults()
    labels: dict[str, str] = {}
    parent_name = written.get(PARENT_LABEL)
    if not parent_name:
        labels[PARENT_LABEL] = ROOT_QUOTA
    elif parent_name != ROOT_QUOTA and not written.get(TREE_ID_LABEL):
        parent = others.get(parent_name)
        if parent is None:
            return QuotaDefaults(problem=f"fill quota {name} failed, parent not exist")
        labels[TREE_ID_LABEL] = parent.tree.tree_id
    try:
        weight = _shared_weight(quota)
    except (AnnotationError, QuantityError) as error:
        return QuotaDefaults(problem=f"fill quota {name} failed, {error}")
    return QuotaDefaults(labels, {SHARED_WEIGHT_ANNOTATION: weight} if weight else {})


def _shared_weight(quota: api.ElasticQuota) -> str:
    """Return the annotation with exactly the resources of `max`; "" if it needs no change.

    Raises:
        AnnotationError: it cannot be read.
        QuantityError: an amount is not a quantity.
    """
    greatest = quota.spec.max or {}
    own = resource_list_in(quota.metadata, SHARED_WEIGHT_ANNOTATION)
    is_written = bool((quota.metadata.annotations or {}).get(SHARED_WEIGHT_ANNOTATION))
    if is_written and own.keys() == greatest.keys():
        for text in own.values():
            quantity_of(text)
        return ""
    weights = {name: own.get(name, text) for name, text in greatest.items()}
    canonical = {name: quantity_of(text).canonical() for name, text in sorted(weights.items())}
    return msgspec.json.encode(canonical).decode()
