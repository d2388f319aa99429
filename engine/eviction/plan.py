"""A plan of evictions, and what it is made from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.eviction.candidates import Candidate
from engine.eviction.guards import GuardState, may_be_evicted
from engine.eviction.steps import Steps, parts_of
from engine.eviction.workloads import WorkloadKey
from engine.model.disruption_budget import DisruptionBudget
from engine.model.elastic_quota import QuotaKey
from engine.model.pod_classes import PriorityClass
from engine.model.pod_shape import PodShape
from engine.model.quantity import PODS
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet
from engine.quota.queueing import QueueSituation
from engine.view import FRESH, ClusterView, Freshness, quota_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAccount:
    """A quota as reclaim counts it, base units.

    Attributes:
        guaranteed: what nobody takes from it; of a resource that is not among them, nothing is.
        used: by its pods, those that are being deleted among them, and by those below it.
        weight: its weight in fair sharing, at least 1.
    """

    guaranteed: Amounts
    used: Amounts
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseSituation:
    """Who may be evicted, and what protects them, of one moment."""

    # the running pods that matter, also those that are being deleted
    candidates: Sequence[Candidate]
    budgets: Sequence[DisruptionBudget] = ()  # all PodDisruptionBudgets
    # all PriorityClasses, by name
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    guards: GuardState = field(default_factory=GuardState)  # what evictions there were so far
    # uids of pods that are about to be evicted, by plans under way
    leaving: AbstractSet[str] = frozenset()
    # namespaces of which no further pods are evicted for now: so many are already
    at_limit: AbstractSet[str] = frozenset()
    # workloads whose ready pods stay: they miss as many pods as they may
    exhausted: AbstractSet[WorkloadKey] = frozenset()
    now: Micros  # the moment

    def on_their_way_out(self) -> Steps[list[Candidate]]:
        """Return the candidates that are leaving already."""
        leaving, found = self.leaving, list[Candidate]()
        for part in parts_of(self.candidates):
            found += [each for each in part if each.pod.deleting or each.pod.uid in leaving]
            yield
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation(BaseSituation):
    """All that a plan is made from, of one moment.

    Attributes:
        view: the cluster, in which the preemptor counts on no node.
        policies: those in force; the view keeps the sums that they need.
        scope: the pods that policies place.
        freshness: the domains of the view that are too old.
        accounts: the quotas, without what the preemptor requests.
        cohort_room: what all quotas together may use more; negative where they use too much. Pods
            that are being deleted still count. Resources that are not among them are not limited.
        lendable: what all quotas together may use, for shares.
    """

    view: ClusterView
    policies: PolicySet
    scope: Scope = field(default_factory=Scope)
    freshness: Freshness = FRESH
    accounts: Mapping[QuotaKey, QuotaAccount]
    cohort_room: Amounts
    lendable: Amounts


class NoPlanReason(StrEnum):
    """Why nothing is to be evicted for a pod."""

    NOT_NEEDED = "NotNeeded"  # there is room, or will be once the pods that are leaving are gone
    NOT_WITHIN_MIN = "NotWithinMin"  # its quota would use more than `min` with it
    PAUSED = "Paused"  # too many reclaims for its namespace came to nothing
    BACKED_OFF = "BackedOff"  # plans for this pod have failed
    STALE = "Stale"  # the cluster is not known well enough to evict anything
    BLOCKED_BY_PDB = "BlockedByPDB"  # it would take pods that their budgets protect now
    # it would take pods that came back after their owners were hit, or whose workloads miss many
    GUARDED = "Guarded"
    AT_LIMIT = "AtLimit"  # it may take pods of namespaces of which many are being evicted
    TOLERATED = "Tolerated"  # it would take pods whose PriorityClass tolerates its priority
    NEVER_PREEMPTS = "NeverPreempts"  # its PriorityClass says that nobody is evicted for it
    UNBOUND_CLAIM = "UnboundClaim"  # a volume claim of the pod keeps it from any node
    NO_VICTIMS = "NoVictims"  # nothing that others borrow makes room for it


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """That nothing is to be evicted.

    Attributes:
        message: one line for a person.
    """

    reason: NoPlanReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A pod to be evicted.

    Attributes:
        key: `namespace/name`.
        quota: that it counts for; None where it counts for none.
        owner: uid of its first owner, its own where it has none.
        assigned_at: when it was bound, microseconds since the epoch.
        node_name: the node that it runs on.
        requests: what its end frees of its quotas, base units.
    """

    key: str
    uid: str
    quota: QuotaKey | None
    owner: str
    assigned_at: int
    node_name: str
    requests: Amounts

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.key.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Pods to be evicted for another, or for those of a gang.

    Attributes:
        node_names: the nodes that take those who get room, in their order, once they are gone.
        victims: the first to be evicted first; none of them can be spared.
        message: one line for a person.
        overrides_budgets: whether a victim that its PodDisruptionBudget protects is deleted.
    """

    node_names: tuple[str, ...]
    victims: tuple[Victim, ...]
    message: str
    overrides_budgets: bool = False

    @property
    def node_name(self) -> str:
        """The node of the first of them, who mostly is alone."""
        return self.node_names[0]


def guards_allow(situation: BaseSituation, each: Candidate) -> bool:
    """Return whether no guard stands against an eviction."""
    pod = each.pod
    if pod.namespace in situation.at_limit or (
        pod.is_ready and pod.workload in situation.exhausted
    ):
        return False
    return may_be_evicted(situation.guards, pod, each.entry.assigned_at, situation.now)


def victims_of(pods: Iterable[Candidate], node_names: Sequence[str]) -> tuple[Victim, ...]:
    """Return pods, each on a node, as plans name them, in the same order."""
    return tuple(
        Victim(
            key=each.pod.key,
            uid=each.pod.uid,
            quota=each.quotas[0] if each.quotas else None,
            owner=each.pod.owner,
            assigned_at=each.entry.assigned_at,
            node_name=node_names[each.entry.row],
            requests=quota_requests(each.entry.shape),
        )
        for each in pods
    )


def requests_by_quota(candidates: Collection[Candidate]) -> dict[QuotaKey, dict[str, int]]:
    """Return what pods request, by each quota that they count for."""
    total: dict[QuotaKey, dict[str, int]] = {}
    for candidate in candidates:
        for quota in candidate.quotas:
            amounts = total.setdefault(quota, {})
            for name, amount in quota_requests(candidate.entry.shape).items():
                amounts[name] = amounts.get(name, 0) + amount
    return total


_NOTHING: Amounts = {}
_NONE: Mapping[QuotaKey | None, Amounts] = {}


class QuotaStanding(NamedTuple):
    """The quotas of one moment, without the pods that a plan is for.

    Attributes:
        accounts: of each quota that shares the cohort.
        cohort_room: what all together may use more, see `Situation`.
        lendable: what all together may use.
    """

    accounts: dict[QuotaKey, QuotaAccount]
    cohort_room: Amounts
    lendable: Amounts


def quota_standing(
    situation: QueueSituation,
    shapes: Iterable[PodShape],
    counted: Mapping[QuotaKey | None, Amounts] = _NONE,
) -> QuotaStanding:
    """Return how quotas stand for pods that get room together.

    Args:
        situation: of all queues.
        shapes: of the pods.
        counted: what the situation counts of the pods already, by the quota that they are counted
            for, None for those of none; it is left out.
    """
    capacity, used = situation.cohort.capacity, situation.cohort.used
    for amounts in counted.values():
        used = _without(used, amounts)
    requested = {name for shape in shapes for name in shape.requests}
    return QuotaStanding(
        accounts={
            key: QuotaAccount(
                guaranteed=quota.guaranteed,
                used=_without(situation.usage.get(key, _NOTHING), counted.get(key, _NOTHING)),
                weight=quota.weight,
            )
            for key, quota in situation.quotas.items()
            if quota.is_in_cohort
        },
        cohort_room={
            name: capacity.get(name, 0) - used.get(name, 0)
            for name in {*capacity, *requested, PODS}
        },
        lendable=capacity,
    )


def _without(amounts: Amounts, taken: Amounts) -> Amounts:
    return {name: amount - taken.get(name, 0) for name, amount in amounts.items()}
