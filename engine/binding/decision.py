"""The decision on one binding, and why: the node is kept, replaced or denied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from jsonpointer import escape

from engine.errors import PatchError
from engine.model.decision import Decision
from engine.model.pod import Pod
from engine.placement import Operation, graft, release_annotations
from engine.view import ClusterView


class BindingAction(StrEnum):
    """What becomes of a binding."""

    KEEP = "Keep"  # the pod goes where the scheduler says
    MOVE = "Move"  # it goes to another node
    DENY = "Deny"  # it stays pending; the scheduler tries it again after a back-off


class BindingReason(StrEnum):
    """Why; see `REASON_TEXTS`."""

    # Kept as the best.
    BEST_NODE = "BestNode"
    # Moved.
    BETTER_NODE = "BetterNode"
    FAILS_POLICY = "FailsPolicy"
    FAILS_SCHEDULER = "FailsScheduler"
    NOMINATION_FOLLOWED = "NominationFollowed"
    # Kept, though a policy would rather have another node, or none.
    NONE_FITS = "NoneFits"
    NO_MARGIN = "NoMargin"
    MOVES_PAUSED = "MovesPaused"
    SCHEDULER_BELIEVED = "SchedulerBelieved"
    TOO_LATE = "TooLate"
    DATA_STALE = "DataStale"
    NOMINATION_LOST = "NominationLost"
    # Never moved.
    NO_POLICY = "NoPolicy"
    NAMESPACE_EXCLUDED = "NamespaceExcluded"
    OUT_OF_SCOPE = "OutOfScope"
    OTHER_SCHEDULER = "OtherScheduler"
    SYSTEM_POD = "SystemPod"
    DAEMON_SET = "DaemonSet"
    STATIC_POD = "StaticPod"
    POD_UNKNOWN = "PodUnknown"
    POD_BOUND = "PodBound"
    POD_GATED = "PodGated"
    POD_TOO_LARGE = "PodTooLarge"
    NODE_UNKNOWN = "NodeUnknown"
    CLAIMS = "Claims"
    DEVICES = "Devices"
    PREEMPTOR = "Preemptor"
    SCHEDULING_GROUP = "SchedulingGroup"
    # Denied.
    NO_ROOM = "NoRoom"
    WAITS = "Waits"


REASON_TEXTS: Final = MappingProxyType(
    {
        BindingReason.BEST_NODE: "no other node is better by enough",
        BindingReason.BETTER_NODE: "another node is better",
        BindingReason.FAILS_POLICY: "a filter of its policies rejects the scheduler's node",
        BindingReason.FAILS_SCHEDULER: "the scheduler's node cannot take it any more",
        BindingReason.NOMINATION_FOLLOWED: "room is reserved for it on its nominated node",
        BindingReason.NONE_FITS: "its policies leave no node, and let it pass",
        BindingReason.NO_MARGIN: "every better node is nearly full, and bindings that nobody "
        "asks about might need the room",
        BindingReason.MOVES_PAUSED: "no pod is moved for a while",
        BindingReason.SCHEDULER_BELIEVED: "no pod was moved to its node of late: the scheduler "
        "knows best what fits there",
        BindingReason.TOO_LATE: "the decision was not ready in time",
        BindingReason.DATA_STALE: "what is known of nodes or pods is too old",
        BindingReason.NOMINATION_LOST: "its nominated node cannot take it any more",
        BindingReason.NO_POLICY: "no policy decides it at its binding",
        BindingReason.NAMESPACE_EXCLUDED: "its namespace is excluded",
        BindingReason.OUT_OF_SCOPE: "its label leaves its placement to the scheduler",
        BindingReason.OTHER_SCHEDULER: "another scheduler binds it",
        BindingReason.SYSTEM_POD: "the cluster cannot run without it",
        BindingReason.DAEMON_SET: "pods of a DaemonSet belong to their node",
        BindingReason.STATIC_POD: "it belongs to its kubelet",
        BindingReason.POD_UNKNOWN: "nothing has been seen yet",
        BindingReason.POD_BOUND: "it is bound already",
        BindingReason.POD_GATED: "it has scheduling gates",
        BindingReason.POD_TOO_LARGE: "too little is kept, as it is so large",
        BindingReason.NODE_UNKNOWN: "the scheduler's node has not been seen yet",
        BindingReason.CLAIMS: "its volumes or resource claims were made for the scheduler's node",
        BindingReason.DEVICES: "its devices may be claimed on the scheduler's node",
        BindingReason.PREEMPTOR: "the scheduler evicted pods for it",
        BindingReason.SCHEDULING_GROUP: "the scheduler places its group as one",
        BindingReason.NO_ROOM: "no node can take it: others were moved there in the meantime",
        BindingReason.WAITS: "its policies leave no node that it may be moved to: it waits",
    }
)
"""Each reason as a sentence for people, after "the pod was moved, kept or denied:"."""

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


SCHEDULER_NODE_ANNOTATION: Final = "stowplan.dev/scheduler-node"
"""On a bound pod: the node that the scheduler took; the pod may have been moved."""

BINDING_REASON_ANNOTATION: Final = "stowplan.dev/binding"
"""On a bound pod: the reason, see `BindingReason`."""


_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
"""Copied from a node. Source: Kubernetes, plugin/pkg/admission/podtopologylabels."""


def encode_binding(decision: BindingDecision, binding: Mapping[str, Any]) -> tuple[Operation, ...]:
    """Return the JSON Patch operations on a Binding; none where nothing was decided.

    The API server merges its annotations and labels into the pod. Annotations that are there stay
    as they are, so a patched binding gets none again. Labels say the zone and region of the
    scheduler's node: they are taken away where the pod is moved, and the API server then adds those
    of its node, if that has any.

    Args:
        decision: not a denial.
        binding: the object, as plain JSON values.

    Raises:
        PatchError: the binding is not of a pod to the node that the decision is about.
    """
    target = binding.get("target") or {}
    if decision.action is BindingAction.DENY:
        raise PatchError("a denied binding is not patched")
    if target.get("name") not in {decision.scheduler_node, decision.node_name}:
        raise PatchError(f"the binding is to `{target.get('name')}`, and was decided for another")
    operations: list[Operation] = []
    if target.get("name") != decision.node_name:
        operations.append({"op": "replace", "path": "/target/name", "value": decision.node_name})
        operations += _without_topology(binding)
    if decision.decision is not None:
        there = (binding.get("metadata") or {}).get("annotations") or {}
        annotations = {
            **release_annotations(decision.decision.estimate, decision.message),
            SCHEDULER_NODE_ANNOTATION: decision.scheduler_node,
            BINDING_REASON_ANNOTATION: str(decision.reason),
        }
        added = {key: text for key, text in annotations.items() if key not in there}
        if added:
            operations += graft(binding, {"metadata": {"annotations": added}}, "")
    return tuple(operations)


def _without_topology(binding: Mapping[str, Any]) -> list[Operation]:
    labels = (binding.get("metadata") or {}).get("labels") or {}
    return [
        {"op": "remove", "path": f"/metadata/labels/{escape(key)}"}
        for key in _TOPOLOGY_LABELS
        if key in labels
    ]
