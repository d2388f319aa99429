"""The checks, in the order they are told of."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus

import msgspec

from webhook.cluster.client.connection import ApiError
from webhook.doctor.admission import admission
from webhook.doctor.certificates import certificates
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation
from webhook.doctor.objects import Version
from webhook.doctor.others import others
from webhook.doctor.platform import platform
from webhook.doctor.replicas import replicas
from webhook.doctor.rights import rights
from webhook.doctor.sources import sources

Check = Callable[[Installation], AsyncIterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "admission": admission,
    "replicas": replicas,
    "certificates": certificates,
    "sources": sources,
    "rights": rights,
    "webhooks": others,
    "platform": platform,
}


async def examine(at: Installation) -> dict[str, list[Finding]]:
    """Return what each check found; one that cannot be made is a finding itself.

    Raises:
        ApiError: the API server cannot be asked at all.
    """
    await at.read("/version", Version)
    return {name: await _made(check, at) for name, check in CHECKS.items()}


async def _made(check: Check, at: Installation) -> list[Finding]:
    found = []
    try:
        async for finding in check(at):
            found.append(finding)  # noqa: PERF401 - what was found before a failure is kept
    except ApiError as error:
        advice = ""
        if error.status == HTTPStatus.FORBIDDEN:
            advice = "run it as somebody who may: it only reads, and tries a pod as a dry run"
        found.append(Finding(Level.WARNING, f"cannot be checked: {error.message}", advice))
    except msgspec.DecodeError as error:
        found.append(
            Finding(Level.WARNING, f"cannot be checked: an answer makes no sense: {error}")
        )
    return found
