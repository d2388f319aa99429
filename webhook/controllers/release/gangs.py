"""Gangs among held pods: where their members go, and what their release tells that of single pods.

The members of a gang that must start together have one place in the queue, that of the first of
them, and one claim on quota, that of all of them. All of them have room, or none is released. A pod
that waits for its gang is decided and released by nobody else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from engine.batch import BatchOutcome, StartingGang
from engine.errors import counted
from engine.gang import Gang, GangKey
from engine.model.decision import Decision
from engine.model.pod_shape import PodShape
from engine.model.rule_outcomes import SCHEDULER
from engine.placement import release_annotations
from engine.policy import PolicySet
from engine.release import HeldPod, ReleaseDecision
from engine.view import ClusterView
from webhook.controllers.release.conditions import Wait
from webhook.controllers.release.nominations import Nominations
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placer

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTurns:
    """The held pods whose turn may come in a cycle."""

    # in order, a gang by the member whose place it has; those that wait for other members are left
    # out
    queue: Sequence[HeldPod]
    # by the key of such a member, the pods that are released with it, itself included
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
        """Return whose turn may come."""

    def prepare(self, first: HeldPod) -> bool:
        """Place a gang whose turn has come, all of it or nothing; return whether it has room."""

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


_NOTHING: Final[Mapping[str, ReleaseDecision]] = MappingProxyType({})
_MOST_HOMELESS: Final = 8
"""Shapes of members that find no room, after which the others of a gang are not looked at."""

_TOO_LARGE: Final = ReleaseDecision(reason="the pod is too large for a decision")
_FAILED_BY_BUG: Final = ReleaseDecision(reason="the decision failed by an internal error")


class GangPart(NamedTuple):
    """A gang whose members are to be placed, by itself or with others of its group."""

    gang: Gang
    members: tuple[HeldPod, ...]  # to place, in queue order
    beside: tuple[str, ...] = ()  # the nodes of members that run


class GangDecision(NamedTuple):
    """Where the members of a gang go."""

    # by the keys of the members; of a gang that has no room as a whole, those for the members that
    # have some
    decisions: Mapping[str, ReleaseDecision]
    reason: str = ""  # why not all have room, "" if they have; then they count on their nodes


@dataclass(eq=False)
class GangDecider:
    """Decides where all members of some gangs go, and counts each on its node at once.

    No mistake in a policy and no bug in a rule keeps a pod: it is released without a node then.
    """

    placer: Placer  # decides
    policies: Callable[[], PolicySet]  # those in force
    nominations: Nominations  # counts the pods on their nodes
    counts: PolicyCounts  # where decisions are counted, also those of a pod that is decided again

    def decide(
        self, parts: Sequence[GangPart], reserved: Mapping[str, ReleaseDecision] = _NOTHING
    ) -> GangDecision:
        """Return where all members of some gangs go, which then count there; or why not all can.

        A member that cannot be decided, as it is too large or by a bug, is to be released without a
        node: it keeps no others.

        Args:
            parts: each gang; where its members count so far does not matter.
            reserved: by the keys of members that have room, and keep it.
        """
        members = [held for part in parts for held in part.members]
        decisions = dict(reserved)
        for held in members:
            self.nominations.withdraw(held.pod)
        for held in members:
            if held.key in reserved:
                self.nominations.nominate(held.pod, reserved[held.key].node_name)
        reason = ""
        for part in parts:
            placed = self._place(part, reserved)
            for held in part.members:
                if held.key in placed.decisions:
                    self.nominations.nominate(held.pod, placed.decisions[held.key].node_name)
            decisions |= placed.decisions
            reason = reason or placed.reason
            if reason:
                break
        if reason:
            for held in members:
                self.nominations.withdraw(held.pod)
            return GangDecision(decisions, reason)
        return GangDecision({held.key: _TOO_LARGE for held in members} | decisions)

    def decide_some(
        self, parts: Sequence[GangPart], reserved: Mapping[str, ReleaseDecision]
    ) -> Mapping[str, ReleaseDecision]:
        """Return where members have room although others have none; they do not count there.

        Args:
            parts: each gang; none of its members counts anywhere.
            reserved: by the keys of members that have room, and keep it.
        """
        members = [held for part in parts for held in part.members if held.raw]
        decisions = dict(reserved)
        for held in members:
            if held.key in decisions:
                self.nominations.nominate(held.pod, decisions[held.key].node_name)
        for part in parts:
            homeless = set[PodShape]()
            while len(homeless) < _MOST_HOMELESS:
                left = [each for each in part.members if each.pod.shape not in homeless]
                placed = self._place(part._replace(members=tuple(left)), decisions)
                for held in left:
                    if held.key in placed.decisions:
                        self.nominations.nominate(held.pod, placed.decisions[held.key].node_name)
                decisions |= placed.decisions
                failed = [each for each in left if each.raw and each.key not in decisions]
                if not failed:
                    break
                homeless.add(failed[0].pod.shape)
        for held in members:
            self.nominations.withdraw(held.pod)
        return decisions

    def _place(self, part: GangPart, reserved: Mapping[str, ReleaseDecision]) -> GangDecision:
        """Place the members of a gang that have no room yet, all of them or none."""
        pods = [held for held in part.members if held.raw and held.key not in reserved]
        nodes = (reserved[held.key].node_name for held in part.members if held.key in reserved)
        beside = (*part.beside, *filter(None, nodes))
        try:
            policies = self.policies()
            requests = [held.placement_request for held in pods]
            gang = StartingGang(requests=requests, topology=part.gang.topology, beside=beside)
            placement, _view = self.placer.place_gang(gang, policies)
            outcomes = [each for each in placement.trial.outcomes if each.node]
            decisions = {
                held.key: _decision_of(outcome)
                for held, outcome in zip(pods, outcomes, strict=False)
            }
        except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
            _log.exception("a gang could not be placed")
            return GangDecision({held.key: _FAILED_BY_BUG for held in pods})
        if placement.trial.failed is None:
            for outcome in outcomes:
                self.counts.count_release(outcome.decision, outcome.verdict, policies)
        return GangDecision(decisions, placement.trial.message)


def _decision_of(outcome: BatchOutcome) -> ReleaseDecision:
    """Return what is to be done with a pod.

    It is nominated only if its requests were held against the room on nodes: too many nominations
    of one node block each other.
    """
    reason = outcome.message or _missing_data(outcome.decision)
    fitting = counted(outcome.candidates, "node fits", "nodes fit")
    message = outcome.message or f"{fitting}, best {outcome.node}"
    return ReleaseDecision(
        node_name="" if reason else outcome.node,
        reason=reason,
        annotations=release_annotations(outcome.estimate, message),
    )


def _missing_data(decision: Decision) -> str:
    """Return what the scheduler's own filters lack, "" for nothing."""
    texts = [
        text
        for outcome in decision.filters
        if outcome.policy == SCHEDULER
        for text in outcome.abstained.values()
    ]
    return texts[0] if texts else ""
