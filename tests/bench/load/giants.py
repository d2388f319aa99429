"""Pods that are as large as an API server lets them be, each in another way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

_Json: TypeAlias = dict[str, Any]

_POD_KIND = {"group": "", "version": "v1", "kind": "Pod"}
_POD_RESOURCE = {"group": "", "version": "v1", "resource": "pods"}


def giants(namespace: str) -> Iterator[_Json]:
    """Yield the pods, named after what they have many of."""
    for name, spec in _SPECS.items():
        metadata = {"name": name, "namespace": namespace}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec()}


def review_of(pod: _Json) -> bytes:
    """Return the AdmissionReview of the creation of a pod."""
    request = {
        "uid": "00000000-0000-4000-8000-00000000beef",
        "kind": _POD_KIND,
        "resource": _POD_RESOURCE,
        "name": pod["metadata"]["name"],
        "namespace": pod["metadata"]["namespace"],
        "operation": "CREATE",
        "userInfo": {"username": "tenant"},
        "object": pod,
        "dryRun": True,
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return msgspec.json.encode(review)


def _containers(count: int, requests: Callable[[int], _Json], **more: str) -> list[_Json]:
    return [
        {"name": f"c{number}", "image": "a", "resources": {"requests": requests(number)}, **more}
        for number in range(count)
    ]


def _equal(_: int) -> _Json:
    return {"cpu": "10m", "memory": "1Mi"}


def _distinct(number: int) -> _Json:
    return {"cpu": f"{number + 1}.{number}m", "memory": f"{number + 100}.5Ki"}


def _names(number: int) -> _Json:
    return {f"example.com/r{number}": "1", f"example.com/s{number}": "1"}


def _required(terms: int, values: int) -> _Json:
    selector = [
        {
            "matchExpressions": [
                {
                    "key": f"example.com/{term}",
                    "operator": "NotIn",
                    "values": [f"v{term}-{value}" for value in range(values)],
                }
            ]
        }
        for term in range(terms)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selector}}
    return {"containers": _containers(1, _equal), "affinity": {"nodeAffinity": required}}


_SPECS: dict[str, Callable[[], _Json]] = {
    "containers": lambda: {"containers": _containers(10_000, _equal)},
    "quantities": lambda: {"containers": _containers(10_000, _distinct)},
    "resources": lambda: {"containers": _containers(10_000, _names)},
    "sidecars": lambda: {
        "containers": _containers(1, _equal),
        "initContainers": _containers(9_000, _names, restartPolicy="Always"),
    },
    "terms": lambda: _required(10_000, 1),
    "values": lambda: _required(1_000, 20),
    "within-limits": lambda: _required(50, 40) | {"containers": _containers(100, _equal)},
}
