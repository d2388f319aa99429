"""The pods that manifests of workloads would make, as far as that can be told without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from engine.builtin_admission import BuiltinAdmission
from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.workload import (
    POD,
    WORKLOADS,
    Workload,
    pinned_to,
    pod_of_workload,
    value_at,
    workload_of,
)
from engine.simulation import RecordedPod
from webhook.cluster import read_folder
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject, FieldPath

_T = TypeVar("_T")
_MOST_PODS: Final = 100_000  # of one manifest


@dataclass(frozen=True, slots=True)
class PodOfWorkload:
    """A pod of a workload, as an `ApiObject`: its mistakes are at their place in the template."""

    found: ApiObject
    workload: Workload
    number: int = 0
    node: str = ""  # that a pod of a DaemonSet is for
    group: str = ""
    kind: str = POD

    @property
    def end(self) -> int:
        """That of the workload."""
        return self.found.end

    def decode(self, kind: type[_T]) -> _T:
        """Return the pod as a wire struct."""
        return msgspec.convert(self.plain(), kind)

    def plain(self) -> object:
        """Return the pod as dicts, lists and scalars."""
        manifest = msgspec.convert(self.found.plain(), dict[str, Any])
        pod = pod_of_workload(manifest, self.workload, self.number)
        return pinned_to(pod, self.node) if self.node else pod

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values."""
        return self.found.problem((*self.workload.template, *path), message, hint)


def pod_object(found: ApiObject) -> ApiObject | None:
    """Return a pod as it is, a pod of a workload, and None for anything else."""
    if (found.group, found.kind) == ("", POD):
        return found
    workload = workload_of(f"{found.group}/v1", found.kind)
    return None if workload is None else PodOfWorkload(found, workload)


def read_pods(
    path: Path,
    *,
    namespace: str,
    admission: BuiltinAdmission,
    nodes_for: Callable[[Pod], Sequence[str]],
) -> list[RecordedPod]:
    """Return the pods in a manifest, or in those of a folder: pods, and those that workloads make.

    Objects of other kinds are skipped.

    Args:
        path: a file or a folder.
        namespace: of objects that name none.
        admission: the API server's own changes to them.
        nodes_for: the nodes that a DaemonSet has such a pod on.

    Raises:
        InvalidFileError: something cannot be read, or there is no pod.
    """
    made = partial(_admitted, namespace=namespace, admission=admission)
    pods = [
        made(pod)
        for found in _objects(path)
        for pod in _pods_of(found, lambda pod: nodes_for(made(pod).pod))
    ]
    if not pods:
        kinds = ", ".join(workload.kind for workload in WORKLOADS)
        message = f"no pod, and none of {kinds}"
        raise InvalidFileError([Diagnostic(file=str(path), message=message)])
    return pods


def _objects(path: Path) -> Iterator[ApiObject]:
    for found in read_folder(path):
        if isinstance(found, Diagnostic):
            raise InvalidFileError([found])
        yield found


def _pods_of(
    found: ApiObject, nodes_for: Callable[[ApiObject], Sequence[str]]
) -> Iterable[ApiObject]:
    """Yield the pods of an object."""
    pod = pod_object(found)
    if not isinstance(pod, PodOfWorkload):
        return [] if pod is None else [pod]
    place = pod.workload.count
    if not place:
        return [
            PodOfWorkload(found, pod.workload, number, node)
            for number, node in enumerate(nodes_for(pod))
        ]
    count = value_at(msgspec.convert(found.plain(), dict[str, Any]), place)
    if count is None:
        count = 1
    if not isinstance(count, int) or not 0 <= count <= _MOST_PODS:
        message = f"expected a number of pods up to {_MOST_PODS:,}, not `{count}`"
        raise InvalidFileError([found.problem(place, message, "")])
    return (PodOfWorkload(found, pod.workload, number) for number in range(count))


def _admitted(found: ApiObject, namespace: str, admission: BuiltinAdmission) -> RecordedPod:
    """Return a pod as webhooks get it, with the name that it gets afterwards."""
    try:
        written = msgspec.convert(found.plain(), dict[str, Any])
        pod_of(msgspec.convert(written, api.Pod))
    except UNREADABLE as error:
        raise InvalidFileError(decode_errors(found, api.Pod, error)) from error
    manifest = admission.admit(written, namespace=namespace).manifest
    pod = pod_of(msgspec.convert(manifest, api.Pod))
    if not pod.name:
        number = found.number if isinstance(found, PodOfWorkload) else 0
        pod = msgspec.structs.replace(pod, name=f"{pod.generate_name}{number}")
    return RecordedPod(pod, msgspec.json.encode(manifest))
