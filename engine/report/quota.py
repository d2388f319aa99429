"""The verdict of quotas on a pod, as reports show it."""

from __future__ import annotations

import msgspec


class QuotaReport(msgspec.Struct, frozen=True):
    """The verdict of the quotas of a namespace.

    Attributes:
        allowed: whether the pod fits each of them.
        message: one clause per quota that it exceeds, as in the denial; "" if it fits.
        queues: whether the namespace has pods wait that do not fit, rather than denies them; by its
            annotation, as a recording does not know the mode of the installation.
    """

    allowed: bool
    message: str
    queues: bool = False
