"""The model of a PodDisruptionBudget: how many of the pods that it selects may be evicted now.

Source: k8s.io/kubernetes, pkg/registry/core/pod/storage/eviction.go. Pods that are not ready may
sometimes be evicted beyond a budget; here they count like others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.model import api
from engine.model.selectors import LabelSelector, parse_label_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """The PodDisruptionBudget of some pods of a namespace.

    Attributes:
        selector: None selects no pod, an empty one every pod of the namespace.
        disruptions_allowed: pods that may be evicted now, by its controller's latest count.
    """

    namespace: str
    name: str
    selector: LabelSelector | None
    disruptions_allowed: int
    node_name: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether the eviction of a pod of a namespace, with labels, counts against it."""
        return (
            self.selector is not None
            and namespace == self.namespace
            and self.selector.matches(labels)
        )


def disruption_budget_of(wire: api.PodDisruptionBudget) -> DisruptionBudget:
    """Return the model of a PodDisruptionBudget.

    Raises:
        ValueError: its selector has mistakes, so whom it protects is not known.
    """
    selector = None
    if wire.spec.selector is not None:
        selector, mistakes = parse_label_selector(wire.spec.selector, ("spec", "selector"))
        if mistakes:
            raise ValueError(str(mistakes[0]))
    return DisruptionBudget(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        selector=selector,
        disruptions_allowed=wire.status.disruptions_allowed,
    )
