"""The decision on one binding, with all that explains it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from engine.binding.reason import REASON_TEXTS, BindingAction, BindingReason
from engine.model.decision import Decision
from engine.model.pod import Pod
from engine.view import ClusterView

POINT = 100
"""Hundredths in a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """What a filter says of the node that the scheduler took, and of the one that the pod gets.

    Attributes:
        policy: the policy it belongs to, "" for the scheduler's own.
        rule: its name.
        on_scheduler_node: why it rejects the scheduler's node, "" where it passes.
        on_node: why it rejects the other, likewise.
    """

    policy: str
    rule: str
    on_scheduler_node: str
    on_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """What bindings on their way allow just now; by default, as if there were none.

    Attributes:
        may_move: whether pods may be moved at all.
        targets_for: gives for a pod and a view whether the pod may be moved to the node of a row;
            None where it may be to any.
        disturbed: names of nodes that pods were moved to so lately that the scheduler may not know
            it; None where it may be any. On others it knows best what fits, and is believed.
    """

    may_move: bool = True
    targets_for: Callable[[Pod, ClusterView], Callable[[int], bool]] | None = None
    disturbed: Collection[str] | None = None

    def is_disturbed(self, node_name: str) -> bool:
        """Return whether the scheduler may not know the pods of a node."""
        return self.disturbed is None or node_name in self.disturbed


NO_LIMITS = MoveLimits()
"""As if no other binding were on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDecision:
    """The decision on one binding.

    Attributes:
        action: what becomes of it.
        node_name: the node that the pod gets; where the binding is denied, the scheduler's.
        scheduler_node: the node that the scheduler took.
        reason: why.
        message: the same in one line for a person, with names and points.
        decision: what rules say of all nodes; None where they were not asked.
        points: of the node that the pod gets, in hundredths of 0 to 100, see `POINT`; None where no
            score was computed, or the node was no candidate.
        scheduler_points: of the scheduler's node, likewise.
        audit: what would have become of it if the policies in Audit mode were in Enforce mode; None
            where none of them decides at binding.
    """

    action: BindingAction
    node_name: str
    scheduler_node: str
    reason: BindingReason
    message: str = ""
    decision: Decision | None = field(default=None, repr=False)
    points: int | None = None
    scheduler_points: int | None = None
    audit: BindingDecision | None = None

    @property
    def is_moved(self) -> bool:
        """Whether the pod gets another node."""
        return self.action is BindingAction.MOVE

    @property
    def gain(self) -> int | None:
        """Hundredths of points by which the node is better; None unless both have points."""
        if self.points is None or self.scheduler_points is None:
            return None
        return self.points - self.scheduler_points

    def verdicts(self) -> tuple[RuleVerdict, ...]:
        """Return what each filter says of both nodes, in order; none where none was asked."""
        if self.decision is None:
            return ()
        names = {name: row for row, name in enumerate(self.decision.names)}
        rows = names.get(self.scheduler_node), names.get(self.node_name)
        verdicts = []
        for outcome in self.decision.filters:
            reasons = [
                outcome.reason(row) if row is not None and outcome.rejects[row] else ""
                for row in rows
            ]
            verdicts.append(
                RuleVerdict(
                    policy=outcome.policy,
                    rule=outcome.rule,
                    on_scheduler_node=reasons[0],
                    on_node=reasons[1],
                )
            )
        return tuple(verdicts)


def kept(node_name: str, reason: BindingReason) -> BindingDecision:
    """Return the decision to leave a binding as it is, without a judgement of the node."""
    return BindingDecision(
        action=BindingAction.KEEP,
        node_name=node_name,
        scheduler_node=node_name,
        reason=reason,
        message=f"kept on {node_name}: {REASON_TEXTS[reason]}",
    )


def denied(node_name: str, because: str) -> BindingDecision:
    """Return the decision to deny a binding to a node without room."""
    return BindingDecision(
        action=BindingAction.DENY,
        node_name=node_name,
        scheduler_node=node_name,
        reason=BindingReason.NO_ROOM,
        message=f"{node_name} may not have room any more: {because}",
    )
