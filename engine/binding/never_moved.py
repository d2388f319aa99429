"""The pods that stay where the scheduler puts them, whatever policies say."""

from __future__ import annotations

from typing import Final

from engine.binding.reason import BindingReason
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.resource_names import is_extended
from engine.model.well_known import SYSTEM_CLASSES
from engine.pipeline import Scope

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_PLACEMENT_LABEL: Final = "stowplan.dev/placement"  # as the webhook of new pods leaves them out
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"

UNJUDGED: Final = frozenset(
    {
        BindingReason.POD_BOUND,
        BindingReason.STATIC_POD,
        BindingReason.SYSTEM_POD,
        BindingReason.NAMESPACE_EXCLUDED,
        BindingReason.POD_GATED,
    }
)
"""Reasons of pods that are none of ours: their bindings are not denied, either."""


def reserved_node(pod: Pod) -> str:
    """Return the node where room is reserved for a pod by a nomination of ours, "" for none.

    Only the scheduler and we may write it. The scheduler's is another than the pod was released
    with.
    """
    node_name = pod.nominated_node_name
    is_ours = node_name and pod.annotations.get(RELEASED_ANNOTATION) == node_name
    return node_name if is_ours else ""


def never_moved(pod: Pod, node: Node | None, scope: Scope) -> BindingReason | None:
    """Return why a pod stays where the scheduler puts it, None if it may be moved.

    Args:
        pod: as it is stored.
        node: the scheduler's, None where it is not known.
        scope: the pods to place.
    """
    return _by_scope(pod, scope) or _by_what_it_has(pod, node)


def _by_scope(pod: Pod, scope: Scope) -> BindingReason | None:
    """Return why a pod is none of ours."""
    reasons = (
        (bool(pod.node_name), BindingReason.POD_BOUND),
        (pod.is_daemon_set, BindingReason.DAEMON_SET),
        (pod.is_mirror, BindingReason.STATIC_POD),
        (pod.priority_class_name in SYSTEM_CLASSES, BindingReason.SYSTEM_POD),
        (pod.namespace in scope.excluded_namespaces, BindingReason.NAMESPACE_EXCLUDED),
        (pod.labels.get(_PLACEMENT_LABEL) == "disabled", BindingReason.OUT_OF_SCOPE),
        (
            (pod.scheduler_name or _DEFAULT_SCHEDULER) not in scope.scheduler_names,
            BindingReason.OTHER_SCHEDULER,
        ),
        (pod.gated, BindingReason.POD_GATED),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _by_what_it_has(pod: Pod, node: Node | None) -> BindingReason | None:
    """Return why another node than the scheduler's would not do."""
    if pod.has_claims:
        return BindingReason.CLAIMS
    if pod.has_scheduling_group:
        return BindingReason.SCHEDULING_GROUP
    if pod.nominated_node_name and not reserved_node(pod):
        return BindingReason.PREEMPTOR
    if node is None:
        return BindingReason.NODE_UNKNOWN
    return BindingReason.DEVICES if _may_claim_devices(pod, node) else None


def _may_claim_devices(pod: Pod, node: Node) -> bool:
    """Return whether a pod requests what its node does not offer: a DeviceClass may map it."""
    return any(
        name.startswith(_DEVICE_CLASS) or (name not in node.allocatable and is_extended(name))
        for name, amount in pod.shape.requests.items()
        if amount
    )
