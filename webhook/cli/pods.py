"""Pod manifests, and the placement request that their creation would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.request import PlacementRequest
from engine.model.workload import WORKLOADS, default_requests
from engine.simulation import RecordedPod
from engine.view import ClusterView
from webhook.admission.review_result import pod_in
from webhook.admission.wire import PODS, AdmissionRequest, GroupVersionKind
from webhook.cli.workloads import pod_object
from webhook.cluster import read_objects
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject

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


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the one pod in a YAML or JSON file, as plain JSON values; `-` reads standard input.

    Of a workload that is a pod of its template. Defaults that the API server sets before admission
    are set, as far as decisions depend on them. Objects of other kinds beside it are skipped.

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
    manifest: Mapping[str, Any], *, namespace: str, view: ClusterView
) -> PlacementRequest:
    """Return the request that creating a pod would make.

    Args:
        manifest: of the pod.
        namespace: of a pod that names none.
        view: for the labels of the namespace.
    """
    raw = msgspec.json.encode(manifest)
    request = AdmissionRequest(
        uid="explain",
        operation="CREATE",
        kind=_POD,
        resource=PODS,
        namespace=(manifest.get("metadata") or {}).get("namespace") or namespace,
        name=(manifest.get("metadata") or {}).get("name") or "",
        object=msgspec.Raw(raw),
    )
    pod = pod_in(request)
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
        default_requests(manifest)
        pod_of(msgspec.convert(manifest, api.Pod))
    except UNREADABLE as error:
        problems = decode_errors(pod, api.Pod, error)
        raise InvalidFileError([replace(problem, hint="") for problem in problems]) from error
    return manifest
