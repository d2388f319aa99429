"""Random clusters, and a held pod for which others of lower priority may be evicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from engine.model.pod import Pod
from engine.model.priority_class import PreemptionToleration, PriorityClass
from engine.policy import CompiledPolicy, PolicySet
from engine.reclaim import Candidate, Situation, running_pod_of
from tests.engine.measured_cluster import node
from tests.engine.reclaim.worlds import GANG_LABEL, ReclaimWorld, quota_key, running
from tests.engine.reclaim.worlds import worlds as reclaim_worlds

CLASSES: Mapping[str, PriorityClass] = {
    name: PriorityClass(name=name, toleration=toleration, is_preempting=True)
    for name, toleration in {
        "plain": PreemptionToleration(1),
        "patient": PreemptionToleration(1000, 4000),
        "for-ever": PreemptionToleration(1000, -1),
    }.items()
}


@dataclass(frozen=True)
class PreemptionWorld(ReclaimWorld):
    """Something to plan on; all running pods are candidates, those without a quota too."""

    def situation(self) -> Situation:
        """Return what a plan is made from."""
        state = self.state()
        candidates = []
        for each in self.pods:
            pod, entry = running_pod_of(each), state.entry(each.key)
            if pod is not None and entry is not None:
                has_quota = each.namespace in self.minimums
                quotas = (quota_key(each.namespace),) if has_quota else ()
                candidates.append(Candidate(pod=pod, entry=entry, quotas=quotas))
        return replace(super().situation(), view=state.view(), candidates=candidates)


@st.composite
def worlds(draw: st.DrawFn) -> PreemptionWorld:
    """Return random worlds, with gangs and tolerations, in which nodes are rather full."""
    base = draw(reclaim_worlds())
    pods = []
    for each in base.pods:
        group = draw(st.sampled_from(("", "", "", "gang", "nameless")))
        pods.append(
            running(
                each.name,
                each.node_name,
                draw(st.integers(1, 3)),
                namespace=each.namespace,
                priority=draw(st.sampled_from((0, 0, 10, 100))),
                age=draw(st.sampled_from((100, 3600, 3999, 4001))),
                owner=each.owner_uid,
                deleting=each.deleting,
                labels={**each.labels} | ({GANG_LABEL: group} if group else {}),
                kind=each.owner_kinds[0] if each.owner_kinds else "ReplicaSet",
                priority_class=draw(st.sampled_from(("", "", "plain", "patient", "for-ever"))),
            )
        )
    minimums = {
        space: {"cpu": draw(st.integers(0, 4)) * 1000}
        for space in draw(st.sampled_from(((), ("batch",), ("batch", "etl", "shop"))))
    }
    return PreemptionWorld(
        nodes=base.nodes,
        pods=pods,
        preemptor=running("preemptor", "", draw(st.integers(1, 5)), namespace="shop", priority=50),
        minimums=minimums,
        cohort={},
        policies=base.policies,
        budgets=base.budgets,
        classes=CLASSES,
        guards=base.guards,
        leaving=base.leaving,
        gangs=frozenset({"gang"}),
    )


def small(pods: Sequence[Pod], cpu: int = 4, nodes: Sequence[str] = ("a", "b")) -> PreemptionWorld:
    """Return nodes of 4 cores with some pods, and one of priority 50 that wants so many."""
    return PreemptionWorld(
        nodes=[node(name, cpu="4", memory="64Gi", pods="20") for name in nodes],
        pods=pods,
        preemptor=running("preemptor", "", cpu, namespace="shop", priority=50),
        minimums={},
        cohort={},
        policies=PolicySet([CompiledPolicy(name="anywhere")]),
        classes=CLASSES,
        gangs=frozenset({"gang"}),
    )
