"""Where the kinds of objects live, as an API server lists them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""What to accept of `/api` and `/apis`, for all groups at once."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind of object lives."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """Return the path of all objects, those of a namespace, or one."""
        root = "/apis" if "/" in self.api_version else "/api"
        within = ["namespaces", namespace] if self.namespaced and namespace else []
        parts = [root, self.api_version, *within, self.plural, name, subresource]
        return "/".join(part for part in parts if part)


def resources_in(groups: Iterable[dict[str, Any]]) -> list[Resource]:
    """Return what a discovery lists.

    Args:
        groups: its items.
    """
    return [
        Resource(
            api_version="/".join(
                part for part in (group["metadata"].get("name"), version["version"]) if part
            ),
            kind=resource["responseKind"]["kind"],
            plural=resource["resource"],
            namespaced=resource["scope"] == "Namespaced",
        )
        for group in groups
        for version in group["versions"]
        for resource in version.get("resources", ())
    ]
