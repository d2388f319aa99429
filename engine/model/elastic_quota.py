"""The model of an ElasticQuota."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

import msgspec

from engine.errors import QuantityError, StowplanError
from engine.model import api, resources
from engine.model.quantity import INT64_MAX
from engine.model.resources import Amounts
from engine.model.time import SECOND, Micros

_DOMAIN = "quota.scheduling.koordinator.sh"
NAME_LABEL = f"{_DOMAIN}/name"
PARENT_LABEL = f"{_DOMAIN}/parent"
IS_PARENT_LABEL = f"{_DOMAIN}/is-parent"
TREE_ID_LABEL = f"{_DOMAIN}/tree-id"
IS_TREE_ROOT_LABEL = f"{_DOMAIN}/is-root"
IGNORE_DEFAULT_TREE_LABEL = f"{_DOMAIN}/ignore-default-tree"
LENDS_LABEL = f"{_DOMAIN}/allow-lent-resource"
FORCE_UPDATE_LABEL = f"{_DOMAIN}/allow-force-update"
PREEMPTIBLE_LABEL = f"{_DOMAIN}/preemptible"
NAMESPACES_ANNOTATION = f"{_DOMAIN}/namespaces"
SHARED_WEIGHT_ANNOTATION = f"{_DOMAIN}/shared-weight"
STRICT_KEYS_ANNOTATION = f"{_DOMAIN}/max-strict-check-resource-keys"
ADMISSION_ANNOTATION = f"{_DOMAIN}/admission"
TOTAL_ANNOTATION = f"{_DOMAIN}/total-resource"
CHILD_REQUEST_ANNOTATION = f"{_DOMAIN}/child-request"
GUARANTEED_ANNOTATION = f"{_DOMAIN}/guaranteed"

ROOT_QUOTA = "koordinator-root-quota"
SYSTEM_QUOTA = "koordinator-system-quota"
DEFAULT_QUOTA = "koordinator-default-quota"
BUILT_IN_QUOTAS = frozenset({ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})


_T = TypeVar("_T")


class AnnotationError(StowplanError):
    """A malformed annotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """What Koordinator's labels and annotations say of a quota; base units."""

    parent: str = ROOT_QUOTA  # name of its parent; of a top-level quota that of the root
    is_parent: bool = False  # whether it may have children, and so no pods
    tree_id: str = ""  # of the tree it belongs to, "" for the one of the whole cluster
    is_tree_root: bool = False  # whether the total of its tree is written on it
    # whether that total is not taken out of the tree of the cluster
    ignores_default_tree: bool = False
    total: Amounts | None = None  # what its tree has, None if it does not say
    lends: bool = True  # whether others may use what it does not request of its `min`
    # its weight for each resource beyond `min`; empty means `max`
    shared_weight: Amounts = field(default_factory=dict)
    # what its tree guarantees it, as written last
    guaranteed: Amounts = field(default_factory=dict)
    is_forced: bool = False  # whether sums of `min` are not checked when it changes
    namespaces: tuple[str, ...] = ()  # whose pods belong to it


NO_TREE_SETTINGS = TreeSettings()


def tree_settings_of(meta: api.ObjectMeta) -> TreeSettings:
    """Return the settings of a quota; what is malformed counts as missing, as upstream."""
    labels = meta.labels or {}
    annotations = meta.annotations or {}
    if not any(key.startswith(_DOMAIN) for key in (*labels, *annotations)):
        return NO_TREE_SETTINGS
    return TreeSettings(
        parent=labels.get(PARENT_LABEL) or ROOT_QUOTA,
        is_parent=_is_true(labels, IS_PARENT_LABEL),
        tree_id=labels.get(TREE_ID_LABEL, ""),
        is_tree_root=_is_true(labels, IS_TREE_ROOT_LABEL),
        ignores_default_tree=_is_true(labels, IGNORE_DEFAULT_TREE_LABEL),
        total=_amounts_in(meta, TOTAL_ANNOTATION) if TOTAL_ANNOTATION in annotations else None,
        lends=labels.get(LENDS_LABEL) != "false",
        shared_weight=_amounts_in(meta, SHARED_WEIGHT_ANNOTATION),
        guaranteed=_amounts_in(meta, GUARANTEED_ANNOTATION),
        is_forced=_is_true(labels, FORCE_UPDATE_LABEL),
        namespaces=namespaces_in(meta),
    )


def resource_list_in(meta: api.ObjectMeta, annotation: str) -> api.ResourceList:
    """Return the amounts in an annotation, none if it is missing."""
    return _decoded(meta, annotation, api.ResourceList) or {}


def strings_in(meta: api.ObjectMeta, annotation: str) -> Sequence[str]:
    """Return the strings in an annotation, none if it is missing."""
    return _decoded(meta, annotation, list[str]) or ()


def namespaces_in(meta: api.ObjectMeta) -> tuple[str, ...]:
    """Return the namespaces that a quota lists; none if its annotation is malformed."""
    try:
        return tuple(strings_in(meta, NAMESPACES_ANNOTATION))
    except AnnotationError:
        return ()


def _is_true(labels: Mapping[str, str], label: str) -> bool:
    return labels.get(label) == "true"


def _amounts_in(meta: api.ObjectMeta, annotation: str) -> dict[str, int]:
    try:
        return resources.amounts(resource_list_in(meta, annotation))
    except (AnnotationError, QuantityError):
        return {}


def _decoded(meta: api.ObjectMeta, annotation: str, kind: type[_T]) -> _T | None:
    text = (meta.annotations or {}).get(annotation)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind | None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AnnotationError(f"annotation `{annotation}`: {error}") from error


