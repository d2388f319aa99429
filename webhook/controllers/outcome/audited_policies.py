"""The policies that are in Audit mode for what they did, on every replica.

The leader says on the Lease which ones: every replica reads that within seconds. While nobody
leads, what was said last stays in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from engine.report import AuditedPolicy
from webhook.cluster.decode_errors import UNREADABLE
from webhook.placement.live_policies import LivePolicies

AUDITED_ANNOTATION: Final = "stowplan.dev/audited-policies"
"""On the Lease: JSON of `AuditedPolicy` by name."""

_SECONDS: Final = 1.0


class AuditedPolicies:
    """Follows what the leader says.

    Args:
        policies: those in force, which are changed.
        lease_annotations: those of the Lease as this replica observes it.
    """

    def __init__(
        self, policies: LivePolicies, lease_annotations: Callable[[], Mapping[str, str]]
    ) -> None:
        self._policies = policies
        self._lease_annotations = lease_annotations
        self._last = ""

    async def follow(self) -> None:
        """Repeat until cancelled."""
        while True:
            self.read()
            await asyncio.sleep(_SECONDS)

    def read(self) -> None:
        """Do what the Lease says, if it says anything new."""
        text = self._lease_annotations().get(AUDITED_ANNOTATION, "")
        if not text or text == self._last:
            return
        self._last = text
        try:
            audited = msgspec.json.decode(text, type=dict[str, AuditedPolicy])
        except UNREADABLE:
            return
        self.use(audited)

    def use(self, audited: Mapping[str, AuditedPolicy]) -> None:
        """Keep these policies in Audit mode, and no others."""
        self._policies.keep_in_audit({name: each.digest for name, each in audited.items()})
