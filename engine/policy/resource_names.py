"""Misspelt resource names, in expressions and in the args of plugins.

No node has a misspelt resource, so without this check every pod and node would pass silently.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.documents import Document, Path
from engine.errors import Diagnostic, did_you_mean
from engine.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar

BY_RESOURCE: Final = frozenset(
    {
        "defaultLimitToAllocatableRatio",
        "defaultLimits",
        "defaultRequests",
        "estimatedScalingFactors",
        "prodUsageThresholds",
        "resourceWeights",
        "riskLimitWeights",
        "scoringResourceWeights",
        "usageThresholds",
    }
)
"""Arguments that are maps by resource name, in any plugin."""

LISTS_OF_RESOURCES: Final = frozenset({"ignoredResources", "resources", "supportedResources"})
"""Arguments that are lists of resources, in any plugin: names, or mappings with a `name`."""

_VENDOR_HINT = "resources of a vendor are named with its domain, as `nvidia.com/gpu`"
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def hint_if_misspelt(name: str) -> str:
    """Return a hint for a resource that Kubernetes cannot have, "" if it can.

    A name without a domain can only be one of Kubernetes' own.
    """
    if name in _NATIVE or "/" in name or is_scalar(name):
        return ""
    return did_you_mean(name, _NATIVE) or _VENDOR_HINT


def misspelt_in_args(args: object, document: Document, at: Path) -> Iterator[Diagnostic]:
    """Yield a problem for each resource that args name and Kubernetes cannot have.

    Args:
        args: the plain value; parts of a wrong shape are skipped, the schema reports them.
        document: the document that holds it.
        at: the path that leads to it.
    """
    for key, value in args.items() if isinstance(args, dict) else ():
        path = (*at, key)
        if key in BY_RESOURCE and isinstance(value, dict):
            for name in value:
                if hint := hint_if_misspelt(name):
                    yield document.problem_at_key((*path, name), _message(key, name), hint=hint)
        elif key in LISTS_OF_RESOURCES and isinstance(value, list):
            for index, item in enumerate(value):
                name = item.get("name") if isinstance(item, dict) else item
                if isinstance(name, str) and (hint := hint_if_misspelt(name)):
                    below = (index, "name") if isinstance(item, dict) else (index,)
                    yield document.problem((*path, *below), _message(key, name), hint=hint)
        else:
            yield from misspelt_in_args(value, document, path)


def _message(of: str, name: str) -> str:
    return f"`{of}` cannot have a resource `{name}`"
