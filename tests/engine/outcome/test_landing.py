from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from engine.model import api
from engine.model.pod import pod_of
from engine.model.request import PlacementRequest
from engine.outcome import BoundPod, Judge, PolicyLanding, meant_nodes
from engine.pipeline import Scope, decide
from engine.plugins.load_aware.usage import RAW_ALLOCATABLE
from engine.policy import PolicySet, load_policies
from engine.view import FRESH, ClusterState
from tests.engine.measured_cluster import NOW, node, pod, report

if TYPE_CHECKING:
    from engine.model.time import Micros
    from engine.view import ClusterView

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {{ name: {name} }}
spec:
  mode: {mode}
  filters:
    - name: has-room
      expression: node.name != 'd'
  scores:
    - name: alphabet
      weight: 3
      expression: "node.name == '{best}' ? 100 : node.name == 'b' ? 50 : 0"
    - name: same-for-two
      expression: "node.name in ['b', 'c'] ? 100 : 0"
"""
NAMES = "abcd"


def policies(*texts: tuple[str, str, str]) -> PolicySet:
    """Return policies by name, mode and best node."""
    return load_policies(
        (),
        {
            name: POLICY.format(name=name, mode=mode, best=best).encode()
            for name, mode, best in texts
        },
    )


def bound_to(name: str, state: ClusterState) -> BoundPod:
    """Return a pod that the state counts on a node."""
    manifest = {
        "metadata": {"name": "new", "namespace": "default", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
    }
    raw = msgspec.json.encode(manifest)
    submitted = pod_of(msgspec.json.decode(raw, type=api.Pod))
    state.set_pod(msgspec.structs.replace(submitted, node_name=name), seen_at=NOW)
    entry = state.entry("default/new")
    assert entry is not None
    return BoundPod(
        request=PlacementRequest(pod=submitted, raw=raw),
        node_name=name,
        entries=[("default/new", entry)],
    )


def state_of(cpu: str = "4") -> ClusterState:
    state = ClusterState()
    for name in NAMES:
        state.set_node(node(name, cpu=cpu, memory="8Gi", pods="10"))
    return state


def judged(
    landed: str, stock: str, loaded: PolicySet, state: ClusterState | None = None
) -> list[PolicyLanding]:
    state = state or state_of()

    def choice(_request: PlacementRequest, _view: ClusterView, _now: Micros) -> str:
        return stock

    judge = Judge(Scope(), choice, hot_percent=80)
    return judge.judge(bound_to(landed, state), loaded, state.view(), NOW, FRESH)


def test_points_are_those_of_the_own_scores_by_weight() -> None:
    # a: (3 x 100 + 0) / 4 = 75; b: (3 x 50 + 100) / 4 = 62.5; c: (0 + 100) / 4 = 25
    (landing,) = judged("b", "c", policies(("p", "Enforce", "a")))
    assert landing == PolicyLanding(
        policy="p", mode="Enforce", rank=2, points=6250, best=7500, stock=2500, moved=True
    )


def test_the_first_rank_is_shared_by_all_with_the_best_total() -> None:
    assert judged("a", "a", policies(("p", "Enforce", "a")))[0].rank == 1
    assert judged("c", "a", policies(("p", "Enforce", "a")))[0].rank == 3


def test_a_node_that_a_filter_rejects_has_no_rank_and_no_points() -> None:
    (landing,) = judged("d", "a", policies(("p", "Enforce", "a")))
    assert (landing.rank, landing.points, landing.rules) == (0, 0, ("has-room",))
    assert landing.stock == 7500


def test_the_pod_itself_is_not_counted_on_its_node() -> None:
    # one core each: the node that it landed on has room for it alone
    (landing,) = judged("a", "a", policies(("p", "Enforce", "a")), state_of("1"))
    assert landing.rank == 1


def test_a_policy_in_audit_mode_is_judged_by_itself_and_against_nothing() -> None:
    enforced, audited = judged("b", "a", policies(("p", "Enforce", "a"), ("q", "Audit", "b")))
    assert (enforced.policy, enforced.rank, enforced.stock) == ("p", 2, 7500)
    # b: (3 x 100 + 100) / 4
    assert audited == PolicyLanding(policy="q", mode="Audit", rank=1, points=10000, best=10000)


def test_hot_nodes_are_told_where_both_are_measured() -> None:
    state = state_of()
    state.set_usage(report("a", {"cpu": 3300, "memory": 0}))
    loaded = policies(("p", "Enforce", "a"))
    assert judged("a", "b", loaded, state)[0].hot is None
    state.set_usage(report("b", {"cpu": 3200, "memory": 0}))
    assert judged("a", "b", loaded, state)[0].hot == (True, False)  # 3.3 of 4 cores are 82.5 %


def test_a_node_is_hot_by_what_it_has_before_amplification() -> None:
    state = state_of()
    amplified = {RAW_ALLOCATABLE: '{"cpu":"2"}'}
    state.set_node(node("a", amplified, cpu="4", memory="8Gi", pods="10"))
    state.set_usage(report("a", {"cpu": 1700, "memory": 0}))
    state.set_usage(report("b", {"cpu": 1700, "memory": 0}))
    loaded = policies(("p", "Enforce", "a"))
    assert judged("a", "b", loaded, state)[0].hot == (True, False)  # 85 % of 2 cores, 42.5 % of 4


def test_without_a_policy_there_is_nothing_to_judge() -> None:
    assert judged("a", "a", PolicySet()) == []


@pytest.mark.parametrize(
    ("annotations", "meant"),
    [
        ({}, ()),
        ({"stowplan.dev/advice": '{"nodes":["a","b"]}'}, ("a", "b")),
        ({"stowplan.dev/released": "a"}, ("a",)),
        ({"stowplan.dev/released": "no node takes it"}, ()),
        ({"stowplan.dev/advice": "{"}, ()),
    ],
)
def test_a_pod_is_meant_for_its_advised_nodes_or_the_nominated(
    annotations: dict[str, str], meant: tuple[str, ...]
) -> None:
    assert meant_nodes(pod(metadata={"annotations": annotations})) == meant


def test_a_binding_is_judged_by_its_decision_and_the_node_that_the_scheduler_took() -> None:
    # As above: a has 75 points, b 62.5 and c 25.
    state, loaded = state_of(), policies(("p", "Enforce", "a"), ("q", "Audit", "b"))
    waiting = msgspec.structs.replace(bound_to("a", state_of()).request.pod, node_name="")
    made = decide(PlacementRequest(pod=waiting, raw=b"{}"), loaded, state.view(), NOW)
    landings = Judge(Scope(), None, hot_percent=80).judge_binding(
        made, made.audit, loaded, state.view(), node_name="a", scheduler_node="c"
    )
    enforced, audited = landings
    assert enforced == PolicyLanding(
        policy="p", mode="Enforce", rank=1, points=7500, best=7500, stock=2500, moved=True
    )
    # b would have had (3 x 100 + 100) / 4 = 100 points, and a has none by that policy.
    assert (audited.policy, audited.rank, audited.points, audited.best) == ("q", 3, 0, 10_000)
    assert audited.stock is None
