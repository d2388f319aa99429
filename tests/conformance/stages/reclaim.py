"""Reclaim with upstream's cohort: who is evicted for a pod within the `min` of its quota.

Upstream's plugin also evicts pods of lower priority of the same quota, and without any quota, pods
that their budgets protect, and it never plans for two nodes: see the expected failures.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from engine.eviction import (
    Candidate,
    Plan,
    QuotaAccount,
    Reclaim,
    Situation,
    completed,
    plan_for_pod,
    running_pod_of,
)
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.disruption_budget import disruption_budget_of
from engine.model.pod import Pod
from engine.model.time import Micros, micros
from engine.pipeline import decide
from engine.policy import CompiledPolicy, PolicySet
from engine.quota import CAPACITY_SCHEDULING_RULES, cohort_usage, judge
from engine.quota.bounds import effective_min, sum_of
from engine.quota.verdict import judge_borrowing
from engine.view import ClusterState
from tests.builders import node_from, pod_from, quota_from
from tests.conformance.cluster import NOW
from tests.conformance.outcome import Json, mismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.model.resources import Amounts

_RULES = CAPACITY_SCHEDULING_RULES
_LATER = Micros(10**18)
_ANYWHERE = PolicySet([CompiledPolicy(name="anywhere")])


def _pod(written: Json) -> Pod:
    return pod_from(written)


def evicted(case: Json, _: Json) -> str | None:
    """Compare who is evicted; of the nodes upstream compares, a plan names the best."""
    plan = _Cluster(case).plan(_pod(case["pod"]))
    expect = dict(case["expect"])
    got: Json = {"code": "Unschedulable" if plan is None else "Success", "candidates": {}}
    if plan is not None:
        victims = [victim.key for victim in plan.victims]
        got["nominatedNode"] = plan.node_name
        got["candidates"] = {plan.node_name: {"victims": victims, "numPDBViolations": 0}}
    return mismatch(expect, {name: got.get(name) for name in expect})


def created_in_order(case: Json, _: Json) -> str | None:
    """Create pods in order; each is bound where it may be, or takes back what others borrow."""
    cluster = _Cluster(case)
    for pod in map(_pod, case["podsToAdd"]):
        cluster.schedule(pod)
    missing = sorted(set(case["expect"]["scheduled"]) - cluster.bound.keys())
    return mismatch([], missing)


class _Cluster:
    """A cluster whose pods are bound, with upstream's cohort: the sum of all `min`.

    Attributes:
        bound: the pods by `namespace/name`.
    """

    def __init__(self, case: Json) -> None:
        self._case = case
        quotas = (quota_from(each) for each in case["quotas"])
        self._quotas = {quota.namespace: quota for quota in quotas}
        self._budgets = [
            disruption_budget_of(msgspec.convert(written, api.PodDisruptionBudget))
            for written in case.get("pdbs", ())
        ]
        self._started = {
            pod["metadata"]["uid"]: micros(msgspec.convert(pod["status"]["startTime"], datetime))
            for pod in case.get("pods", ())
            if "startTime" in pod.get("status", {})
        }
        self.bound = {pod.key: pod for pod in map(_pod, case.get("pods", ()))}

    def schedule(self, pod: Pod) -> None:
        """Bind a pod if its quota, the cohort and a node have room, or a plan makes some."""
        state = self._state()
        used = {space: self._used(space) for space in self._quotas}
        cohort = cohort_usage({space: [quota] for space, quota in self._quotas.items()}, used)
        requests = pod.shape.peak_requests
        quotas = [self._quotas[pod.namespace]]
        if not judge(requests, used[pod.namespace], quotas, _RULES).allowed:
            return
        decision = decide(_request(pod), _ANYWHERE, state.view(), NOW)
        if judge_borrowing(requests, cohort).allowed and decision.candidates.size:
            node_name = decision.names[decision.candidates[0]]
        else:
            plan = self.plan(pod)
            if plan is None:
                return
            for victim in plan.victims:
                del self.bound[victim.key]
            node_name = plan.node_name
        self.bound[pod.key] = msgspec.structs.replace(pod, node_name=node_name)

    def plan(self, pod: Pod) -> Plan | None:
        """Return the plan for a pod, None where there is none."""
        quota = self._quotas.get(pod.namespace)
        if quota is None:
            return None  # only quotas have anything to take back
        state = self._state()
        used = {space: self._used(space) for space in self._quotas}
        least = sum_of(map(effective_min, self._quotas.values()))
        taken = sum_of(used.values())
        named = {*least, *pod.shape.requests}
        plan = plan_for_pod(
            _request(pod),
            Reclaim((quota.key,)),
            Situation(
                view=state.view(),
                policies=_ANYWHERE,
                candidates=list(self._candidates(state)),
                accounts={
                    each.key: QuotaAccount(guaranteed=effective_min(each), used=used[space])
                    for space, each in self._quotas.items()
                },
                cohort_room={name: least.get(name, 0) - taken.get(name, 0) for name in named},
                lendable=least,
                budgets=self._budgets,
                now=_LATER,
            ),
        )
        found = completed(plan)
        return found if isinstance(found, Plan) else None

    def _used(self, namespace: str) -> Amounts:
        """Return what a case says is used, or what the bound pods of a namespace request."""
        quota = self._quotas[namespace]
        if quota.used:
            return quota.used
        of_pods = (
            pod.shape.peak_requests for pod in self.bound.values() if pod.namespace == namespace
        )
        return sum_of(of_pods)

    def _state(self) -> ClusterState:
        state = ClusterState()
        for written in self._case["nodes"]:
            state.set_node(node_from(written))
        for pod in self.bound.values():
            state.set_pod(pod, seen_at=self._started.get(pod.uid, NOW))
        return state

    def _candidates(self, state: ClusterState) -> Iterator[Candidate]:
        for pod in self.bound.values():
            running, entry = running_pod_of(pod), state.entry(pod.key)
            if running is not None and entry is not None and pod.namespace in self._quotas:
                quotas = (self._quotas[pod.namespace].key,)
                yield Candidate(pod=running, entry=entry, quotas=quotas)


def _request(pod: Pod) -> PlacementRequest:
    return PlacementRequest(pod=pod, raw=b"{}")
