"""A pod manifest as a person writes it, turned into what the webhook gets."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from engine.errors import InvalidFileError, Problem
from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the one Pod in a YAML or JSON file; `-` reads standard input.

    Raises:
        InvalidFileError: the file cannot be read, or does not hold exactly one Pod.
    """
    name = "standard input" if path == Path("-") else str(path)
    try:
        text = sys.stdin.read() if path == Path("-") else path.read_text(encoding="utf-8")
        documents = [doc for doc in yaml.load_all(text, yaml.CSafeLoader) if doc is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(name, f"cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise _invalid(name, f"not YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise _invalid(name, "expected one object", hint="give a manifest with a single Pod")
    manifest: dict[str, Any] = documents[0]
    if manifest.get("kind") != "Pod":
        kind = str(manifest.get("kind"))[:64]
        raise _invalid(name, f"expected kind Pod, not `{kind}`", hint="give the pod, not its owner")
    return manifest


def placement_request(
    manifest: Mapping[str, Any], *, namespace: str, namespace_labels: Mapping[str, str]
) -> PlacementRequest:
    """Return the request that creating this pod would make.

    Raises:
        InvalidFileError: a field has a value that the API would not take.
    """
    raw = msgspec.json.encode(manifest)
    try:
        pod = pod_of(msgspec.json.decode(raw, type=api.Pod), namespace=namespace)
    except ValueError as error:
        name = str((manifest.get("metadata") or {}).get("name", "pod"))
        raise _invalid(name, str(error)) from error
    return PlacementRequest(
        pod=pod,
        raw=raw,
        namespace_labels=namespace_labels,
        request={"operation": "CREATE", "namespace": pod.namespace, "name": pod.name},
    )


def _invalid(name: str, message: str, hint: str = "") -> InvalidFileError:
    return InvalidFileError([Problem(file=name, message=message, hint=hint)])
