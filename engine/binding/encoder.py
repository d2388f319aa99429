"""A decision as it is written on the Binding: its target, and annotations that the pod gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jsonpointer import escape

from engine.binding.decision import BindingDecision
from engine.binding.reason import BindingAction
from engine.errors import PatchError
from engine.placement import Operation, graft, release_annotations

SCHEDULER_NODE_ANNOTATION: Final = "stowplan.dev/scheduler-node"
"""On a bound pod: the node that the scheduler took; the pod may have been moved."""

BINDING_REASON_ANNOTATION: Final = "stowplan.dev/binding"
"""On a bound pod: the reason, see `BindingReason`."""


_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Copied from a node. Source: Kubernetes, plugin/pkg/admission/podtopologylabels."""


def encode_binding(decision: BindingDecision, binding: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return the JSON Patch operations on a Binding; none where nothing was decided.

    The API server merges its annotations and labels into the pod. Annotations that are there stay
    as they are, so a patched binding gets none again. Labels say the zone and region of the
    scheduler's node: they are taken away where the pod is moved, and the API server then adds those
    of its node, if that has any.

    Args:
        decision: not a denial.
        binding: the object, as plain JSON values.

    Raises:
        PatchError: the binding is not of a pod to the node that the decision is about.
    """
    target = binding.get("target") or {}
    if decision.action is BindingAction.DENY:
        raise PatchError("a denied binding is not patched")
    if target.get("name") not in {decision.scheduler_node, decision.node_name}:
        raise PatchError(f"the binding is to `{target.get('name')}`, and was decided for another")
    operations: list[Operation] = []
    if target.get("name") != decision.node_name:
        operations.append({"op": "replace", "path": "/target/name", "value": decision.node_name})
        operations += _without_topology(binding)
    if decision.decision is not None:
        there = (binding.get("metadata") or {}).get("annotations") or {}
        annotations = {
            **release_annotations(decision.decision.estimate, decision.message),
            SCHEDULER_NODE_ANNOTATION: decision.scheduler_node,
            BINDING_REASON_ANNOTATION: str(decision.reason),
        }
        added = {key: text for key, text in annotations.items() if key not in there}
        if added:
            operations += graft(binding, {"metadata": {"annotations": added}}, "")
    return tuple(operations)


def _without_topology(binding: Mapping[str, Any]) -> list[Operation]:
    labels = (binding.get("metadata") or {}).get("labels") or {}
    return [
        {"op": "remove", "path": f"/metadata/labels/{escape(key)}"}
        for key in _TOPOLOGY_LABELS
        if key in labels
    ]
