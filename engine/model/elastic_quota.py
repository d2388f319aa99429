"""The model of an ElasticQuota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.model import api, resources
from engine.model.koordinator_quota import IS_PARENT_LABEL, namespaces_in
from engine.model.resources import Amounts

UPSTREAM_GROUP = "scheduling.x-k8s.io"
"""The API group of scheduler-plugins' ElasticQuota."""

KOORDINATOR_GROUP = "scheduling.sigs.k8s.io"
"""The API group of Koordinator's ElasticQuota."""

RESERVATIONS_ANNOTATION = "stowplan.dev/reservations"
"""Annotation of an ElasticQuota: amounts reserved for pods that may not be observed yet."""

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
        namespaces: further namespaces in Koordinator's annotation.
        is_parent: whether Koordinator's label marks it as a parent of quotas, not of pods.
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
    namespaces: tuple[str, ...] = ()
    is_parent: bool = False

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
    return ElasticQuota(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        group=wire.api_version.partition("/")[0],
        min=None if spec.min is None else resources.amounts(spec.min),
        max=None if spec.max is None else resources.amounts(spec.max),
        used=resources.amounts(wire.status.used),
        uid=wire.metadata.uid,
        version=wire.metadata.version,
        reservations=(wire.metadata.annotations or {}).get(RESERVATIONS_ANNOTATION, ""),
        namespaces=namespaces_in(wire.metadata),
        is_parent=(wire.metadata.labels or {}).get(IS_PARENT_LABEL) == "true",
    )
