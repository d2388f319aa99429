"""Pods that commands are about: by `TYPE/NAME` or a manifest, and the request to create them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from rich.console import Console

from engine.builtin_admission import BuiltinAdmission
from engine.errors import Diagnostic, InvalidFileError, StowplanError, did_you_mean
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.kinds import DEFAULT_NAMESPACE
from engine.model.pod import Pod, deployment_pod_of, pod_of
from engine.model.time import micros
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
from engine.view import ClusterView
from webhook.admission.handler import model_of
from webhook.admission.wire import PODS, AdmissionRequest, GroupVersionKind
from webhook.cluster import read_folder, read_objects
from webhook.cluster.objects import UNREADABLE, ApiObject, FieldPath, decode_errors

_T = TypeVar("_T")
_MOST_PODS: Final = 100_000  # of one manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What `TYPE/NAME` names."""

    workload: Workload | None  # None for a pod
    name: str

    @property
    def group_kind(self) -> tuple[str, str]:
        """Its API group and kind."""
        return ("", POD) if self.workload is None else (self.workload.group, self.workload.kind)

    @property
    def plural(self) -> str:
        return "pods" if self.workload is None else self.workload.plural

    def __str__(self) -> str:
        """Return it as in a sentence: ``Deployment `web` ``."""
        kind = "pod" if self.workload is None else self.workload.kind
        return f"{kind} `{self.name}`"


_POD_NAMES: Final = frozenset({"pod", "pods", "po"})


def _names(workload: Workload) -> frozenset[str]:
    """Return all names of a type that kubectl takes."""
    names = {workload.kind.lower(), workload.plural, workload.short} - {""}
    suffixes = ("", f".{workload.group}", f".v1.{workload.group}")
    return frozenset(f"{name}{suffix}" for name in names for suffix in suffixes)


_WORKLOADS: Final = {name: workload for workload in WORKLOADS for name in _names(workload)}


def target_of(written: str) -> Target:
    """Return what `TYPE/NAME` names."""
    kind, slash, name = written.partition("/")
    if not (slash and kind and name) or "/" in name:
        raise StowplanError(
            f"expected TYPE/NAME, not `{written}`\nhint: such as deploy/web, or the path of a"
            " manifest"
        )
    if kind.lower() in _POD_NAMES:
        return Target(workload=None, name=name)
    workload = _WORKLOADS.get(kind.lower())
    if workload is None:
        kinds = ", ".join(each.plural for each in WORKLOADS)
        raise StowplanError(
            f"there is no file `{written}`, and `{kind}` makes no pods\nhint: the types are pods,"
            f" {kinds}"
        )
    return Target(workload=workload, name=name)


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
        return self.found.end

    def decode(self, kind: type[_T]) -> _T:
        return msgspec.convert(self.plain(), kind)

    def plain(self) -> object:
        manifest = msgspec.convert(self.found.plain(), dict[str, Any])
        pod = pod_of_workload(manifest, self.workload, self.number)
        return pinned_to(pod, self.node) if self.node else pod

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
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


_STANDARD_INPUT = Path("/dev/stdin")
_HINT: Final = f"give the manifest of a Pod, or of a {', '.join(kind.kind for kind in WORKLOADS)}"
_POD = GroupVersionKind(version="v1", kind="Pod")


class PodCollector:
    """Keeps the pods of a recording as they were recorded."""

    def __init__(self) -> None:
        # by `namespace/name`; of several versions of a pod the last counts
        self.pods: dict[str, RecordedPod] = {}

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        self.pods[pod.key] = RecordedPod(pod, bytes(raw))

    def pod_deleted(self, namespace: str, name: str) -> None:
        self.pods.pop(f"{namespace}/{name}", None)

    def manifest(self, target: Target, namespace: str, paths: Sequence[Path]) -> dict[str, Any]:
        """Return a pod as plain JSON values.

        Of a workload that is the newest of its pods, or one of its template if only that is in the
        files of the recording.
        """
        names = [(each, _name_of(each, target.workload)) for each in self.pods.values()]
        found = [each for each, name in names if name == target.name]
        here = [each for each in found if each.pod.namespace == namespace]
        if here:
            newest = max(here, key=lambda each: (_created_micros(each.pod), each.pod.name))
            return msgspec.json.decode(newest.raw, type=dict[str, Any])
        if target.workload is None:
            missing = f"no {target} is recorded"
        else:
            template = _template(target, namespace, paths)
            if template is not None:
                return manifest_of(template)
            missing = f"no pod of {target} is recorded, and not its template,"
        if found:
            hint = f"it is in {found[0].pod.namespace}: name it with --namespace"
        else:
            own = {name for each, name in names if name and each.pod.namespace == namespace}
            hint = did_you_mean(target.name, own) or "name its namespace with --namespace"
        raise StowplanError(f"{missing} in namespace `{namespace}`\nhint: {hint}")


