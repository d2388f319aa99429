from __future__ import annotations

import msgspec

from engine.model.decision import Advice
from engine.model.time import SECOND, Micros
from engine.outcome import (
    MOST_SERIES,
    LandingJudgement,
    OutcomeCounts,
    OutcomeWindow,
    PolicyLanding,
    WindowState,
    WorseRules,
    advised_landings,
    binding_landings,
)
from engine.pipeline import decide
from engine.plugins.load_aware.estimation import RAW_ALLOCATABLE
from engine.policy import Mode, PolicySet, load_policies
from engine.report import OutcomeFigures, OutcomeReport
from engine.view import ClusterState
from tests.builders import request_from
from tests.engine.measured_cluster import NOW, node, report

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


def state_of() -> ClusterState:
    state = ClusterState()
    for name in NAMES:
        state.set_node(node(name, cpu="4", memory="8Gi", pods="10"))
    return state


def landings_of(
    landed: str, chosen: str, stock: str, state: ClusterState | None = None
) -> PolicyLanding:
    """Return where a pod lands by the decision of one policy that likes `a` best."""
    manifest = {"metadata": {"name": "new"}, "spec": {"containers": [{"name": "c"}]}}
    request = request_from(manifest)
    view = (state or state_of()).view()
    decision = decide(request, policies(("p", "Enforce", "a")), view, NOW)
    (landing,) = binding_landings(
        decision,
        Mode.AUDIT if chosen != landed else Mode.ENFORCE,
        view,
        node_name=landed,
        chosen=chosen,
        scheduler_node=stock,
        hot_percent=80,
    )
    return landing


def judged(
    landed: str, chosen: str, stock: str, state: ClusterState | None = None
) -> LandingJudgement:
    judgement = landings_of(landed, chosen, stock, state).judgement
    assert judgement is not None
    return judgement


def test_points_are_those_of_the_own_scores_by_weight() -> None:
    # a: (3 x 100 + 0) / 4 = 75; b: (3 x 50 + 100) / 4 = 62.5; c: (0 + 100) / 4 = 25
    assert landings_of("b", "b", "c") == PolicyLanding(
        policy="p",
        mode="Enforce",
        landed=True,
        judgement=LandingJudgement(
            rank=2, points=6250, best=7500, chosen=6250, stock=2500, moved=True
        ),
    )


def test_the_first_rank_is_shared_by_all_with_the_best_total() -> None:
    assert judged("a", "a", "a").rank == 1
    assert judged("c", "c", "a").rank == 3


def test_a_node_that_a_filter_rejects_has_no_rank_and_no_points() -> None:
    judgement = judged("d", "d", "a")
    assert (judgement.rank, judgement.points, judgement.rules) == (0, 0, ("has-room",))
    assert judgement.stock == 7500


def test_what_would_have_been_chosen_is_compared_with_what_the_scheduler_took() -> None:
    # In Audit mode: the scheduler took c, which another policy has moved to b; this one says a.
    landing = landings_of("b", "a", "c")
    assert landing.judgement is not None
    assert (landing.mode, landing.landed) == ("Audit", False)
    assert (landing.judgement.points, landing.judgement.chosen) == (6250, 7500)
    assert (landing.judgement.stock, landing.judgement.moved) == (2500, True)


def test_a_binding_that_would_have_been_denied_is_compared_with_nothing() -> None:
    landing = landings_of("b", "", "b")
    assert landing.judgement is not None
    assert (landing.landed, landing.judgement.is_denied) == (False, True)
    assert (landing.judgement.points, landing.judgement.chosen) == (6250, None)
    assert (landing.judgement.stock, landing.judgement.moved) == (None, False)


def test_hot_nodes_are_told_where_both_are_measured() -> None:
    state = state_of()
    state.set_usage(report("a", {"cpu": 3300, "memory": 0}))
    assert judged("a", "a", "b", state).hot is None
    state.set_usage(report("b", {"cpu": 3200, "memory": 0}))
    assert judged("a", "a", "b", state).hot == (True, False)  # 3.3 of 4 cores are 82.5 %


def test_a_node_is_hot_by_what_it_has_before_amplification() -> None:
    state = state_of()
    amplified = {RAW_ALLOCATABLE: '{"cpu":"2"}'}
    state.set_node(node("a", amplified, cpu="4", memory="8Gi", pods="10"))
    state.set_usage(report("a", {"cpu": 1700, "memory": 0}))
    state.set_usage(report("b", {"cpu": 1700, "memory": 0}))
    assert judged("a", "a", "b", state).hot == (True, False)  # 85 % of 2 cores, 42.5 % of 4


def test_of_an_advised_pod_only_is_known_whether_it_landed_there() -> None:
    advice = Advice(policies=("p", "forged", "p"), nodes=("a", "b"))
    assert advised_landings(advice, "b", {"p", "q"}) == [
        PolicyLanding(policy="p", mode="Enforce", landed=True)
    ]
    assert not advised_landings(advice, "c", {"p"})[0].landed


