"""The surge of rollouts: pods above `max` that replace others, while these still run.

A quota whose annotation allows it admits one pod of each Deployment beyond `max`, as far as it
requests no more than a pod of an older revision that it is to replace. The reservation of such a
pod names both. It is kept on the object while both are there and the quota uses more than `max`.

INVARIANT: what a namespace uses, without what its surging pods and those that they replace have in
common, is within `max`; of each Deployment one pod surges at most. For both pods of a surge count
in every view that is current, or are reserved; where either has gone, the usage has fallen by as
much as was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import TypeAlias

import msgspec

from engine.model.deployment_pod import DeploymentPod
from engine.model.resources import Amounts
from engine.quota.bounds import sum_of
from engine.quota.reservations import Reservation

CountedPods: TypeAlias = Callable[[str], Amounts]
"""Returns what a view counts for the pod of a name, none if it has no such pod."""

ReplacedPods: TypeAlias = Callable[[DeploymentPod], Iterable[str]]
"""Returns the names of some pods of older revisions that a pod of a Deployment may replace."""


def no_replaced_pods(_pod: DeploymentPod) -> tuple[str, ...]:
    """Return that no pod may be replaced."""
    return ()


class Surges:
    """The surging pods of one quota, as one replica knows them."""

    def __init__(self) -> None:
        self._ended: set[str] = set()  # keys of reservations

    def retain(self, keys: Container[str]) -> None:
        """Forget all but some reservations."""
        self._ended = {key for key in self._ended if key in keys}

    def lasts(self, reservation: Reservation) -> bool:
        """Return whether a reservation is of a pod that still surges, for all that is known."""
        return bool(reservation.surge) and reservation.key not in self._ended

    def update(
        self,
        reservations: Iterable[Reservation],
        counted: CountedPods,
        *,
        is_observed: Callable[[str], bool],
        is_within_max: bool,
    ) -> None:
        """End the surges that are over: no room beyond `max` is used for them any more.

        Args:
            reservations: of the quota.
            counted: what the view counts for the pod of a name.
            is_observed: whether the view has had the pod of a reservation, by its key: then it has
                had the one that it replaces, which is older.
            is_within_max: whether all that is used, and all that is reserved, is within `max`.
        """
        for pod in reservations:
            if not self.lasts(pod):
                continue
            is_gone = is_observed(pod.key) and not (counted(pod.name) and counted(pod.replaces))
            if is_within_max or is_gone:
                self._ended.add(pod.key)

    def plain(self, reservation: Reservation) -> Reservation:
        """Return a reservation as it is to be written: without a surge that has ended."""
        if not reservation.surge or self.lasts(reservation):
            return reservation
        return msgspec.structs.replace(reservation, surge="", replaces="")


def in_common(requests: Amounts, replaced: Amounts) -> dict[str, int]:
    """Return what a pod requests of what comes back with the one that it replaces."""
    return {
        name: min(amount, replaced[name]) for name, amount in requests.items() if name in replaced
    }


def surplus_of(surging: Iterable[Reservation], counted: CountedPods) -> dict[str, int]:
    """Return what pods use above `max` until those that they replace have ended."""
    return sum_of(in_common(pod.amounts, counted(pod.replaces)) for pod in surging)


def beside(used: Amounts, surplus: Mapping[str, int]) -> Amounts:
    """Return what is used but for the surplus."""
    return {name: amount - surplus.get(name, 0) for name, amount in used.items()}
