"""Koordinator's labels and annotations of ElasticQuotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from engine.errors import StowplanError
from engine.model import api

_DOMAIN = "quota.scheduling.koordinator.sh"
NAME_LABEL = f"{_DOMAIN}/name"
PARENT_LABEL = f"{_DOMAIN}/parent"
IS_PARENT_LABEL = f"{_DOMAIN}/is-parent"
TREE_ID_LABEL = f"{_DOMAIN}/tree-id"
PREEMPTIBLE_LABEL = f"{_DOMAIN}/preemptible"
NAMESPACES_ANNOTATION = f"{_DOMAIN}/namespaces"
SHARED_WEIGHT_ANNOTATION = f"{_DOMAIN}/shared-weight"
STRICT_KEYS_ANNOTATION = f"{_DOMAIN}/max-strict-check-resource-keys"
ADMISSION_ANNOTATION = f"{_DOMAIN}/admission"
CHILD_REQUEST_ANNOTATION = f"{_DOMAIN}/child-request"

ROOT_QUOTA = "koordinator-root-quota"
SYSTEM_QUOTA = "koordinator-system-quota"
DEFAULT_QUOTA = "koordinator-default-quota"


_T = TypeVar("_T")


class AnnotationError(StowplanError):
    """A malformed annotation."""


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


def _decoded(meta: api.ObjectMeta, annotation: str, kind: type[_T]) -> _T | None:
    text = (meta.annotations or {}).get(annotation)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind | None)
    except (msgspec.DecodeError, RecursionError) as error:
        raise AnnotationError(f"annotation `{annotation}`: {error}") from error
