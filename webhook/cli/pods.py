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
from engine.simulation import RecordedPod
from engine.view import ClusterView
from webhook.admission.review_result import pod_in
from webhook.admission.wire import PODS, AdmissionRequest, GroupVersionKind
from webhook.cluster import read_objects
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject

_STANDARD_INPUT = Path("/dev/stdin")
TEMPLATES: Final = {
    "CronJob": "spec.jobTemplate.spec.template",
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"), "spec.template"
    ),
}
"""Place of the template of pods, by kind."""

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
    """Return the one Pod in a YAML or JSON file, as plain JSON values; `-` reads standard input.

    Defaults that the API server sets before admission are set, as far as decisions depend on them.

    Raises:
        InvalidFileError: the file cannot be read, or does not hold one Pod and nothing else.
    """
    file = _STANDARD_INPUT if path == Path("-") else path
    objects: list[ApiObject] = []
    for item in read_objects(file):
        if isinstance(item, Diagnostic):
            raise InvalidFileError([item])
        objects.append(item)
    if len(objects) != 1:
        message = f"expected one Pod, found {len(objects)} objects"
        raise InvalidFileError([Diagnostic(file=str(file), message=message)])
    manifest = _valid_pod(objects[0])
    default_requests(manifest)
    return manifest


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


def _valid_pod(found: ApiObject) -> dict[str, Any]:
    """Return a valid pod as plain values."""
    if (found.group, found.kind) != ("", "Pod"):
        template = TEMPLATES.get(found.kind)
        hint = (
            f"give one of its pods: what is below `{template}`, with `apiVersion: v1` and"
            " `kind: Pod` above it"
            if template
            else "give the manifest of one Pod"
        )
        message = f"expected a Pod, not a `{found.kind[:64]}`"
        raise InvalidFileError([found.problem(("kind",), message, hint)])
    try:
        pod_of(found.decode(api.Pod))
    except UNREADABLE as error:
        problems = decode_errors(found, api.Pod, error)
        raise InvalidFileError([replace(problem, hint="") for problem in problems]) from error
    manifest: dict[str, Any] = msgspec.convert(found.plain(), dict[str, Any])
    return manifest


def default_requests(manifest: Mapping[str, Any]) -> None:
    """Set in place the requests of containers to their limits, for resources without a request.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Pod.
    """
    spec = manifest.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
