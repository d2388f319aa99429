"""The quotas of a cluster at one moment: how full each is, what it borrows, what waits for it."""

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


class QuotaAmount(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One resource of a quota, in base units; see `engine.model.quantity.amount_text`.

    Attributes:
        used: by the requests of its pods.
        reserved: for pods that were admitted and are not observed yet.
        min: guaranteed; None where it names none.
        max: the limit; None where it names none.
        runtime: what its pods may use now; None where its quotas form no tree.
        borrowed: used beyond `min`, where pods wait for quota.
        lent: of `min`, unused and used by others, where pods wait for quota.
    """

    resource: str
    used: int
    reserved: int = 0
    min: int | None = None
    max: int | None = None
    runtime: int | None = None
    borrowed: int = 0
    lent: int = 0


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One quota.

    Attributes:
        group: its API group.
        mode: what becomes of pods that exceed it: Enforce, Queue, Audit or Off.
        amounts: sorted by resource.
        queued: pods that wait for it.
        max_queued: pods that may wait for it.
    """

    namespace: str
    name: str
    group: str
    mode: str
    amounts: tuple[QuotaAmount, ...]
    queued: int = 0
    max_queued: int = 0


class QuotasReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The quotas of a cluster or of a namespace.

    Attributes:
        total: how many there are; `quotas` may be fewer.
        quotas: sorted by namespace and name.
    """

    total: int
    quotas: tuple[QuotaRow, ...]
