"""The pods that manifests of workloads would make, as far as that can be told without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from engine.model.pod import pod_of
from engine.simulation import RecordedPod
from webhook.cli.pods import TEMPLATES, default_requests
from webhook.cluster import read_folder
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject

_COUNTS: Final = {
    "CronJob": "spec.jobTemplate.spec.parallelism",
    "Deployment": "spec.replicas",
    "Job": "spec.parallelism",
    "ReplicaSet": "spec.replicas",
    "StatefulSet": "spec.replicas",
}
"""Place of the number of pods, by kind; 1 where it is not given."""

_OWNERS: Final = {"CronJob": "Job", "Deployment": "ReplicaSet"}
_POD: Final = "Pod"
_MOST_PODS: Final = 100_000  # of one manifest


def read_pods(path: Path, *, namespace: str, priorities: Mapping[str, int]) -> list[RecordedPod]:
    """Return the pods in a manifest, or in those of a folder: pods, and those that workloads make.

    Objects of other kinds are skipped, DaemonSets among them: their pods are pinned to their nodes.

    Args:
        path: a file or a folder.
        namespace: of objects that name none.
        priorities: of pods by name of their PriorityClass, where they give none.

    Raises:
        InvalidFileError: something cannot be read, or there is no pod.
    """
    pods = [
        _recorded(manifest, found, namespace, priorities)
        for found in _objects(path)
        for manifest in _manifests(found)
    ]
    if not pods:
        message = f"no pod, and none of {', '.join(_COUNTS)}"
        raise InvalidFileError([Diagnostic(file=str(path), message=message)])
    return pods


def _objects(path: Path) -> Iterator[ApiObject]:
    for found in read_folder(path):
        if isinstance(found, Diagnostic):
            raise InvalidFileError([found])
        yield found


def _manifests(found: ApiObject) -> Iterable[dict[str, Any]]:
    """Yield the manifests of the pods of an object."""
    if found.kind == _POD:
        yield msgspec.convert(found.plain(), dict[str, Any])
    elif found.kind in _COUNTS:
        workload = msgspec.convert(found.plain(), dict[str, Any])
        count = _at(workload, _COUNTS[found.kind])
        if count is None:
            count = 1
        if not isinstance(count, int) or not 0 <= count <= _MOST_PODS:
            message = f"expected a number of pods up to {_MOST_PODS:,}, not `{count}`"
            place = _COUNTS[found.kind].split(".")
            raise InvalidFileError([found.problem(place, message, "")])
        yield from (_pod(workload, found.kind, number) for number in range(count))


def _pod(workload: Mapping[str, Any], kind: str, number: int) -> dict[str, Any]:
    """Return a pod of a workload, named as its controller names it but for random letters."""
    template = _at(workload, TEMPLATES[kind]) or {}
    own = workload.get("metadata") or {}
    name = own.get("name") or kind.lower()
    owner = {"apiVersion": "apps/v1", "kind": _OWNERS.get(kind, kind), "name": name, "uid": name}
    metadata = {
        **(template.get("metadata") or {}),
        "name": f"{name}-{number}",
        "generateName": f"{name}-",
        "ownerReferences": [{**owner, "controller": True}],
    }
    if own.get("namespace"):
        metadata["namespace"] = own["namespace"]
    spec = template.get("spec") or {}
    return {"apiVersion": "v1", "kind": _POD, "metadata": metadata, "spec": spec}


def _recorded(
    manifest: dict[str, Any], found: ApiObject, namespace: str, priorities: Mapping[str, int]
) -> RecordedPod:
    default_requests(manifest)
    try:
        wire = msgspec.convert(manifest, api.Pod)
        pod = pod_of(wire, namespace=namespace)
    except UNREADABLE as error:
        raise InvalidFileError(decode_errors(found, api.Pod, error)) from error
    if wire.spec.priority is None:
        priority = priorities.get(pod.priority_class_name, 0)
        pod = msgspec.structs.replace(pod, priority=priority)
    return RecordedPod(pod, msgspec.json.encode(manifest))


def _at(document: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - any value of a manifest
    value: Any = document
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
