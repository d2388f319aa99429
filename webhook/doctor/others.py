"""How long may the creation of a pod take, with all the webhooks that are asked about it?"""

from __future__ import annotations

from collections.abc import AsyncIterator

from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import MUTATING, VALIDATING, Installation
from webhook.doctor.objects import Webhook

_TOO_LONG_SECONDS = 30  # half of what the API server gives a request; callers often give less
_MOST_NAMED = 8


async def others(at: Installation) -> AsyncIterator[Finding]:
    """Add up time-outs: mutating webhooks are asked in turn, validating ones at once."""
    found: dict[str, list[Webhook]] = {
        kind: [
            webhook
            for configuration in configurations
            for webhook in configuration.webhooks
            if webhook.sees_new_pods
        ]
        for kind, configurations in (await at.configurations()).items()
    }
    one_by_one = sum(webhook.timeout_seconds for webhook in found[MUTATING])
    at_once = max((webhook.timeout_seconds for webhook in found[VALIDATING]), default=0)
    longest = one_by_one + at_once
    count = len(found[MUTATING]) + len(found[VALIDATING])
    message = (
        f"{count} webhooks are asked about new pods; with all of them away a pod takes {longest} s:"
        f" {one_by_one} s for {len(found[MUTATING])} mutating ones in turn, {at_once} s for the"
        " slowest validating one"
    )
    if longest > _TOO_LONG_SECONDS:
        worst = sorted(found[MUTATING], key=lambda webhook: -webhook.timeout_seconds)
        named = ", ".join(f"{one.name} {one.timeout_seconds} s" for one in worst[:_MOST_NAMED])
        yield Finding(Level.WARNING, message, f"shorten `timeoutSeconds` of the longest: {named}")
    else:
        yield Finding(Level.OK, message)
    strict = sorted(
        {one.name for each in found.values() for one in each if one.failure_policy == "Fail"}
    )
    if strict:
        named = ", ".join(strict[:_MOST_NAMED])
        more = f" and {len(strict) - _MOST_NAMED} more" if len(strict) > _MOST_NAMED else ""
        yield Finding(Level.NOTE, f"pods are not created while one of these is away: {named}{more}")
