from __future__ import annotations

import msgspec

from engine.model.time import SECOND, Micros
from engine.outcome import (
    LandingJudgement,
    OutcomeWindow,
    PolicyLanding,
    WindowState,
    WorseRules,
)
from engine.outcome.figures import MOST_SERIES, OutcomeCounts
from engine.report import OutcomeFigures, OutcomeReport
from tests.engine.measured_cluster import NOW
from tests.engine.outcome.test_landing import policies

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