BORROWED_ANNOTATION: Final = "stowplan.dev/borrowed"
"""What its pods use beyond `min`, as JSON."""

LENT_ANNOTATION: Final = "stowplan.dev/lent"
"""What others use of its `min`, as JSON."""

RUNTIME_FIGURE_ANNOTATION: Final = "stowplan.dev/runtime"
"""What its pods may use now, where quotas form a tree; as JSON."""

QUEUED_ANNOTATION: Final = "stowplan.dev/queued"
"""The number of pods that wait for it."""

FREE_ANNOTATION: Final = "stowplan.dev/free"
"""What is left of what its first pod lacks, as JSON."""

BLOCKED_BY_ANNOTATION: Final = "stowplan.dev/blocked-by"
"""The quotas that borrow it, `namespace/name`, separated by commas."""

SECONDS_PER_RELEASE_ANNOTATION: Final = "stowplan.dev/seconds-per-release"
"""The mean time between two releases of pods that had to wait for it."""

FIGURE_ANNOTATIONS: Final = (
    BORROWED_ANNOTATION,
    LENT_ANNOTATION,
    RUNTIME_FIGURE_ANNOTATION,
    QUEUED_ANNOTATION,
    FREE_ANNOTATION,
    BLOCKED_BY_ANNOTATION,
    SECONDS_PER_RELEASE_ANNOTATION,
)

_MOST_TEXT: Final = 4_096  # of an annotation that is read: whoever may write quotas may write it
_SECONDS: Final = re.compile(r"\d{1,6}(\.\d{1,6})?", re.ASCII)
_figures_in: Final = msgspec.json.Decoder(dict[str, str]).decode


def release_interval(figures: Mapping[str, str]) -> Micros | None:
    """Return the mean time between two releases, None if nobody knows it."""
    text = figures.get(SECONDS_PER_RELEASE_ANNOTATION, "")
    return Micros(round(float(text) * SECOND)) if _SECONDS.fullmatch(text) else None


def seconds_text(interval: Micros) -> str:
    """Return a time between two releases as `release_interval` reads it, to two digits."""
    seconds = float(f"{interval / SECOND:.2g}")
    return f"{seconds:f}".rstrip("0").rstrip(".")


def free_amounts(figures: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is left of what the first pod lacks, as quantities; nothing if it is unknown."""
    text = figures.get(FREE_ANNOTATION, "")
    if not text or len(text) > _MOST_TEXT:
        return {}
    try:
        return _figures_in(text)
    except (msgspec.DecodeError, RecursionError):
        return {}


def blocking_quotas(figures: Mapping[str, str]) -> tuple[str, ...]:
    """Return the quotas that borrow what the first pod lacks."""
    text = figures.get(BLOCKED_BY_ANNOTATION, "")
    return tuple(filter(None, text.split(","))) if len(text) <= _MOST_TEXT else ()


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


class EvictionMode(StrEnum):
    """Whether pods are evicted to make room for others."""

    OFF = "Off"
    DRY_RUN = "DryRun"  # plans are made and reported
    ON = "On"


HARD_RECLAIM: Final = "Hard"
"""Value of `RECLAIM_ANNOTATION`: On, and budgets do not count where nothing else makes room."""


QuotaKey: TypeAlias = tuple[str, str, str]
"""Namespace, API group and name of an ElasticQuota: unique in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuota:
    """The guaranteed and greatest amounts of a namespace, base units."""

    namespace: str
    name: str
    group: str  # its API group
    min: Amounts | None  # guaranteed amounts, None when the object has no `min`
    max: Amounts | None  # greatest amounts, None when the object has no `max`
    used: Amounts  # written by its controller
    uid: str = ""  # empty if it is not stored
    version: int = 0  # its resourceVersion, 0 if it has none
    reservations: str = ""  # text of the annotation of that name, empty if there is none
    tree: TreeSettings = NO_TREE_SETTINGS  # what Koordinator's labels and annotations say of it
    weight: int = DEFAULT_WEIGHT  # its weight in fair sharing
    max_queued: int = DEFAULT_MAX_QUEUED  # pods that may wait for it
    # whether its pods within `min` take back what others borrow
    reclaim: EvictionMode = EvictionMode.DRY_RUN
    # whether it asks that PodDisruptionBudgets of those give way: whoever may write quotas may ask
    asks_for_hard_reclaim: bool = False
    # whether pods are evicted of what it uses above its runtime
    revoke: EvictionMode = EvictionMode.OFF
    # whether one pod of each Deployment may be above `max` while it is to replace another
    allows_surge: bool = False
    # texts of the annotations in `FIGURE_ANNOTATIONS` that it has
    figures: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> QuotaKey:
        """Namespace, API group and name."""
        return self.namespace, self.group, self.name


def quota_of(wire: api.ElasticQuota) -> ElasticQuota:
    """Return the model of an ElasticQuota."""
    spec = wire.spec
    annotations = wire.metadata.annotations or {}
    is_hard = annotations.get(RECLAIM_ANNOTATION) == HARD_RECLAIM
    reclaim = _mode(annotations, RECLAIM_ANNOTATION, EvictionMode.DRY_RUN)
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
        reclaim=EvictionMode.ON if is_hard else reclaim,
        asks_for_hard_reclaim=is_hard,
        revoke=_mode(annotations, REVOKE_ANNOTATION, EvictionMode.OFF),
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


def _mode(annotations: Mapping[str, str], name: str, default: EvictionMode) -> EvictionMode:
    """Return the mode in an annotation, the default where there is none."""
    text = annotations.get(name)
    return next((mode for mode in EvictionMode if mode == text), default)
