"""What is compared: who decides where a pod goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jsonpatch
import msgspec
from msgspec import structs

from engine.binding import BindingAction, decide_binding
from engine.model import api
from engine.model.decision import Decision, Verdict
from engine.model.placement_options import DynamicFilters, PlacementAt, WhenNoneFits
from engine.model.request import PlacementRequest
from engine.model.rule_outcomes import SCHEDULER
from engine.pipeline import Scope, decide, policies_for
from engine.placement import encode, encode_promises
from engine.placement.affinity import Operation
from engine.placement.patch import read_document
from engine.policy import PolicySet
from engine.report import ArmPlacement, BindingCounts, RuleRejections, Victim
from engine.simulation.arm_cluster import ArmCluster
from engine.simulation.arrivals import Arrival
from engine.simulation.scheduler import SchedulerModel, unschedulable_message
from engine.view import ClusterView

_AFFINITY = "/spec"
_SCOPE = Scope()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One of what is compared.

    Attributes:
        name: for people.
        placement: who decides.
        policies: None where nobody but the scheduler decides.
    """

    name: str
    placement: ArmPlacement
    policies: PolicySet | None = None


class Landing(NamedTuple):
    """Where a pod went.

    Attributes:
        node: "" for nowhere.
        reason: why nowhere.
        is_refused: whether it may not exist, rather than wait.
        is_denied: whether its binding was denied: the scheduler will try it again.
        victims: who is evicted for it.
    """

    node: str
    reason: str = ""
    is_refused: bool = False
    is_denied: bool = False
    victims: tuple[Victim, ...] = ()


class ArmDecider:
    """Places pods as an arm does.

    Args:
        arm: the arm.
        scheduler: binds pods; its state is of this arm alone.
        request: the fields of the admission request that expressions may read.
    """

    def __init__(self, arm: Arm, scheduler: SchedulerModel, request: Mapping[str, Any]) -> None:
        self._arm = arm
        self._scheduler = scheduler
        self._request = request
        self._rejections = _Rejections()
        self._bindings = Counter[BindingAction]()
        policies = arm.policies or PolicySet()
        self._at_binding = None
        if arm.placement is ArmPlacement.BINDING:
            self._at_binding = decided_at_binding(policies)
        self._is_promising = any(policy.filters for policy in policies)

    @property
    def policies(self) -> PolicySet | None:
        """Those of the arm."""
        return self._arm.policies

    @property
    def rejections(self) -> tuple[RuleRejections, ...]:
        """What the filters of policies turned away so far, most nodes first."""
        return self._rejections.report()

    @property
    def bindings(self) -> BindingCounts | None:
        """What became of bindings so far; None in an arm that decides at another moment."""
        if self._at_binding is None:
            return None
        return BindingCounts(
            moved=self._bindings[BindingAction.MOVE],
            kept=self._bindings[BindingAction.KEEP],
            denied=self._bindings[BindingAction.DENY],
        )

    def request(self, arrival: Arrival, view: ClusterView) -> PlacementRequest:
        """Return the request that the creation of a pod makes: a generated name comes later."""
        pod = arrival.pod
        if pod.generate_name:
            pod = structs.replace(pod, name="")
        return PlacementRequest(
            pod=pod,
            raw=arrival.raw,
            namespace_labels=view.namespaces.labels.get(pod.namespace, {}),
            request=self._request,
        )

    def place(self, arrival: Arrival, cluster: ArmCluster) -> Landing:
        """Return where a pod goes; it is not bound yet."""
        if self._arm.placement is ArmPlacement.RECORDED:
            return Landing(arrival.recorded_on, "it waited when the cluster was recorded")
        if self._at_binding is not None:
            return self._bound(arrival, cluster, self._at_binding)
        view = cluster.view()
        request = self.request(arrival, view)
        if self._arm.policies is not None:
            decision = decide(request, self._arm.policies, view, cluster.now)
            self._rejections.add(decision)
            if decision.verdict is Verdict.DENY:
                return Landing("", decision.message, is_refused=True)
            request = _patched(request, encode(decision, request, view).operations)
        node = self._scheduler.place(request, view, cluster.now)
        return Landing(node, "" if node else unschedulable_message(request, view, cluster.now))

    def _bound(self, arrival: Arrival, cluster: ArmCluster, policies: PolicySet) -> Landing:
        """Return where a pod goes whose node is decided once the scheduler has taken one."""
        view, now = cluster.view(), cluster.now
        request = self.request(arrival, view)
        # 1. At creation it is promised what filters say of labels.
        if self._is_promising:
            applied = policies_for(request, policies, now, scope=_SCOPE)
            promises = encode_promises(applied, request, view, now)
            request = _patched(request, promises.operations)
        # 2. The scheduler takes a node.
        node = self._scheduler.place(request, view, now)
        if not node:
            return Landing("", unschedulable_message(request, view, now))
        # 3. At binding the pod is stored, and so has its name.
        stored = replace(request, pod=structs.replace(request.pod, name=arrival.pod.name))
        binding = decide_binding(stored, node, policies, view, now, scope=_SCOPE)
        self._bindings[binding.action] += 1
        if binding.decision is not None:
            self._rejections.add(binding.decision)
        if binding.action is BindingAction.DENY:
            return Landing("", binding.message, is_denied=True)
        return Landing(binding.node_name)


def decided_at_binding(policies: PolicySet) -> PolicySet:
    """Return policies that decide at binding, whenever they were meant to.

    What they would deny waits then.
    """
    found = []
    for policy in policies:
        placement = policy.placement
        if placement.when_none_fits is WhenNoneFits.DENY:
            placement = replace(placement, when_none_fits=WhenNoneFits.WAIT)
        placement = replace(
            placement, at=PlacementAt.BINDING, dynamic_filters=DynamicFilters.PREFERRED
        )
        found.append(replace(policy, placement=placement))
    return PolicySet(found)


class _Rejections:
    """Counts what filters of policies turn away."""

    def __init__(self) -> None:
        self._pods = Counter[tuple[str, str]]()
        self._nodes = Counter[tuple[str, str]]()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, decision: Decision) -> None:
        """Count the nodes that each filter was the first to reject."""
        for outcome, nodes in zip(decision.filters, decision.first_rejections, strict=True):
            if not nodes or outcome.policy == SCHEDULER:
                continue
            rule = outcome.policy, outcome.rule
            self._pods[rule] += 1
            self._nodes[rule] += nodes
            if rule not in self._examples:
                row = int((outcome.rejects & decision.valid).argmax())
                self._examples[rule] = outcome.reason(row)

    def report(self) -> tuple[RuleRejections, ...]:
        """Return the counts, most nodes first."""
        return tuple(
            RuleRejections(
                policy=rule[0],
                rule=rule[1],
                pods=self._pods[rule],
                nodes=nodes,
                example=self._examples[rule],
            )
            for rule, nodes in self._nodes.most_common()
        )


def _patched(request: PlacementRequest, operations: tuple[Operation, ...]) -> PlacementRequest:
    """Return a pod with the affinity that operations give it."""
    of_spec = [each for each in operations if each["path"].startswith(_AFFINITY)]
    if not of_spec:
        return request
    document = jsonpatch.JsonPatch(of_spec).apply(read_document(request.raw), in_place=True)
    affinity = msgspec.convert(document["spec"]["affinity"]["nodeAffinity"], api.NodeAffinity)
    return PlacementRequest(
        pod=structs.replace(request.pod, affinity=affinity),
        raw=request.raw,
        namespace_labels=request.namespace_labels,
        request=request.request,
    )
