"""What the server says about itself: versions, groups and the resources in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fake_api_server.resources import Resource

_VERSION = {
    "major": "1",
    "minor": "35",
    "gitVersion": "v1.35.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def discovered(path: str, installed: Iterable[Resource]) -> dict[str, Any] | None:
    """Return the discovery document at `path`; None where there is none."""
    path = path.rstrip("/")
    groups: dict[str, list[Resource]] = {}
    for resource in installed:
        groups.setdefault(resource.group, []).append(resource)
    if path == "/version":
        return _VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        named = [_group(name, resources) for name, resources in groups.items() if name]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
    for name, resources in groups.items():
        if path == resources[0].root:
            return _resource_list(resources)
        if name and path == f"/apis/{name}":
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, resources)}
    return None


def _group(name: str, resources: list[Resource]) -> dict[str, Any]:
    version = {"groupVersion": resources[0].api_version, "version": resources[0].version}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(resources: list[Resource]) -> dict[str, Any]:
    entries = []
    for resource in resources:
        entry = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
            "kind": resource.kind,
        }
        entries.append({**entry, "verbs": resource.verbs})
        if resource.has_status:
            status = {**entry, "name": f"{resource.plural}/status", "singularName": ""}
            entries.append({**status, "verbs": ["get", "patch", "update"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": resources[0].api_version,
        "resources": entries,
    }
