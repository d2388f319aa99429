"""The guard of held pods: no pod is held unless somebody demonstrably releases them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol

from engine.model.hold import REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION, refused_in
from engine.model.time import Micros
from webhook.placement.held_pods import HeldPods

_LONGEST_SILENCE_SECONDS: Final = 15.0
"""Since the last renewal of the Lease; then another replica takes over."""

_MANY: Final = 3
"""Overdue or refused pods of a namespace after which it holds no further ones, whoever is at fault.
"""


class ObservedLease(Protocol):
    """The Lease of the leader election, as one replica observes it."""

    @property
    def holder(self) -> str: ...  # noqa: D102 - "" for none
    @property
    def annotations(self) -> Mapping[str, str]: ...  # noqa: D102 - as the holder wrote them
    @property
    def age_seconds(self) -> float: ...  # noqa: D102 - since the last observed renewal


class Refusal(StrEnum):
    """Why no pod may be held now; the label of its metric."""

    NONE = ""
    NO_LEADER = "no_leader"  # nobody renews the Lease
    NOT_RELEASING = "not_releasing"  # its holder has released no pod lately that was due
    OVERDUE = "overdue"  # pods are held for too long
    FULL = "full"  # too many pods of the namespace are held


class HoldGuard:
    """Says whether pods may be held: while their release can be relied on, and never otherwise.

    A pod whose release is refused is the affair of its namespace: the leader has named that on the
    Lease long before the pod counts as overdue.

    Args:
        lease: the Lease as this replica observes it.
        held: the pods that are held.
    """

    def __init__(self, lease: Callable[[], ObservedLease], held: HeldPods) -> None:
        self._lease = lease
        self._held = held

    def refusal(self, now: Micros, namespace: str = "") -> Refusal:
        """Return why no pod of a namespace may be held at a moment, "" if it may.

        Without a namespace, why none may of any.
        """
        lease = self._lease()
        if not lease.holder or lease.age_seconds >= _LONGEST_SILENCE_SECONDS:
            return Refusal.NO_LEADER
        if lease.annotations.get(RELEASING_ANNOTATION) != "true":
            return Refusal.NOT_RELEASING
        refused = refused_in(lease.annotations.get(REFUSED_IN_ANNOTATION, ""))
        if refused.get(namespace, 0) >= _MANY:  # what waits for quota or a gang is never overdue
            return Refusal.NOT_RELEASING
        overdue = self._held.overdue(now)
        if len(overdue.get(namespace, ())) >= _MANY or not overdue.keys() <= refused.keys():
            return Refusal.OVERDUE
        return Refusal.FULL if self._held.is_full(namespace) else Refusal.NONE
