"""The decision on a binding: the scheduler's node is kept, replaced, or denied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from jsonpointer import escape

from engine.errors import PatchError
from engine.model.decision import Decision, PlacementRequest
from engine.model.hold import RELEASED_ANNOTATION
from engine.model.node import IMPLICIT_DOMAIN, Node
from engine.model.pod import Pod
from engine.model.policy_resource import PlacementAt, WhenNoneFits
from engine.model.quantity import is_extended
from engine.model.rule_outcomes import SCHEDULER, FilterOutcome
from engine.model.time import Micros
from engine.model.well_known import SYSTEM_CLASSES
from engine.pipeline import Scope, decide_in
from engine.placement import Operation, graft, release_annotations
from engine.policy import CompiledPolicy, PolicySet, RuleContext, scheduler_filters
from engine.view import FRESH, BoolColumn, ClusterView, Freshness, Sum, counted_requests


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
    RESERVED = "Reserved"
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
        BindingReason.RESERVED: "the room that it would take is reserved for a gang",
        BindingReason.WAITS: "its policies leave no node that it may be moved to: it waits",
    }
)
"""Each reason as a sentence for people, after "the pod was moved, kept or denied:"."""

POINT = 100
"""Hundredths in a point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLimits:
    """What others allow just now: bindings on their way, and gangs; by default as if none were.

    Attributes:
        may_move: whether pods may be moved at all.
        targets_for: gives for a pod and a view whether the pod may be moved to the node of a row;
            None where it may be to any.
        disturbed: names of nodes that pods were moved to so lately that the scheduler may not know
            it; None where it may be any. On others it knows best what fits, and is believed.
        reserved_for: gives whom room is reserved for that a pod would take on the node of a row,
            "" for nobody.
    """

    may_move: bool = True
    targets_for: Callable[[Pod, ClusterView], Callable[[int], bool]] | None = None
    disturbed: Collection[str] | None = None
    reserved_for: Callable[[Pod, int], str] = lambda _pod, _row: ""


NO_LIMITS = MoveLimits()
"""As if no other binding were on its way."""


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """One attempt to bind a pod, and what its decision reads but for policies.

    Attributes:
        request: the pod, as it is stored, and its context.
        node_name: the node that the scheduler took.
        view: the cluster without the pod, but with all bindings that are on their way; must keep
            the sums that policies read, see `PolicySet.sum_profiles`.
        now: the moment of the decision.
        scope: the pods to place.
        freshness: the domains of the view that are too old; rules that read one abstain.
        limits: what others allow.
    """

    request: PlacementRequest
    node_name: str
    view: ClusterView
    now: Micros
    scope: Scope
    freshness: Freshness = FRESH
    limits: MoveLimits = NO_LIMITS

    @property
    def row(self) -> int | None:
        """The row of the scheduler's node; None where it is unknown."""
        return self.view.rows.get(self.node_name)

    @property
    def is_disturbed(self) -> bool:
        """Whether the scheduler may not know the pods of its node."""
        disturbed = self.limits.disturbed
        return disturbed is None or self.node_name in disturbed

    def reserved_for(self, row: int | None) -> str:
        """Return whom room is reserved for that the pod would take on a node, "" for nobody."""
        return "" if row is None else self.limits.reserved_for(self.request.pod, row)


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


