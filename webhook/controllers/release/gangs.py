"""Gangs among held pods: what their release and that of single pods tell each other.

The members of a gang that must start together have one place in the queue, that of the first of
them, and one claim on quota, that of all of them. Whoever waits for its gang is decided and
released by nobody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from engine.gang import GangKey
from engine.view import ClusterView
from webhook.controllers.release.conditions import Wait
from webhook.placement.held_pods import HeldPod


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTurns:
    """The held pods whose turn may come in a cycle.

    Attributes:
        queue: in order, a gang by the member whose place it has; those that wait for other members
            are left out.
        together: by the key of such a member, the pods that are released with it, itself included.
    """

    queue: Sequence[HeldPod]
    together: Mapping[str, Sequence[HeldPod]] = field(default_factory=dict)


class Gangs(Protocol):
    """The gangs whose members are held, as the release controller sees them."""

    @property
    def failed_at(self) -> Mapping[GangKey, datetime]:
        """When gangs that have not started since failed last."""

    def begin(self) -> None:
        """Begin to release gangs; those that an earlier leader has left are found on their pods."""

    async def end(self) -> None:
        """End all writes; what is nominated by then is left to the next leader."""

    def turns(self, ordered: Sequence[HeldPod], view: ClusterView) -> QueueTurns:
        """Return whose turn may come.

        Args:
            ordered: the pods that are not decided, in the queue order.
            view: the cluster.
        """

    def prepare(self, first: HeldPod) -> bool:
        """Place a gang whose turn has come, all of it or nothing; return whether it has room.

        Args:
            first: the member whose place it has.
        """

    def keeps(self, held: HeldPod) -> bool:
        """Return whether a pod waits for its gang."""

    def reserves_from(self, held: HeldPod) -> bool:
        """Return whether a single pod that finds no room must not have what a gang waits for."""

    def prepared(self) -> Iterable[HeldPod]:
        """Return the pods that are nominated and wait for the nominations of their gang."""

    def first(self, held: HeldPod) -> HeldPod:
        """Return the member whose place in the queue a pod has; itself where it has its own."""

    def wait(self, held: HeldPod) -> Wait | None:
        """Return what a pod waits for, None where its gang waits for nothing but its turn."""
