"""Pod manifests, and the placement request that their creation would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from rich.console import Console

from engine.builtin_admission import BuiltinAdmission
from engine.errors import Diagnostic, InvalidFileError, StowplanError, did_you_mean
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.workload import WORKLOADS
from engine.simulation import RecordedPod
from engine.view import ClusterView
from webhook.admission.review_result import model_of
from webhook.admission.wire import PODS, AdmissionRequest, GroupVersionKind
from webhook.cli.workloads import pod_object
from webhook.cluster import read_objects
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject

_POD_NAMES: Final = frozenset({"pod", "pods", "po"})
_STANDARD_INPUT = Path("/dev/stdin")
_HINT: Final = f"give the manifest of a Pod, or of a {', '.join(kind.kind for kind in WORKLOADS)}"
_POD = GroupVersionKind(version="v1", kind="Pod")


class PodCollector:
    """Keeps the pods of a recording as they were recorded.

    Attributes:
        pods: by `namespace/name`; of several versions of a pod the last counts.
    """

    def __init__(self) -> None:
        self.pods: dict[str, RecordedPod] = {}

    def pod_changed(self, pod: Pod, version: int, raw: bytes | msgspec.Raw) -> None:  # noqa: ARG002 - as every observer
        """Keep a pod."""
        self.pods[pod.key] = RecordedPod(pod, bytes(raw))

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Forget a pod."""
        self.pods.pop(f"{namespace}/{name}", None)

    def manifest(self, target: str, namespace: str) -> dict[str, Any]:
        """Return a pod as plain JSON values.

        Args:
            target: as kubectl takes it, `pod/web-0`.
            namespace: of the pod.

        Raises:
            StowplanError: there is no such pod, or the target is no pod.
        """
        kind, _, name = target.partition("/")
        if kind not in _POD_NAMES:
            raise StowplanError(
                f"`{target}` is neither a file nor a pod\nhint: of a recording `pod/NAME`; --live"
                " takes workloads, too"
            )
        found = self.pods.get(f"{namespace}/{name}")
        if found is not None:
            return msgspec.json.decode(found.raw, type=dict[str, Any])
        elsewhere = [key for key in self.pods if key.endswith(f"/{name}")]
        if elsewhere:
            hint = f"it is in {elsewhere[0].partition('/')[0]}: name it with --namespace"
        else:
            own = [key.partition("/")[2] for key in self.pods if key.startswith(f"{namespace}/")]
            hint = did_you_mean(name, own) or "name its namespace with --namespace"
        raise StowplanError(f"no pod `{name}` is recorded in namespace `{namespace}`\nhint: {hint}")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the one pod in a YAML or JSON file, as plain JSON values; `-` reads standard input.

    Of a workload that is a pod of its template, as its controller sends it. Objects of other kinds
    beside it are skipped.

    Raises:
        InvalidFileError: the file cannot be read, or does not hold one pod or workload.
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
    """Return the request that creating a pod would make, with the pod as webhooks get it.

    Args:
        manifest: of the pod.
        namespace: of a pod that names none.
        view: for the labels of the namespace, and for what the API server adds to pods.
        notes: gets what it would add, or refuse, and is not known.
    """
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
    """Return the pod that an object is, or stands for; see `read_manifest`.

    Raises:
        InvalidFileError: it is neither a pod nor a workload, or has mistakes.
    """
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
