"""Where our MutatingWebhookConfiguration says whether new pods are asked about."""

from __future__ import annotations

from typing import Final

PLACEMENT_WEBHOOK: Final = "placement.stowplan.dev"
"""The webhook that is asked about new pods."""

CREATION_CONDITION: Final = "something-is-said-of-new-pods"
"""Name of a condition of this webhook whose expression is `false`; where it is, nobody is asked."""
