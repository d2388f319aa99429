"""A pod manifest as a person writes it, turned into the request that creating it would make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import Diagnostic, InvalidFileError
from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.view import ClusterView
from webhook.admission.review_result import pod_in
from webhook.admission.wire import PODS, AdmissionRequest, GroupVersionKind
from webhook.cluster import read_objects
from webhook.cluster.decode_errors import UNREADABLE, decode_errors
from webhook.cluster.objects import ApiObject

_STANDARD_INPUT = Path("/dev/stdin")
_POD = GroupVersionKind(version="v1", kind="Pod")


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the one Pod in a YAML or JSON file, as plain JSON values; `-` reads standard input.

    What the API server fills in before anyone is asked, and decisions depend on, is filled in.

    Raises:
        InvalidFileError: the file cannot be read, or does not hold one Pod and nothing else.
    """
    file = _STANDARD_INPUT if path == Path("-") else path
    objects: list[ApiObject] = []
    for found in read_objects(file):
        if isinstance(found, Diagnostic):
            raise InvalidFileError([found])
        objects.append(found)
    if len(objects) != 1:
        message = f"expected one Pod, found {len(objects)} objects"
        raise InvalidFileError([Diagnostic(file=str(file), message=message)])
    manifest = _checked(objects[0])
    _default_requests(manifest)
    return manifest


def placement_request(
    manifest: Mapping[str, Any], *, namespace: str, view: ClusterView
) -> PlacementRequest:
    """Return the request that creating a pod would make.

    Args:
        manifest: as `read_manifest` gives it.
        namespace: where it is created, if it does not say so itself.
        view: the cluster, for the labels of the namespace.
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


def _checked(found: ApiObject) -> dict[str, Any]:
    """Return an object as plain values if it is a pod that makes sense."""
    if (found.group, found.kind) != ("", "Pod"):
        hint = "give a pod itself: the one below `template`, say, with `kind: Pod` above it"
        message = f"expected a Pod, not a `{found.kind[:64]}`"
        raise InvalidFileError([found.problem(("kind",), message, hint)])
    try:
        pod_of(found.decode(api.Pod))
    except UNREADABLE as error:
        problems = decode_errors(found, api.Pod, error)
        raise InvalidFileError([replace(problem, hint="") for problem in problems]) from error
    manifest: dict[str, Any] = msgspec.convert(found.plain(), dict[str, Any])
    return manifest


def _default_requests(manifest: Mapping[str, Any]) -> None:
    """Let containers request their limits where they request nothing else.

    Source: Kubernetes, pkg/apis/core/v1/defaults.go, SetDefaults_Pod.
    """
    spec = manifest.get("spec") or {}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
