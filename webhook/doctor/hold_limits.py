"""Limits of others that a hold may run into: ResourceQuotas, and deadlines of Deployments."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from engine.errors import QuantityError
from engine.model.quantity import base_units
from engine.model.resource_names import CPU
from webhook.cluster.client.connection import ApiError
from webhook.cluster.held_pod_list import list_held_pods
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import Deployment, ObjectList, PodSpec, ResourceQuota
from webhook.placement.held_pods import DEFAULT_HOLD_SECONDS

_MOST_NAMED: Final = 3
_MOST_NAMESPACES: Final = 20  # whose ResourceQuotas are read
_DEADLINES_READ: Final = 500


async def hold_limits(installation: Installation) -> AsyncIterator[Finding]:
    """Find what pods run into that wait, and yet exist."""
    deployment = await installation.deployment()
    if deployment is None:
        return
    spec = deployment.spec.template.spec
    if spec.setting("STOWPLAN_HOLD") != "true":
        return
    findings = [finding async for finding in _resource_quotas(installation)]
    findings += await _deadlines(installation, spec)
    for finding in findings:
        yield finding
    if not findings:
        yield Finding(Level.OK, "no ResourceQuota and no deadline of a Deployment is in the way")


async def _resource_quotas(installation: Installation) -> AsyncIterator[Finding]:
    """Yield ResourceQuotas that are used up in part by pods that are only held."""
    listed = await list_held_pods(installation.connection)
    counts = Counter(each.pod.namespace for each in listed)
    for namespace, held in counts.most_common(_MOST_NAMESPACES):
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        for quota in (await installation.read(path, ObjectList[ResourceQuota])).items:
            full = sorted(name for name in quota.status.hard if _is_full(quota, name))
            name = f"{namespace}/{quota.metadata.name}"
            if full:
                yield Finding(
                    Level.WARNING,
                    f"ResourceQuota {name} is used up ({', '.join(full)}) while pods are held"
                    f" there: {held}",
                    "held pods count from their creation: raise it above what runs and waits",
                )


def _is_full(quota: ResourceQuota, name: str) -> bool:
    """Return whether nothing is left of a resource; in thousandths, as of cpu, whatever it is."""
    try:
        hard = base_units(CPU, quota.status.hard[name])
        used = base_units(CPU, quota.status.used.get(name, 0))
    except QuantityError:
        return False
    return 0 < hard <= used


async def _deadlines(installation: Installation, spec: PodSpec) -> list[Finding]:
    """Return a finding on Deployments that give up before a pod must be released."""
    setting = spec.setting("STOWPLAN_HOLD_SECONDS")
    bound = int(setting) if setting.isdecimal() else DEFAULT_HOLD_SECONDS
    try:
        deployments = await installation.read(
            "/apis/apps/v1/deployments", ObjectList[Deployment], limit=str(_DEADLINES_READ)
        )
    except ApiError:
        return []  # they are read for this alone, and by few accounts
    short = [
        f"{each.metadata.namespace}/{each.metadata.name}"
        for each in deployments.items
        if (each.spec.progress_deadline_seconds or bound) < bound
    ]
    if not short:
        return []
    return [
        Finding(
            Level.WARNING,
            f"{len(short)} Deployments count as failed (`progressDeadlineSeconds`) before the"
            f" {bound} s are over for which a pod may be held: {', '.join(short[:_MOST_NAMED])}",
            "raise it there, or lower `hold.seconds`",
        )
    ]
