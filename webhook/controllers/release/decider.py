"""Decisions for held pods, each as if all before it were on their nodes already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from engine.batch import BatchOutcome, StartingGang
from engine.gang import Gang
from engine.model.count_text import counted
from engine.model.decision import Decision
from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import SCHEDULER
from engine.placement import ReleasePatch, encode_release
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView
from webhook.controllers.release.states import ReleaseDecision
from webhook.placement.held_pods import HeldPod
from webhook.placement.placer import Placer
from webhook.placement.policy_counts import PolicyCounts

_TOO_LARGE: Final = ReleaseDecision(reason="the pod is too large for a decision")
_FAILED: Final = ReleaseDecision(reason="the decision failed by an internal error")

_log = logging.getLogger(__name__)


class GangPart(NamedTuple):
    """A gang whose members are to be placed, by itself or with others of its group.

    Attributes:
        members: to place, in queue order.
        beside: the nodes of members that run.
    """

    gang: Gang
    members: tuple[HeldPod, ...]
    beside: tuple[str, ...] = ()


class GangDecision(NamedTuple):
    """Where the members of a gang go.

    Attributes:
        decisions: by the keys of the members; of a gang that has no room as a whole, those for the
            members that have some.
        reason: why not all have room, "" if they have; then they count on their nodes.
    """

    decisions: Mapping[str, ReleaseDecision]
    reason: str = ""


class HeldPodDecider:
    """Decides held pods in order, and counts each on its node at once.

    No mistake in a policy and no bug in a rule keeps a pod: it is released without a node then.

    Args:
        placer: decides; its encoder writes preferred terms.
        policies: those in force.
        state: the cluster, which the pods are nominated in.
        nominates: whether a pod's scheduler follows nominations.
        counts: where decisions are counted, also those of a pod that is decided again.
    """

    def __init__(
        self,
        placer: Placer,
        policies: Callable[[], PolicySet],
        state: ClusterState,
        nominates: Callable[[str], bool],
        counts: PolicyCounts,
    ) -> None:
        self._placer = placer
        self._policies = policies
        self._state = state
        self._nominates = nominates
        self._counts = counts

    def decide(self, pods: Sequence[HeldPod]) -> list[ReleaseDecision]:
        """Return the decision for each pod, which then counts where it is to go.

        Args:
            pods: in order; where they count so far does not matter.
        """
        for held in pods:
            self._state.nominate(held.key, "")
        decisions: list[ReleaseDecision] = []
        for kind, run in groupby(pods, self._kind):
            decisions += kind(list(run))
        return decisions

    def decide_gang(self, parts: Sequence[GangPart]) -> GangDecision:
        """Return where all members of some gangs go, which then count there; or why not all can.

        A member that cannot be decided, as it is too large or by a bug, is to be released without a
        node: it keeps no others.

        Args:
            parts: each gang; where its members count so far does not matter.
        """
        members = [held for part in parts for held in part.members]
        for held in members:
            self._state.nominate(held.key, "")
        decisions: dict[str, ReleaseDecision] = {}
        reason = ""
        for part in parts:
            placed = self._place(part)
            for key, decision in placed.decisions.items():
                self._state.nominate(key, decision.node_name)
            decisions |= placed.decisions
            reason = reason or placed.reason
            if reason:
                break
        if reason:
            for key in decisions:
                self._state.nominate(key, "")
            return GangDecision(decisions, reason)
        advised = [held for held in members if held.raw and not self._follows(held)]
        preferred = zip(advised, self._preferred(advised), strict=True)
        return GangDecision(
            {held.key: _TOO_LARGE for held in members}
            | decisions
            | {held.key: decision for held, decision in preferred}
        )

    def _place(self, part: GangPart) -> GangDecision:
        """Place the members of a gang, all of them or none."""
        pods = [held for held in part.members if held.raw]
        try:
            policies = self._policies()
            requests = [held.placement_request for held in pods]
            gang = StartingGang(requests=requests, topology=part.gang.topology, beside=part.beside)
            placement, view = self._placer.place_gang(gang, policies)
            outcomes = [each for each in placement.trial.outcomes if each.node]
            decisions = {
                held.key: _decision_of(request, outcome, view)
                for held, request, outcome in zip(pods, requests, outcomes, strict=False)
            }
        except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
            _log.exception("a gang could not be placed")
            return GangDecision({held.key: _FAILED for held in pods})
        if placement.trial.failed is None:
            for outcome in outcomes:
                self._counts.count_release(outcome.decision, outcome.verdict, policies)
        return GangDecision(decisions, placement.trial.message)

    def _kind(self, held: HeldPod) -> Callable[[Sequence[HeldPod]], list[ReleaseDecision]]:
        if not held.raw:
            return _too_large
        return self._nominated if self._follows(held) else self._preferred

    def _follows(self, held: HeldPod) -> bool:
        """Return whether the scheduler of a pod follows nominations."""
        return self._nominates(held.pod.scheduler_name)

    def _nominated(self, pods: Sequence[HeldPod]) -> list[ReleaseDecision]:
        """Decide pods together; one by one if that fails, so that one bug costs one pod."""
        try:
            decisions = list(self._decide_batch(pods))
        except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
            _log.exception("held pods could not be decided")
            if len(pods) == 1:
                return [_FAILED]
            return [decision for held in pods for decision in self._nominated([held])]
        for held, decision in zip(pods, decisions, strict=True):
            self._state.nominate(held.key, decision.node_name)
        return decisions

    def _decide_batch(self, pods: Sequence[HeldPod]) -> Iterator[ReleaseDecision]:
        requests, policies = [held.placement_request for held in pods], self._policies()
        outcomes, view = self._placer.decide_batch(requests, policies)
        for request, outcome in zip(requests, outcomes, strict=True):
            self._counts.count_release(outcome.decision, outcome.verdict, policies)
            yield _decision_of(request, outcome, view)

    def _preferred(self, pods: Sequence[HeldPod]) -> list[ReleaseDecision]:
        """Decide pods as at their admission, by preferred terms."""
        decisions = []
        for held in pods:
            try:
                decision = self._preferring(held)
            except Exception:  # noqa: BLE001 - no bug in a rule keeps a pod
                _log.exception("a held pod could not be decided")
                decision = _FAILED
            self._state.nominate(held.key, decision.node_name)
            decisions.append(decision)
        return decisions

    def _preferring(self, held: HeldPod) -> ReleaseDecision:
        policies = self._policies()
        decision, patch = self._placer.decide(held.placement_request, policies)
        self._counts.count_release(decision, decision.verdict, policies)
        nodes = patch.advice.nodes
        return ReleaseDecision(
            node_name=nodes[0] if nodes else "",
            nominates=False,
            reason="" if nodes else decision.message,
            fits_nowhere=not len(decision.ranking) and _has_filters(decision),
            preemption=decision.placement.preemption,
            patch=ReleasePatch(operations=patch.operations),
        )


def _too_large(pods: Sequence[HeldPod]) -> list[ReleaseDecision]:
    return [_TOO_LARGE] * len(pods)


def _decision_of(
    request: PlacementRequest, outcome: BatchOutcome, view: ClusterView
) -> ReleaseDecision:
    """Return what is to be done with a pod.

    It is nominated only if its requests were held against the room on nodes: too many nominations
    of one node block each other.
    """
    reason = outcome.message or _missing_data(outcome.decision)
    message = (
        outcome.message
        or f"{counted(outcome.candidates, 'node fits', 'nodes fit')}, best {outcome.node}"
    )
    patch = encode_release(
        outcome.decision, request, view, estimate=outcome.estimate, message=message
    )
    return ReleaseDecision(
        node_name="" if reason else outcome.node,
        reason=reason,
        fits_nowhere=not outcome.candidates and _has_filters(outcome.decision),
        preemption=outcome.decision.placement.preemption,
        patch=patch,
    )


def _has_filters(decision: Decision) -> bool:
    """Return whether nodes were looked at: without a policy none is."""
    return bool(decision.filters)


def _missing_data(decision: Decision) -> str:
    """Return what the scheduler's own filters lack, "" for nothing."""
    texts = [
        text
        for outcome in decision.filters
        if outcome.policy == SCHEDULER
        for text in outcome.abstained.values()
    ]
    return texts[0] if texts else ""
