"""Koordinator's labels and annotations of ElasticQuotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from engine.errors import QuantityError, StowplanError
from engine.model import api, resources
from engine.model.resources import Amounts

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
RUNTIME_ANNOTATION = f"{_DOMAIN}/runtime"
REQUEST_ANNOTATION = f"{_DOMAIN}/request"
CHILD_REQUEST_ANNOTATION = f"{_DOMAIN}/child-request"
NON_PREEMPTIBLE_REQUEST_ANNOTATION = f"{_DOMAIN}/non-preemptible-request"
NON_PREEMPTIBLE_USED_ANNOTATION = f"{_DOMAIN}/non-preemptible-used"
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
    """What Koordinator's labels and annotations say of a quota; base units.

    Attributes:
        parent: name of its parent; of a top-level quota that of the root.
        is_parent: whether it may have children, and so no pods.
        tree_id: of the tree it belongs to, "" for the one of the whole cluster.
        is_tree_root: whether the total of its tree is written on it.
        ignores_default_tree: whether that total is not taken out of the tree of the cluster.
        total: what its tree has, None if it does not say.
        lends: whether others may use what it does not request of its `min`.
        shared_weight: its weight for each resource beyond `min`; empty means `max`.
        guaranteed: what its tree guarantees it, as written last.
        is_forced: whether sums of `min` are not checked when it changes.
        namespaces: whose pods belong to it.
    """

    parent: str = ROOT_QUOTA
    is_parent: bool = False
    tree_id: str = ""
    is_tree_root: bool = False
    ignores_default_tree: bool = False
    total: Amounts | None = None
    lends: bool = True
    shared_weight: Amounts = field(default_factory=dict)
    guaranteed: Amounts = field(default_factory=dict)
    is_forced: bool = False
    namespaces: tuple[str, ...] = ()


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
    """Return the amounts in an annotation, none if it is missing.

    Raises:
        AnnotationError: they cannot be read.
    """
    return _decoded(meta, annotation, api.ResourceList) or {}


def strings_in(meta: api.ObjectMeta, annotation: str) -> Sequence[str]:
    """Return the strings in an annotation, none if it is missing.

    Raises:
        AnnotationError: they cannot be read.
    """
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
