"""The verdict of quotas on a pod, as reports show it."""

from __future__ import annotations

import msgspec


class QuotaReport(msgspec.Struct, frozen=True):
    """The verdict of the quotas of a namespace.

    Attributes:
        allowed: whether the pod fits each of them.
        message: one clause per quota that it exceeds, as in the denial; "" if it fits.
    """

    allowed: bool
    message: str