POLICIES = policies(("p", "Enforce", "a"), ("q", "Audit", "b"))
RULES = WorseRules(least_pods=3, margin=5)
HOUR = 3600


def landing(
    chosen: int | None = 5000, stock: int | None = 5000, *, landed: bool = True, **more: object
) -> PolicyLanding:
    """Return the landing of a pod that the policy `p` has decided at its binding."""
    judgement = LandingJudgement(rank=1, points=chosen, best=10_000, chosen=chosen, stock=stock)
    return PolicyLanding(
        policy="p",
        mode="Enforce",
        landed=landed,
        judgement=msgspec.structs.replace(judgement, **more),
    )


def later(seconds: int) -> Micros:
    return Micros(NOW + seconds * SECOND)


def report_of(window: OutcomeWindow, seconds: int = 0) -> OutcomeReport:
    return window.report(later(seconds), POLICIES, RULES)


def test_figures_add_up_by_namespace_and_in_total() -> None:
    window = OutcomeWindow(HOUR)
    window.add("shop", [landing()], NOW)
    window.add("shop", [landing(2500, rank=6, moved=True)], NOW)
    window.add("batch", [landing(0, rank=0, rules=("has-room",))], NOW)
    window.add("batch", [PolicyLanding(policy="p", mode="Enforce", landed=False)], NOW)
    (policy,) = report_of(window).policies
    assert (policy.policy, policy.mode) == ("p", "Enforce")
    assert [each.namespace for each in policy.namespaces] == ["batch", "shop"]
    assert policy.total == OutcomeFigures(
        pods=4,
        landed=3,
        decided=3,
        rank_total=7,
        ranks=(1, 0, 1, 0, 0),
        rejected=1,
        scored=3,
        points=7500,
        best=30_000,
        compared=3,
        compared_points=7500,
        stock_points=15_000,
        moved=1,
    )
    assert policy.total.mean_rank == 3.5
    assert policy.total.mean_points == 25
    assert policy.total.mean_lost == 75
    assert policy.total.mean_gained == -25
    assert [(each.rule, each.pods) for each in policy.rules] == [("has-room", 1)]


def test_what_is_older_than_the_window_counts_no_longer() -> None:
    window = OutcomeWindow(HOUR)
    window.add("shop", [landing()], NOW)
    window.add("shop", [landing()], later(1800))
    assert report_of(window, 1800).policies[0].total.pods == 2
    assert report_of(window, HOUR + 1).policies[0].total.pods == 1
    assert report_of(window, 3 * HOUR).policies == ()


def test_another_replica_goes_on_where_the_last_one_ended() -> None:
    window = OutcomeWindow(HOUR)
    window.add("shop", [landing(rules=("has-room",))], NOW)
    stored = msgspec.json.encode(window.state())
    again = OutcomeWindow(HOUR, msgspec.json.decode(stored, type=WindowState))
    again.add("shop", [landing()], later(1))
    window.add("shop", [landing()], later(1))
    assert report_of(again, 1) == report_of(window, 1)


def test_a_policy_is_worse_with_fewer_points_than_the_stock_scheduler() -> None:
    window = OutcomeWindow(HOUR)
    for _ in range(2):
        window.add("shop", [landing(4000)], NOW)
    assert not report_of(window).policies[0].worse  # two pods say nothing
    window.add("shop", [landing(4000)], NOW)
    assert report_of(window).policies[0].worse == (
        "its pods landed on nodes with 10.0 points less by its own scores than those of the stock"
        " scheduler, over 3 pods"
    )
    window.forget("p")
    assert report_of(window).policies == ()


def test_a_policy_is_worse_with_more_pods_on_hot_nodes() -> None:
    window = OutcomeWindow(HOUR)
    for hot in ((True, False), (True, False), (False, True), (False, False)):
        window.add("shop", [landing(hot=hot)], NOW)
    # 2 of 4 pods, less 1 of 4
    assert report_of(window).policies[0].worse == (
        "25.0 % more of its pods landed on hot nodes than with the stock scheduler, over 4 pods"
    )


def test_a_policy_in_audit_mode_is_never_worse() -> None:
    window = OutcomeWindow(HOUR)
    for _ in range(5):
        audited = msgspec.structs.replace(landing(0), policy="q", mode="Audit")
        window.add("shop", [audited], NOW)
    (policy,) = report_of(window).policies
    assert (policy.policy, policy.total.mean_gained, policy.worse) == ("q", -50, "")


def test_namespaces_beyond_the_counted_ones_count_together() -> None:
    counts = OutcomeCounts()
    for number in range(2 * MOST_SERIES):
        counts.add(f"n{number}", [landing()])
    assert len(counts.figures) == MOST_SERIES + 1
    assert sum(each.pods for each in counts.figures.values()) == 2 * MOST_SERIES
