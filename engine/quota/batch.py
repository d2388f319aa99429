"""Requests of one namespace judged in order, each as if those before it were stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import msgspec

from engine.model.pod import DeploymentPod
from engine.model.resources import Amounts, greater
from engine.quota.bounds import (
    RESOURCE_QUOTA_RULES,
    CohortUsage,
    QuotaRules,
    effective_max,
    excess,
    limited,
    sum_of,
)
from engine.quota.reservations import MOST_BYTES, Reservation
from engine.quota.state import PendingWrite, QuotaState, no_pods
from engine.quota.verdict import (
    CountedPods,
    QuotaVerdict,
    ReplacedPods,
    beside,
    judge,
    judge_borrowing,
    no_replaced_pods,
    surplus_of,
)

_MOST_NAMES = 8  # a pod can name thousands of resources
_MOST_REPLACED = 16  # pods of an older revision that are tried


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """A request for a share of the quotas of a namespace.

    Attributes:
        reservation: to be made; its amounts are all that the pod requests.
        dry_run: whether to judge only, and reserve nothing.
        of: the Deployment that a new pod is of; None for none, or for a change of a pod.
        has_no_turn: whether the pods of its namespace wait for their turn, and this one does not.
    """

    reservation: Reservation
    dry_run: bool = False
    of: DeploymentPod | None = None
    has_no_turn: bool = False


Lends: TypeAlias = Callable[[QuotaRequest, Amounts], QuotaVerdict]
"""Whether a request that has no turn may be admitted beside all that wait, given what its namespace
uses. What is admitted counts for all that follow."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Verdicts on a batch, and the writes that they rest on.

    Attributes:
        verdicts: in the order of the requests; None where none is possible: there is no room among
            the reservations, or the reservation of a late request was given up.
        writes: to be made before any verdict is returned.
        awaits_recall: for each request, whether only the allowances of other replicas are in its
            way; those give them back when they learn how little is free.
    """

    verdicts: tuple[QuotaVerdict | None, ...]
    writes: tuple[tuple[QuotaState, PendingWrite], ...]
    awaits_recall: tuple[bool, ...]


@dataclass(slots=True)
class _Tally:
    """A quota while a batch is judged."""

    state: QuotaState
    counted: CountedPods  # what the pods in the view count, by name
    named: dict[str, dict[str, int]]  # greatest amounts reserved for a whole pod of each name
    used: dict[str, int]  # by pods and reservations, those of admitted requests included
    recallable: Amounts  # part of `used` in allowances of other replicas
    size: int  # bytes of the annotation, at most
    # reservations of the pods that are above `max` until others have ended
    surging: list[Reservation]
    added: list[Reservation] = field(default_factory=list)  # reservations of admitted requests

    def free(self, rules: QuotaRules) -> Amounts:
        """Amounts free of each resource that the quota limits; below 0 where it is exceeded."""
        bounds = effective_max(self.state.quota, rules)
        return {name: bound - self.used.get(name, 0) for name, bound in bounds.items()}

    def used_beside(self, reservation: Reservation) -> Amounts:
        """Amounts used, but for the part that counts for other pods of the same name.

        Only one pod of a name can be stored: the new one will not exist beside them.
        """
        shared = self.shared(reservation)
        if not shared:
            return self.used
        return {name: amount - shared.get(name, 0) for name, amount in self.used.items()}

    def may_surge(self, reservation: Reservation, rules: QuotaRules) -> bool:
        """Whether a surge fits but for what comes back with the pod that it is to replace."""
        # A pod is replaced once; none replaces itself, or one that surges.
        taken = {name for pod in self.surging for name in (pod.name, pod.replaces)}
        taken.add(reservation.name)
        if (
            not self.state.quota.allows_surge
            or reservation.replaces in taken
            or any(pod.surge == reservation.surge for pod in self.surging)
        ):
            return False
        surplus = surplus_of([*self.surging, reservation], self.counted)
        return self.fits(reservation, beside(self.used_beside(reservation), surplus), rules)

    def used_after_recall(self, reservation: Reservation) -> Amounts:
        """Amounts used beside a request once other replicas have given their allowances back."""
        return excess(self.used_beside(reservation), self.recallable)

    def fits(self, reservation: Reservation, used: Amounts, rules: QuotaRules) -> bool:
        """Whether a request is within `max`, given what is used."""
        return judge(reservation.amounts, used, [self.state.quota], rules).allowed

    def add(self, reservation: Reservation) -> None:
        """Count an admitted request, for those that follow."""
        self.added.append(reservation)
        if reservation.surge:
            self.surging.append(reservation)
        self.size += reservation.size
        shared = self.shared(reservation)
        for name, amount in reservation.amounts.items():
            self.used[name] = self.used.get(name, 0) + amount - shared.get(name, 0)
        if reservation.holds_named_pod:
            name = reservation.name
            self.named[name] = greater(self.named.get(name, {}), reservation.amounts)

    def shared(self, reservation: Reservation) -> Amounts:
        """Amounts of a request that count already, for other pods of its name; sparse."""
        if not reservation.holds_named_pod:
            return {}
        held = greater(self.named.get(reservation.name, {}), self.counted(reservation.name))
        amounts = reservation.amounts
        return {
            name: min(amount, amounts[name]) for name, amount in held.items() if name in amounts
        }


def judge_batch(  # noqa: PLR0913 - what is known of a namespace, and of its pods by name
    batch: Iterable[QuotaRequest],
    used: Amounts,
    states: Sequence[QuotaState],
    now: float,
    rules: QuotaRules = RESOURCE_QUOTA_RULES,
    cohort: CohortUsage | None = None,
    *,
    counted: CountedPods = no_pods,
    replaced: ReplacedPods = no_replaced_pods,
    lends: Lends | None = None,
) -> BatchResult:
    """Judge requests; each must fit every quota of the namespace.

    Args:
        batch: in order of arrival.
        used: by the pods in the view.
        states: of the namespace's quotas.
        now: by the clock of the states.
        rules: what is compared.
        cohort: usage of all namespaces by pods in the view; None without borrowing.
        counted: part of `used` that the pod of a name holds.
        replaced: the pods that a pod of a Deployment may replace.
        lends: judges the pods that have no turn; None where no pod of the namespace waits.
    """
    tallies = [_tally(state, used, counted, now, rules) for state in states]
    if cohort is not None and states:
        cohort = cohort.with_more(states[0].unobserved(counted))
    verdicts, awaits_recall = [], []
    for request in batch:
        more = {} if cohort is None else _more(request.reservation, tallies)
        lender = lends if request.has_no_turn else None
        verdict = _judge(request, tallies, rules, cohort, replaced, lender)
        is_allowed = verdict is not None and verdict.allowed
        verdicts.append(verdict)
        awaits_recall.append(
            verdict is not None and not is_allowed and _awaits_recall(request, tallies, rules)
        )
        if cohort is not None and is_allowed and not request.dry_run:
            cohort = cohort.with_more(more)
    # A pod drawn from an allowance is compared with that alone, so there must be one bound only.
    takes_ahead = cohort is None and len(tallies) == 1
    writes = []
    for tally in tallies:
        state, free = tally.state, tally.free(rules)
        if tally.added or state.needs_rewriting(free, now):
            # Nothing is taken ahead beyond `max`; and a surge is listed, for all to know it.
            is_ahead = takes_ahead and not tally.surging
            write = state.pending_write(tally.added, now, free if is_ahead else None)
            writes.append((state, write))
    return BatchResult(tuple(verdicts), tuple(writes), tuple(awaits_recall))


def end_surges(state: QuotaState, used: Amounts, counted: CountedPods, rules: QuotaRules) -> None:
    """End the surges of a quota that are over, so that the next write removes them.

    Args:
        state: of the quota.
        used: by the pods in the view.
        counted: part of `used` that the pod of a name holds.
        rules: what is compared.
    """
    _surging(state, sum_of((used, state.unobserved(counted))), counted, rules)


def record_demand(
    request: QuotaRequest, states: Sequence[QuotaState], rules: QuotaRules, now: float
) -> None:
    """Count a new request, as a sign of more to come."""
    if not (request.dry_run or request.has_no_turn):
        for state in states:
            state.record_demand(_entry_on(state, request.reservation, rules).amounts, now)


def draw(
    request: QuotaRequest, states: Sequence[QuotaState], rules: QuotaRules, now: float
) -> bool:
    """Admit a request from the allowance of this replica; False where that is not possible."""
    if request.dry_run or request.has_no_turn or len(states) != 1:
        return False
    (state,) = states
    reservation = request.reservation
    if state.has_reservation(reservation.key):
        return not state.is_missing(reservation.key)
    return state.draw(_entry_on(state, reservation, rules), now)


def _tally(
    state: QuotaState, used: Amounts, counted: CountedPods, now: float, rules: QuotaRules
) -> _Tally:
    total = sum_of((used, state.unobserved(counted)))
    return _Tally(
        state=state,
        counted=counted,
        named=state.reserved_by_name(),
        used=total,
        recallable=state.others.recallable(now),
        surging=_surging(state, total, counted, rules),
        size=state.listed_bytes(now),
    )


def _surging(
    state: QuotaState, total: Amounts, counted: CountedPods, rules: QuotaRules
) -> list[Reservation]:
    bounds = effective_max(state.quota, rules)
    is_within_max = all(total.get(name, 0) <= bound for name, bound in bounds.items())
    return state.surging(counted, is_within_max=is_within_max)


def _awaits_recall(request: QuotaRequest, tallies: Sequence[_Tally], rules: QuotaRules) -> bool:
    """Whether `max` denies a request that would fit if other replicas had no allowances."""
    reservation = request.reservation
    return (
        any(tally.recallable for tally in tallies)
        and all(
            tally.fits(reservation, tally.used_after_recall(reservation), rules)
            for tally in tallies
        )
        and not all(
            tally.fits(reservation, tally.used_beside(reservation), rules) for tally in tallies
        )
    )


def _judge(
    request: QuotaRequest,
    tallies: Sequence[_Tally],
    rules: QuotaRules,
    cohort: CohortUsage | None,
    replaced: ReplacedPods,
    lends: Lends | None,
) -> QuotaVerdict | None:
    """Return the verdict on a request; if it is admitted, the next one finds it counted."""
    reservation, amounts = request.reservation, request.reservation.amounts
    if any(tally.state.is_missing(reservation.key) for tally in tallies):
        return None
    # Quotas that limit the pod and have no reservation for it yet, with the amounts they limit.
    concerned = [
        (tally, held)
        for tally in tallies
        if not tally.state.has_reservation(reservation.key)
        and (
            (held := limited(amounts, tally.state.quota, rules))
            or rules.compares_every_pod
            or (amounts and lends is not None)
        )
    ]
    reservation, verdicts = _compared(request, [tally for tally, _ in concerned], rules, replaced)
    if cohort is not None and concerned:
        verdicts.append(judge_borrowing(_more(reservation, tallies), cohort))
    denials = [verdict for verdict in verdicts if not verdict.allowed]
    if denials:
        return QuotaVerdict(
            tuple(name for verdict in denials for name in verdict.exceeded),
            "; ".join(verdict.message for verdict in denials),
        )
    if lends is not None and concerned and not reservation.surge:
        lent = lends(request, tallies[0].used_after_recall(reservation))
        if not lent.allowed:
            return lent
    if request.dry_run:
        return QuotaVerdict()
    entries = [(tally, _entry(reservation, held)) for tally, held in concerned]
    if any(tally.size + entry.size > MOST_BYTES for tally, entry in entries):
        return None
    for tally, entry in entries:
        tally.add(entry)
    return QuotaVerdict()


def _compared(
    request: QuotaRequest, tallies: Sequence[_Tally], rules: QuotaRules, replaced: ReplacedPods
) -> tuple[Reservation, list[QuotaVerdict]]:
    """Return the reservation to be made, as a surge where it fits so alone, and the verdicts."""
    reservation = request.reservation
    verdicts = [
        judge(reservation.amounts, tally.used_beside(reservation), [tally.state.quota], rules)
        for tally in tallies
    ]
    exceeded = [
        tally for tally, verdict in zip(tallies, verdicts, strict=True) if not verdict.allowed
    ]
    if request.of is None or not any(tally.state.quota.allows_surge for tally in exceeded):
        return reservation, verdicts
    for name in islice(replaced(request.of), _MOST_REPLACED):
        surge = msgspec.structs.replace(reservation, surge=request.of.deployment, replaces=name)
        if all(tally.may_surge(surge, rules) for tally in exceeded):
            return surge, []
    return reservation, verdicts


def _more(reservation: Reservation, tallies: Sequence[_Tally]) -> Amounts:
    """Return what a request adds to what its namespace uses."""
    return excess(reservation.amounts, tallies[0].shared(reservation)) if tallies else {}


def _entry_on(state: QuotaState, reservation: Reservation, rules: QuotaRules) -> Reservation:
    return _entry(reservation, limited(reservation.amounts, state.quota, rules))


def _entry(reservation: Reservation, held: dict[str, int]) -> Reservation:
    """Return the entry of a quota: with all resources, because its `max` may limit more later."""
    positive = {name: amount for name, amount in reservation.amounts.items() if amount > 0}
    amounts = positive if len(positive) <= _MOST_NAMES else held
    return msgspec.structs.replace(reservation, amounts=amounts)