def kept(node_name: str, reason: BindingReason, because: str = "") -> BindingDecision:
    """Return the decision to leave a binding as it is, without a judgement of the node."""
    text = f"kept on {node_name}: {REASON_TEXTS[reason]}"
    return BindingDecision(
        action=BindingAction.KEEP,
        node_name=node_name,
        scheduler_node=node_name,
        reason=reason,
        message=f"{text}; {because}" if because else text,
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


_DEFAULT_SCHEDULER: Final = "default-scheduler"
_PLACEMENT_LABEL: Final = "stowplan.dev/placement"  # as the webhook of new pods leaves them out

UNJUDGED: Final = frozenset(
    {
        BindingReason.POD_BOUND,
        BindingReason.STATIC_POD,
        BindingReason.SYSTEM_POD,
        BindingReason.NAMESPACE_EXCLUDED,
        BindingReason.POD_GATED,
    }
)
"""Reasons of pods that are none of ours: their bindings are not denied, either."""


def reserved_node(pod: Pod) -> str:
    """Return the node where room is reserved for a pod by a nomination of ours, "" for none.

    Only the scheduler and we may write it. The scheduler's is another than the pod was released
    with.
    """
    node_name = pod.nominated_node_name
    is_ours = node_name and pod.annotations.get(RELEASED_ANNOTATION) == node_name
    return node_name if is_ours else ""


def never_moved(cycle: BindingCycle) -> BindingReason | None:
    """Return why a pod stays where the scheduler puts it, None if it may be moved."""
    pod, row = cycle.request.pod, cycle.row
    node = None if row is None else cycle.view.nodes[row]
    return _by_scope(pod, cycle.scope) or _by_what_it_has(pod, node)


def _by_scope(pod: Pod, scope: Scope) -> BindingReason | None:
    """Return why a pod is none of ours."""
    reasons = (
        (bool(pod.node_name), BindingReason.POD_BOUND),
        (pod.is_daemon_set, BindingReason.DAEMON_SET),
        (pod.is_mirror, BindingReason.STATIC_POD),
        (pod.priority_class_name in SYSTEM_CLASSES, BindingReason.SYSTEM_POD),
        (pod.namespace in scope.excluded_namespaces, BindingReason.NAMESPACE_EXCLUDED),
        (pod.labels.get(_PLACEMENT_LABEL) == "disabled", BindingReason.OUT_OF_SCOPE),
        (
            (pod.scheduler_name or _DEFAULT_SCHEDULER) not in scope.scheduler_names,
            BindingReason.OTHER_SCHEDULER,
        ),
        (pod.gated, BindingReason.POD_GATED),
    )
    return next((reason for applies, reason in reasons if applies), None)


def _by_what_it_has(pod: Pod, node: Node | None) -> BindingReason | None:
    """Return why another node than the scheduler's would not do."""
    if pod.has_claims:
        return BindingReason.CLAIMS
    if pod.has_scheduling_group:
        return BindingReason.SCHEDULING_GROUP
    if pod.nominated_node_name and not reserved_node(pod):
        return BindingReason.PREEMPTOR
    if node is None:
        return BindingReason.NODE_UNKNOWN
    return BindingReason.DEVICES if _may_claim_devices(pod, node) else None


def _may_claim_devices(pod: Pod, node: Node) -> bool:
    """Return whether a pod requests what its node does not offer: a DeviceClass may map it."""
    return any(
        name.startswith(IMPLICIT_DOMAIN) or (name not in node.allocatable and is_extended(name))
        for name, amount in pod.shape.requests.items()
        if amount
    )


_FIT: Final = "NodeResourcesFit"

_MOST_TRIED: Final = 64
"""Of the best nodes, those that are looked at for one with a margin."""


def decide_binding(cycle: BindingCycle, policies: PolicySet) -> BindingDecision:
    """Decide which node a pod is bound to.

    The same arguments always give the same decision: nothing else is read. The node that the
    scheduler took is kept unless a filter rejects it, the scheduler's own or a policy's, or another
    one is better by `minGain`. Where the first policy that applies decides at another moment,
    nothing is moved.

    Args:
        cycle: the binding.
        policies: the loaded policies.
    """
    # 1. Pods that stay wherever they are put.
    reason = never_moved(cycle)
    if reason is not None:
        return _leaving_reserved(cycle, _unmoved(cycle, reason))

    # 2. The policies, and those that would decide if they were in force.
    match = policies.match(cycle.request, cycle.now)
    audit = _judged(cycle, match.audited) if _decide_at_binding(match.audited) else None
    if _decide_at_binding(match.enforced):
        found = _judged(cycle, match.enforced, match.errors)
    else:
        found = _unmoved(cycle, BindingReason.NO_POLICY)
    return replace(_leaving_reserved(cycle, found), audit=audit)


def decide_in_haste(cycle: BindingCycle) -> BindingDecision:
    """Decide on a binding without policies, when there is no time left for them.

    The scheduler's node is kept if its filters hold there, as far as that is in doubt; else the
    binding is denied.
    """
    found = _unmoved(cycle, never_moved(cycle) or BindingReason.TOO_LATE)
    return _leaving_reserved(cycle, found)


def decide_by_amounts(cycle: BindingCycle) -> BindingDecision:
    """Decide on the binding of a pod of which little but its requests is kept, as it is so large.

    The scheduler's node is kept if it has room, as far as that is in doubt, and if that is reserved
    for nobody; else the binding is denied.
    """
    lacking = _lacking(cycle) if cycle.is_disturbed else ""
    if lacking:
        return denied(cycle.node_name, lacking)
    return _leaving_reserved(cycle, kept(cycle.node_name, BindingReason.POD_TOO_LARGE))


def decide_unseen(node_name: str, limits: MoveLimits) -> BindingDecision:
    """Decide on the binding of a pod that was not seen yet.

    The scheduler's node is kept, unless pods were moved there so lately that it may not know it:
    nobody can tell then whether there is room for one more.

    Args:
        node_name: the node that the scheduler took.
        limits: what other bindings allow.
    """
    reason = BindingReason.POD_UNKNOWN
    if limits.disturbed is not None and node_name in limits.disturbed:
        return denied(node_name, f"others were moved there, and of this pod {REASON_TEXTS[reason]}")
    return kept(node_name, reason)


def _leaving_reserved(cycle: BindingCycle, found: BindingDecision) -> BindingDecision:
    """Return a decision, or a denial if the pod would keep a node where it takes reserved room.

    Pods that are none of ours are not denied; none is moved to such room.
    """
    is_judged = found.action is BindingAction.KEEP and found.reason not in UNJUDGED
    holder = cycle.reserved_for(cycle.row) if is_judged else ""
    if not holder:
        return found
    return BindingDecision(
        action=BindingAction.DENY,
        node_name=cycle.node_name,
        scheduler_node=cycle.node_name,
        reason=BindingReason.RESERVED,
        message=_reserved_text(holder),
    )


def _reserved_text(holder: str) -> str:
    return f"the room is reserved for {holder}"


def _decide_at_binding(policies: Sequence[CompiledPolicy]) -> bool:
    """Return whether policies, highest priority first, decide at the moment of binding."""
    return bool(policies) and policies[0].placement.at is PlacementAt.BINDING


def _unmoved(cycle: BindingCycle, reason: BindingReason) -> BindingDecision:
    """Keep the scheduler's node, unless pods were moved there that it may not know."""
    view, row, name = cycle.view, cycle.row, cycle.node_name
    if row is None or not view.valid[row] or not cycle.is_disturbed or reason in UNJUDGED:
        return kept(name, reason)
    context = RuleContext(cycle.request, view, cycle.now, cycle.freshness)
    for rule in scheduler_filters(context):
        if rule.name == _FIT and reason is BindingReason.DEVICES:
            lacking = _lacking(cycle)
            if lacking:
                return denied(name, lacking)
            continue
        outcome = rule.outcome(context)
        if outcome.rejects[row] and not outcome.faults:  # the scheduler has read all of the pod
            return denied(name, _because(outcome, row))
    return kept(name, reason)


def _because(rejection: FilterOutcome, row: int) -> str:
    return f"{rejection.rule} ({rejection.reason(row)})"


def _lacking(cycle: BindingCycle) -> str:
    """Return why the scheduler's node has too little of what it offers, "" if it has enough."""
    view, row = cycle.view, cycle.row
    if row is None:
        return ""
    free = view.allocatable[:, row] - view.sums[Sum.REQUESTS, :, row]
    for name, amount in counted_requests(cycle.request.pod.shape).items():
        at = view.axis.find(name)
        if amount and at is not None and view.allocatable[at, row] and amount > free[at]:
            return f"{_FIT} (Insufficient {name})"
    return ""


def _judged(
    cycle: BindingCycle, policies: Sequence[CompiledPolicy], errors: tuple[str, ...] = ()
) -> BindingDecision:
    """Decide by policies that all apply, highest priority first; the scheduler's node is known."""
    contexts = [
        policy.context(cycle.request, cycle.view, cycle.now, cycle.freshness) for policy in policies
    ]
    return _Judgement(cycle, decide_in(contexts, policies, errors=errors)).made()


class _Judgement:
    """What rules say of all nodes, and what becomes of the binding by that."""

    def __init__(self, cycle: BindingCycle, decision: Decision) -> None:
        self._cycle = cycle
        self._decision = decision
        self._row = cycle.view.rows[cycle.node_name]
        self._weights = max(1, sum(score.weight for score in decision.scored))

    def made(self) -> BindingDecision:
        """Return what becomes of the binding."""
        # 1. What cannot know never moves nor denies.
        filters = self._decision.filters
        if any(outcome.abstained for outcome in filters if outcome.policy == SCHEDULER):
            return self._kept(BindingReason.DATA_STALE)

        # 2. Room that is reserved by a nomination of ours.
        rejection = next((each for each in filters if each.rejects[self._row]), None)
        reserved = reserved_node(self._cycle.request.pod)
        if reserved:
            return self._by_nomination(reserved, rejection)

        # 3. The scheduler's node, if it passes; another if that is better by enough.
        if rejection is None:
            holder = self._cycle.reserved_for(self._row)
            return self._elsewhere_or_kept(holder) if holder else self._kept_or_better()

        # 4. Another in its place.
        is_scheduler = rejection.policy == SCHEDULER
        because = _because(rejection, self._row)
        target = next(self._targets(), None)
        if target is not None:
            reason = BindingReason.FAILS_SCHEDULER if is_scheduler else BindingReason.FAILS_POLICY
            return self._moved(target, reason, because)

        # 5. None.
        if is_scheduler:
            return self._kept_or_denied(rejection)
        if self._decision.placement.when_none_fits is WhenNoneFits.WAIT:
            text = f"{REASON_TEXTS[BindingReason.WAITS]}; {self._cycle.node_name}: {because}"
            waits = self._kept(BindingReason.WAITS)
            return replace(waits, action=BindingAction.DENY, message=text)
        if not len(self._decision.ranking):
            return self._kept(BindingReason.NONE_FITS, because)
        return self._kept(self._why_no_target(), because)

    def _by_nomination(self, reserved: str, rejection: FilterOutcome | None) -> BindingDecision:
        """Follow a nomination of ours, if its node still fits."""
        row = self._cycle.view.rows.get(reserved)
        fits = row is not None and bool(self._left()[row])
        if fits and row == self._row:
            return self._kept(BindingReason.NOMINATION_FOLLOWED)
        if row is not None and fits and self._cycle.limits.may_move:
            return self._moved(row, BindingReason.NOMINATION_FOLLOWED)
        if rejection is not None and rejection.policy == SCHEDULER:
            return self._kept_or_denied(rejection)
        return self._kept(BindingReason.MOVES_PAUSED if fits else BindingReason.NOMINATION_LOST)

    def _kept_or_denied(self, rejection: FilterOutcome) -> BindingDecision:
        """Deny what does not fit where pods were moved; elsewhere the scheduler knows better.

        It does so, too, where there is more to a pod than is read here, and there is room.
        """
        filters = self._decision.filters
        fits = [each for each in filters if (each.policy, each.rule) == (SCHEDULER, _FIT)]
        has_room = bool(fits) and not fits[0].rejects[self._row]
        is_unread = bool(rejection.faults) and has_room
        because = _because(rejection, self._row)
        if self._cycle.is_disturbed and not is_unread:
            return replace(denied(self._cycle.node_name, because), decision=self._decision)
        return self._kept(BindingReason.SCHEDULER_BELIEVED, because)

    def _elsewhere_or_kept(self, holder: str) -> BindingDecision:
        """Move the pod, as room on its node is reserved for others, if there is another for it."""
        target = next(self._targets(), None)
        if target is None:
            return self._kept(self._why_no_target())
        return self._moved(target, BindingReason.FAILS_SCHEDULER, _reserved_text(holder))

    def _kept_or_better(self) -> BindingDecision:
        """Move the pod if another node is better by enough than the scheduler's, which fits."""
        least = self._decision.placement.min_gain * self._weights
        own = self._total(self._row)

        def gains(row: int) -> bool:
            total = self._total(row)
            return total > own and total - own >= least

        if not gains(self._decision.best(1).tolist()[0]):
            return self._kept(BindingReason.BEST_NODE)
        target = next(self._targets(), None)
        if target is None or not gains(target):
            return self._kept(self._why_no_target())
        return self._moved(target, BindingReason.BETTER_NODE)

    def _why_no_target(self) -> BindingReason:
        """Return why the pod may be moved to none of the nodes that fit."""
        may_move = self._cycle.limits.may_move
        return BindingReason.NO_MARGIN if may_move else BindingReason.MOVES_PAUSED

    def _left(self) -> BoolColumn:
        """Return the nodes that all filters leave, (n,)."""
        left = self._decision.left
        return left[-1] if left else self._decision.valid

    def _targets(self) -> Iterator[int]:
        """Yield the rows that the pod may be moved to, best first."""
        cycle, limits = self._cycle, self._cycle.limits
        if not limits.may_move:
            return
        may_take = limits.targets_for and limits.targets_for(cycle.request.pod, cycle.view)
        for row in self._decision.best(_MOST_TRIED).tolist():
            is_target = row != self._row and (may_take is None or may_take(row))
            if is_target and not cycle.reserved_for(row):
                yield row

    def _total(self, row: int) -> int:
        """Return the total of a candidate."""
        ranking = self._decision.ranking
        return int(ranking.given_totals[int(np.searchsorted(ranking.rows, row))])

    def _points(self, row: int) -> int | None:
        """Return the points of a node, None if it is no candidate."""
        if not self._decision.scored or not self._left()[row]:
            return None
        return self._total(row) * POINT // self._weights

    def _kept(self, reason: BindingReason, because: str = "") -> BindingDecision:
        points = self._points(self._row)
        return replace(
            kept(self._cycle.node_name, reason, because),
            decision=self._decision,
            points=points,
            scheduler_points=points,
        )

    def _moved(self, row: int, reason: BindingReason, because: str = "") -> BindingDecision:
        node_name, name = self._cycle.node_name, self._cycle.view.names[row]
        points, scheduler_points = self._points(row), self._points(self._row)
        text = f"moved from {node_name} to {name}: {because or REASON_TEXTS[reason]}"
        if points is not None and scheduler_points is not None:
            text += f", {points / POINT:.1f} instead of {scheduler_points / POINT:.1f} points"
        return BindingDecision(
            action=BindingAction.MOVE,
            node_name=name,
            scheduler_node=node_name,
            reason=reason,
            message=text,
            decision=self._decision,
            points=points,
            scheduler_points=scheduler_points,
        )
