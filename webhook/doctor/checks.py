"""The checks, in the order in which they are reported, and their runner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec

from webhook.cluster.client.connection import ApiError
from webhook.doctor.admission import admission, bindings, rollout, webhooks
from webhook.doctor.findings import Finding, warning
from webhook.doctor.held_pods import gangs, held_pods, hold_limits, quota_queues
from webhook.doctor.installation import Installation
from webhook.doctor.platform import other_controllers, platform
from webhook.doctor.policies import policies, priority_classes
from webhook.doctor.replicas import addresses, certificates, replicas, sources
from webhook.doctor.rights import rights


@dataclass(frozen=True, slots=True)
class Check:
    """A check."""

    name: str  # as it is reported
    find: Callable[[Installation], Iterable[Finding]]  # yields its findings
    applies: Callable[[Installation], bool] = lambda _: True  # whether it has anything to look at


def _is_deployed(installation: Installation) -> bool:
    return installation.deployment is not None


CHECKS: Final = (
    Check("addresses", addresses, _is_deployed),
    Check("admission", admission),
    Check("bindings", bindings),
    Check("rollout", rollout, _is_deployed),
    Check("replicas", replicas),
    Check("certificates", certificates),
    Check("sources", sources),
    Check("rights", rights),
    Check("webhooks", webhooks),
    Check("policies", policies, lambda it: it.setting("POLICY_RESOURCES") == "true"),
    Check("held pods", held_pods, _is_deployed),
    Check("hold limits", hold_limits, lambda it: it.holds),
    Check("quota queues", quota_queues, _is_deployed),
    Check("gangs", gangs, lambda it: it.holds),
    Check("priority classes", priority_classes, lambda it: it.evicts),
    Check("other controllers", other_controllers),
    Check("platform", platform),
)


async def run_checks(installation: Installation) -> dict[str, list[Finding]]:
    """Return the findings of each check; one that fails is a finding itself.

    Raises:
        ApiError: the API server does not answer at all.
    """
    return await asyncio.to_thread(_run_checks, installation)


def _run_checks(installation: Installation) -> dict[str, list[Finding]]:
    _ = installation.version  # without an answer to this there is none to anything
    return {check.name: _run(check, installation) for check in CHECKS}


def _run(check: Check, installation: Installation) -> list[Finding]:
    findings: list[Finding] = []
    try:
        if check.applies(installation):
            findings.extend(check.find(installation))
    except ApiError as error:
        advice = ""
        if error.status == HTTPStatus.FORBIDDEN:
            advice = "run it as somebody who may: it only reads, and tries a pod as a dry run"
        findings.append(warning(f"cannot be checked: {error.message}", advice))
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: a date of a replica
        findings.append(warning(f"cannot be checked: an answer makes no sense: {error}"))
    return findings
