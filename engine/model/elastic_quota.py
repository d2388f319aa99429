"""The model of an ElasticQuota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from engine.model import api, resources
from engine.model.koordinator_quota import NO_TREE_SETTINGS, TreeSettings, tree_settings_of
from engine.model.quantity import INT64_MAX
from engine.model.quota_figures import FIGURE_ANNOTATIONS
from engine.model.resources import Amounts

UPSTREAM_GROUP = "scheduling.x-k8s.io"
"""The API group of scheduler-plugins' ElasticQuota."""

KOORDINATOR_GROUP = "scheduling.sigs.k8s.io"
"""The API group of Koordinator's ElasticQuota."""

RESERVATIONS_ANNOTATION = "stowplan.dev/reservations"
"""Annotation of an ElasticQuota: amounts reserved for pods that may not be observed yet."""

WEIGHT_ANNOTATION = "stowplan.dev/weight"
"""Annotation of an ElasticQuota: its weight in fair sharing, a positive integer."""

MAX_QUEUED_ANNOTATION = "stowplan.dev/max-queued"
"""Annotation of an ElasticQuota: pods that may wait for it; a further one is denied."""

RECLAIM_ANNOTATION = "stowplan.dev/reclaim"
"""Annotation of an ElasticQuota: whether its pods within `min` take back what others borrow."""

REVOKE_ANNOTATION = "stowplan.dev/revoke"
"""Annotation of an ElasticQuota of a tree: whether its pods above its runtime are evicted."""

SURGE_ANNOTATION = "stowplan.dev/surge"
"""Annotation of an ElasticQuota: pods that each Deployment may have above `max` in a rollout."""

DEFAULT_WEIGHT = 1
MOST_WEIGHT = 1_000_000
DEFAULT_MAX_QUEUED = 1_000

_MOST_DIGITS: Final = 18


class ReclaimMode(StrEnum):
    """Whether pods are evicted to make room for others."""

    OFF = "Off"
    DRY_RUN = "DryRun"  # plans are made and reported
    ON = "On"


QuotaKey: TypeAlias = tuple[str, str, str]
"""Namespace, API group and name of an ElasticQuota: unique in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuota:
    """The guaranteed and greatest amounts of a namespace, base units.

    Attributes:
        group: its API group.
        min: guaranteed amounts, None when the object has no `min`.
        max: greatest amounts, None when the object has no `max`.
        used: written by its controller.
        uid: empty if it is not stored.
        version: its resourceVersion, 0 if it has none.
        reservations: text of the annotation of that name, empty if there is none.
        tree: what Koordinator's labels and annotations say of it.
        weight: its weight in fair sharing.
        max_queued: pods that may wait for it.
        reclaim: whether its pods within `min` take back what others borrow.
        revoke: whether pods are evicted of what it uses above its runtime.
        allows_surge: whether one pod of each Deployment may be above `max` while it is to replace
            another.
        figures: texts of the annotations in `FIGURE_ANNOTATIONS` that it has.
    """

    namespace: str
    name: str
    group: str
    min: Amounts | None
    max: Amounts | None
    used: Amounts
    uid: str = ""
    version: int = 0
    reservations: str = ""
    tree: TreeSettings = NO_TREE_SETTINGS
    weight: int = DEFAULT_WEIGHT
    max_queued: int = DEFAULT_MAX_QUEUED
    reclaim: ReclaimMode = ReclaimMode.DRY_RUN
    revoke: ReclaimMode = ReclaimMode.OFF
    allows_surge: bool = False
    figures: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> QuotaKey:
        """Namespace, API group and name."""
        return self.namespace, self.group, self.name


def quota_of(wire: api.ElasticQuota) -> ElasticQuota:
    """Return the model of an ElasticQuota.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    spec = wire.spec
    annotations = wire.metadata.annotations or {}
    return ElasticQuota(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        group=wire.api_version.partition("/")[0],
        min=None if spec.min is None else resources.amounts(spec.min),
        max=None if spec.max is None else resources.amounts(spec.max),
        used=resources.amounts(wire.status.used),
        uid=wire.metadata.uid,
        version=wire.metadata.version,
        reservations=annotations.get(RESERVATIONS_ANNOTATION, ""),
        tree=tree_settings_of(wire.metadata),
        weight=_integer(annotations, WEIGHT_ANNOTATION, DEFAULT_WEIGHT, 1, MOST_WEIGHT),
        max_queued=_integer(annotations, MAX_QUEUED_ANNOTATION, DEFAULT_MAX_QUEUED, 0, INT64_MAX),
        reclaim=_mode(annotations, RECLAIM_ANNOTATION, ReclaimMode.DRY_RUN),
        revoke=_mode(annotations, REVOKE_ANNOTATION, ReclaimMode.OFF),
        allows_surge=annotations.get(SURGE_ANNOTATION) == "1",
        figures={name: annotations[name] for name in FIGURE_ANNOTATIONS if name in annotations},
    )


def _integer(
    annotations: Mapping[str, str], name: str, default: int, least: int, greatest: int
) -> int:
    """Return the integer in an annotation, the default where there is none within the bounds."""
    text = annotations.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        return default
    value = int(text)
    return value if least <= value <= greatest else default


def _mode(annotations: Mapping[str, str], name: str, default: ReclaimMode) -> ReclaimMode:
    """Return the mode in an annotation, the default where there is none."""
    text = annotations.get(name)
    return next((mode for mode in ReclaimMode if mode == text), default)
