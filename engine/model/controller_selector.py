"""Which pods a controller selects, as far as one of them tells."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from engine.model.pod import Pod
from engine.model.selectors import LabelSelector, Operator, Requirement

_SELECTING: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
_OWN_LABELS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "controller-revision-hash",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels of pods of a StatefulSet that are not in its selector."""

_SELECTORS: Final = 1024


def controller_selector(pod: Pod) -> LabelSelector | None:
    """Return the selector of the controller of a pod, None where it has none.

    The scheduler reads it from the ReplicaSet, ReplicationController or StatefulSet, and adds those
    of Services. Neither is known here: it is taken to be all labels of the pod, but those that each
    pod of a StatefulSet has of its own; and a pod that only a Service selects has none.

    Source: pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector.
    """
    if not pod.labels or _SELECTING.isdisjoint(pod.owner_kinds):
        return None
    selector = _selector_of(frozenset(pod.labels.items()))
    return selector if selector.requirements else None


@lru_cache(maxsize=_SELECTORS)
def _selector_of(labels: frozenset[tuple[str, str]]) -> LabelSelector:
    return LabelSelector(
        tuple(
            Requirement(key, Operator.IN, frozenset((value,)))
            for key, value in sorted(labels)
            if key not in _OWN_LABELS
        )
    )
