"""Why a pod waits for its quota, as data and as a sentence; and the decision of a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.model.elastic_quota import QuotaKey
from engine.model.quantity import amount_text
from engine.model.queued_condition import QueuedReason
from engine.model.time import Micros

_NEVER: Final = "it alone requests more than max: it is released once max allows it"


class Lack(NamedTuple):
    """A resource of which a pod cannot have enough now.

    Attributes:
        resource: its name.
        needed: by the pod, base units.
        free: what is left; below 0 where more is used than there is.
        bound: the quota whose bound it is, None for the cohort.
    """

    resource: str
    needed: int
    free: int
    bound: QuotaKey | None


class Borrower(NamedTuple):
    """A quota that uses more of a resource than its min; `amount` is what is above, base units."""

    quota: QuotaKey
    resource: str
    amount: int


class QuotaWait(NamedTuple):
    """Why a pod waits for its quota.

    Attributes:
        reason: for its condition.
        quota: whose queue it is in.
        position: its place among those of the quota that wait, from 1, in the queue order.
        of: how many of the quota wait.
        is_within_min: whether all that it requests of what min names is within min.
        since: when it began to wait.
        lacks: of what there is not enough; of bounds, or else of the cohort.
        blocked_by: who borrows what the cohort lacks, the most first; at most 3 of each resource.
        behind: the pod of its quota that nothing overtakes, as it has waited for long; "" for none.
        refusal: why its release was refused although it fits by what is known; "" if it was not.
    """

    reason: QueuedReason
    quota: QuotaKey
    position: int
    of: int
    is_within_min: bool
    since: Micros
    lacks: tuple[Lack, ...] = ()
    blocked_by: tuple[Borrower, ...] = ()
    behind: str = ""
    refusal: str = ""

    @property
    def message(self) -> str:
        """What the pod waits for, such as `needs cpu 2, 1 free; batch borrows cpu 12`."""
        if self.behind:
            return f"pod `{self.behind}` has waited for long and goes first"
        if self.refusal:
            return self.refusal
        never = [_NEVER] if self.reason is QueuedReason.EXCEEDS_MAX else []
        clauses = [*map(_lack_text, self.lacks), *map(_borrower_text, self.blocked_by)]
        return "; ".join([*never, *clauses])


class QuotaRelease(NamedTuple):
    """A pod that its quota lets go.

    Attributes:
        key: `namespace/name`.
        quota: whose queue it was in.
        is_within_min: whether it is within min; else it borrows.
    """

    key: str
    quota: QuotaKey
    is_within_min: bool


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """Which of the queued pods may be released now.

    Attributes:
        released: in the order of their release.
        waits: of all others, by key.
    """

    released: tuple[QuotaRelease, ...]
    waits: Mapping[str, QuotaWait]


def _lack_text(lack: Lack) -> str:
    needed, free = (amount_text(lack.resource, max(each, 0)) for each in (lack.needed, lack.free))
    return f"needs {lack.resource} {needed}, {free} free"


def _borrower_text(borrower: Borrower) -> str:
    namespace, _, name = borrower.quota
    amount = amount_text(borrower.resource, borrower.amount)
    return f"{namespace}/{name} borrows {borrower.resource} {amount}"
