"""What a snapshot keeps of each kind of object.

Decoding as a wire struct has already dropped what no rule could read: environment variables,
commands, volumes, `managedFields`. What is dropped here is what rules could not read *of an object
that exists*, and what nobody should find in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from engine.model import api
from engine.model.advice import ADVICE_ANNOTATION
from engine.model.disk_io import THROUGHPUT_ANNOTATION
from engine.model.pod import (
    AFTER_INITIALIZED_ANNOTATION,
    AFTER_SCHEDULED_ANNOTATION,
    MIRROR_ANNOTATION,
    RESERVE_POD_ANNOTATION,
    SCALING_FACTORS_ANNOTATION,
)
from webhook.cluster.usage.metrics_server import NodeMetrics, PodMetrics

_Object = TypeVar("_Object", api.Node, api.Pod, api.Namespace, api.ElasticQuota)

POD_ANNOTATIONS = frozenset(
    {
        ADVICE_ANNOTATION,
        AFTER_INITIALIZED_ANNOTATION,
        AFTER_SCHEDULED_ANNOTATION,
        MIRROR_ANNOTATION,
        RESERVE_POD_ANNOTATION,
        SCALING_FACTORS_ANNOTATION,
        THROUGHPUT_ANNOTATION,
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
"""Of anything: the object all over again, or the command line and environment of an agent."""


def kept(wire: msgspec.Struct) -> msgspec.Struct:
    """Return what is kept of an object; its `apiVersion` and `kind` are not among it."""
    keep: Callable[[Any], msgspec.Struct] = _KEPT.get(type(wire), _all_but_secrets)
    return keep(wire)


def _all_but_secrets(wire: Any) -> Any:  # noqa: ANN401 - any kind, for they all have metadata
    annotations = wire.metadata.annotations or {}
    return _with(wire, annotations={k: v for k, v in annotations.items() if k not in _SECRETIVE})


def _of_pod(wire: api.Pod) -> api.Pod:
    annotations = wire.metadata.annotations or {}
    return _with(wire, annotations={k: v for k, v in annotations.items() if k in POD_ANNOTATIONS})


def _of_namespace(wire: api.Namespace) -> api.Namespace:
    return _with(wire, annotations={})


def _of_quota(wire: api.ElasticQuota) -> api.ElasticQuota:
    known: api.ElasticQuota = _all_but_secrets(wire)
    return msgspec.structs.replace(known, api_version="")  # it stands before the rest


def _of_report(wire: Any) -> Any:  # noqa: ANN401 - three kinds that have nothing else in common
    """Of metadata, only the name counts; the labels repeat those of the node or pod."""
    meta = wire.metadata
    return msgspec.structs.replace(
        wire, metadata=api.ObjectMeta(name=meta.name, namespace=meta.namespace)
    )


_KEPT: Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]] = {
    api.Pod: _of_pod,
    api.Namespace: _of_namespace,
    api.ElasticQuota: _of_quota,
    api.NodeMetric: _of_report,
    NodeMetrics: _of_report,
    PodMetrics: _of_report,
}


def _with(wire: _Object, *, annotations: Mapping[str, str]) -> _Object:
    meta = msgspec.structs.replace(wire.metadata, annotations=annotations or None)
    return msgspec.structs.replace(wire, metadata=meta)
