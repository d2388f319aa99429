"""An ElasticQuota as the engine sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from engine.model import api, resources
from engine.model.koordinator_quota import IS_PARENT_LABEL, namespaces_in

if TYPE_CHECKING:
    from engine.model.resources import Amounts

UPSTREAM_GROUP = "scheduling.x-k8s.io"
"""The API group of scheduler-plugins' ElasticQuota."""

KOORDINATOR_GROUP = "scheduling.sigs.k8s.io"
"""The API group of Koordinator's ElasticQuota."""

RESERVATIONS_ANNOTATION = "stowplan.dev/reservations"
"""Where an ElasticQuota carries the shares promised to pods that may not be seen yet."""

QuotaKey: TypeAlias = tuple[str, str, str]
"""Namespace, API group and name of an ElasticQuota: unique in the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuota:
    """The guaranteed and greatest amounts of a namespace, base units.

    Attributes:
        group: the API group it came from.
        min: guaranteed amounts, None when the object has no `min`.
        max: greatest amounts, None when the object has no `max`.
        used: what its controller last wrote.
        uid: empty where it is not stored.
        version: its resourceVersion, 0 where it has none.
        reservations: the annotation of that name, as it stands; empty if there is none.
        namespaces: those that Koordinator's annotation lists besides its own.
        is_parent: whether Koordinator's label says that it holds quotas, not pods.
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
    """Return the engine's quota for its wire form.

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
