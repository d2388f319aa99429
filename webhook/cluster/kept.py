"""What a snapshot keeps of each kind of object.

Decoding as a wire struct has already dropped what no rule could read: environment variables,
commands, volumes, `managedFields`. What is dropped here is what rules could not read *of an object
that exists*, and what nobody should find in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec

from engine.model import api
from engine.model.advice import ADVICE_ANNOTATION
from engine.model.elastic_quota import RESERVATIONS_ANNOTATION
from engine.model.pod import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    MIRROR_ANNOTATION,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)
from webhook.cluster.metrics_server import NodeMetrics, PodMetrics

_Object = TypeVar("_Object", api.Node, api.Pod, api.Namespace, api.ElasticQuota)

POD_ANNOTATIONS = frozenset(
    {
        ADVICE_ANNOTATION,
        AFTER_INITIALIZED_ANNOTATION,
        AFTER_SCHEDULED_ANNOTATION,
        MIRROR_ANNOTATION,
        RESERVE_POD_ANNOTATION,
        SCALING_FACTORS_ANNOTATION,
    }
)
"""Of pods that exist, the only ones that count."""

_SECRETIVE = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "k3s.io/node-args",
        "k3s.io/node-env",
        "rke2.io/node-args",
        "rke2.io/node-env",
    }
)
"""Of nodes: the object all over again, or the command line and environment of an agent."""


def kept(wire: msgspec.Struct) -> msgspec.Struct:
    """Return what is kept of an object; its `apiVersion` and `kind` are not among it."""
    keep = _KEPT.get(type(wire))
    return wire if keep is None else keep(wire)


def _of_node(wire: api.Node) -> api.Node:
    annotations = wire.metadata.annotations or {}
    return _with(wire, annotations={k: v for k, v in annotations.items() if k not in _SECRETIVE})


def _of_pod(wire: api.Pod) -> api.Pod:
    return _with(wire, annotations=_some(wire.metadata.annotations, POD_ANNOTATIONS))


def _of_namespace(wire: api.Namespace) -> api.Namespace:
    return _with(wire, annotations=None)


def _of_quota(wire: api.ElasticQuota) -> api.ElasticQuota:
    wire = msgspec.structs.replace(wire, api_version="")
    return _with(wire, annotations=_some(wire.metadata.annotations, {RESERVATIONS_ANNOTATION}))


def _of_report(wire: Any) -> Any:  # noqa: ANN401 - three kinds that have nothing else in common
    """Of metadata, only the name counts; the labels repeat those of the node or pod."""
    meta = wire.metadata
    return msgspec.structs.replace(
        wire, metadata=api.ObjectMeta(name=meta.name, namespace=meta.namespace)
    )


_KEPT: Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]] = {
    api.Node: _of_node,
    api.Pod: _of_pod,
    api.Namespace: _of_namespace,
    api.ElasticQuota: _of_quota,
    api.NodeMetric: _of_report,
    NodeMetrics: _of_report,
    PodMetrics: _of_report,
}


def _with(wire: _Object, *, annotations: Mapping[str, str] | None) -> _Object:
    meta = msgspec.structs.replace(wire.metadata, annotations=annotations or None)
    return msgspec.structs.replace(wire, metadata=meta)


def _some(annotations: Mapping[str, str] | None, names: Collection[str]) -> dict[str, str]:
    return {name: text for name, text in (annotations or {}).items() if name in names}