def _created_micros(pod: Pod) -> int:
    return 0 if pod.created is None else micros(pod.created)


class _WithMetadata(msgspec.Struct):
    metadata: api.ObjectMeta


def _name_of(recorded: RecordedPod, workload: Workload | None) -> str:
    """Return the name of the workload of a kind that a pod is of, "" for none; of a pod its own."""
    pod = recorded.pod
    if workload is None:
        return pod.name
    if workload.owner not in pod.owner_kinds:
        return ""
    if workload.kind == "Deployment":
        of_deployment = deployment_pod_of(pod.generate_name, pod.labels, pod.owner_kinds)
        return "" if of_deployment is None else of_deployment.deployment
    owners = msgspec.json.decode(recorded.raw, type=_WithMetadata).metadata.owner_references or ()
    for owner in owners:
        group = owner.api_version.partition("/")[0]
        if (group, owner.kind) != (workload.group_of_owner, workload.owner):
            continue
        if workload.kind == workload.owner:
            return owner.name
        cron_job, _, minutes = owner.name.rpartition("-")  # as its controller names Jobs
        return cron_job if minutes.isdigit() else ""
    return ""


def _template(target: Target, namespace: str, paths: Sequence[Path]) -> ApiObject | None:
    """Return a recorded workload, None if the files have none."""
    for found in (each for path in paths for each in read_folder(path)):
        if isinstance(found, Diagnostic) or (found.group, found.kind) != target.group_kind:
            continue
        manifest = msgspec.convert(found.plain(), dict[str, Any])
        name, of = (value_at(manifest, ("metadata", key)) for key in ("name", "namespace"))
        if (name, of or DEFAULT_NAMESPACE) == (target.name, namespace):
            return found
    return None


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the one pod in a YAML or JSON file, as plain JSON values; `-` reads standard input.

    Of a workload that is a pod of its template, as its controller sends it. Objects of other kinds
    beside it are skipped.
    """
    file = _STANDARD_INPUT if path == Path("-") else path
    objects: list[ApiObject] = []
    for item in read_objects(file):
        if isinstance(item, Diagnostic):
            raise InvalidFileError([item])
        objects.append(item)
    pods = [found for found in objects if pod_object(found) is not None] or objects
    if len(pods) != 1:
        message = f"expected one Pod or workload, found {len(pods)}"
        raise InvalidFileError([Diagnostic(file=str(file), message=message)])
    return manifest_of(pods[0])


def placement_request(
    manifest: Mapping[str, Any], *, namespace: str, view: ClusterView, notes: Console | None = None
) -> PlacementRequest:
    """Return the request that creating a pod would make, with the pod as webhooks get it."""
    admitted = BuiltinAdmission(view.extras.values()).admit(manifest, namespace=namespace)
    if notes is not None:
        for note in admitted.notes:
            notes.print(note, markup=False, soft_wrap=True)
    manifest = admitted.manifest
    raw = msgspec.json.encode(manifest)
    request = AdmissionRequest(
        uid="explain",
        operation="CREATE",
        kind=_POD,
        resource=PODS,
        namespace=manifest["metadata"]["namespace"],
        name=manifest["metadata"].get("name") or "",
        object=msgspec.Raw(raw),
    )
    pod = model_of(request.pod(), request, view.kubernetes)
    return PlacementRequest(
        pod=pod,
        raw=raw,
        namespace_labels=view.namespaces.labels.get(pod.namespace, {}),
        request=request.variables(),
    )


def manifest_of(found: ApiObject) -> dict[str, Any]:
    """Return the pod that an object is, or stands for; see `read_manifest`."""
    pod = pod_object(found)
    if pod is None:
        message = f"expected a Pod or a workload, not a `{found.kind[:64]}`"
        raise InvalidFileError([found.problem(("kind",), message, _HINT)])
    try:
        manifest: dict[str, Any] = msgspec.convert(pod.plain(), dict[str, Any])
        pod_of(msgspec.convert(manifest, api.Pod))
    except UNREADABLE as error:
        problems = decode_errors(pod, api.Pod, error)
        raise InvalidFileError([replace(problem, hint="") for problem in problems]) from error
    return manifest
