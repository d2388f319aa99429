"""The checks, in the order in which they are reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus

import msgspec

from webhook.cluster.client.connection import ApiError
from webhook.doctor.admission import admission, rollout, webhooks
from webhook.doctor.bindings import bindings
from webhook.doctor.certificates import certificates
from webhook.doctor.gangs import gangs
from webhook.doctor.held_pods import held_pods, hold_limits
from webhook.doctor.installation import Finding, Installation, Level
from webhook.doctor.objects import Version
from webhook.doctor.platform import other_controllers, platform
from webhook.doctor.policies import policies, priority_classes
from webhook.doctor.quota_queues import quota_queues
from webhook.doctor.replicas import addresses, replicas, sources
from webhook.doctor.rights import rights

Check = Callable[[Installation], AsyncIterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "addresses": addresses,
    "admission": admission,
    "bindings": bindings,
    "rollout": rollout,
    "replicas": replicas,
    "certificates": certificates,
    "sources": sources,
    "rights": rights,
    "webhooks": webhooks,
    "policies": policies,
    "held pods": held_pods,
    "hold limits": hold_limits,
    "quota queues": quota_queues,
    "gangs": gangs,
    "priority classes": priority_classes,
    "other controllers": other_controllers,
    "platform": platform,
}


async def run_checks(installation: Installation) -> dict[str, list[Finding]]:
    """Return the findings of each check; one that fails is a finding itself.

    Raises:
        ApiError: the API server does not answer at all.
    """
    await installation.read("/version", Version)
    return {name: await _run(check, installation) for name, check in CHECKS.items()}


async def _run(check: Check, installation: Installation) -> list[Finding]:
    findings = []
    try:
        async for finding in check(installation):
            findings.append(finding)  # noqa: PERF401 - findings before a failure count
    except ApiError as error:
        advice = ""
        if error.status == HTTPStatus.FORBIDDEN:
            advice = "run it as somebody who may: it only reads, and tries a pod as a dry run"
        findings.append(Finding(Level.WARNING, f"cannot be checked: {error.message}", advice))
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: a date of a replica
        message = f"cannot be checked: an answer makes no sense: {error}"
        findings.append(Finding(Level.WARNING, message))
    return findings
