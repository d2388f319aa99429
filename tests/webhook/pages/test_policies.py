from __future__ import annotations

from typing import Any

from engine.report import (
    BindingStatus,
    OutcomeFigures,
    PoliciesReport,
    PolicyOutcome,
    PolicyRow,
    RuleKind,
    RuleRow,
)
from engine.report.policies import AuditedPolicy
from tests.webhook.pages.reports import HOSTILE, busy
from webhook.pages import policies_page, policy_page


def policy(name: str = "calm", **more: Any) -> PolicyRow:  # noqa: ANN401 (any part of a row)
    rules = (
        RuleRow(kind=RuleKind.FILTER, name="zone", rejected_nodes=5),
        RuleRow(kind=RuleKind.FILTER, name="busy", rejected_nodes=50),
        RuleRow(kind=RuleKind.SCORE, name="idle", weight=2),
    )
    row: dict[str, Any] = {"name": name, "mode": "Enforce", "placed_at": "Admission", "priority": 1}
    return PolicyRow(**{"rules": rules, **row, **more})


def test_the_filter_that_rejects_most_nodes_is_on_top() -> None:
    report = PoliciesReport(policies=(policy(),), counted=True)
    page = policies_page(report, {})
    (bars,) = page.figures["turned-away"]["data"]
    assert (bars["y"], bars["x"]) == (["calm: busy", "calm: zone"], (50, 5))
    assert "<td>zone: 5<br>busy: 50</td>\n<td>idle x 2</td>" in page.body


def test_outcomes_are_in_points_of_the_policy() -> None:
    # 4 pods with 320 points in hundredths of 400 possible: 0.8 points each, 0.2 lost; 3 compared
    figures = OutcomeFigures(
        pods=4,
        landed=3,
        decided=4,
        scored=4,
        points=320,
        best=400,
        compared=4,
        compared_points=320,
        stock_points=360,
    )
    outcome = PolicyOutcome(policy="calm", mode="Enforce", total=figures, worse="worse than stock")
    body = policies_page(PoliciesReport(policies=(policy(outcome=outcome),), counted=True), {}).body
    for figure in ("75 %", "0.8", "0.2", "-0.1"):  # the last: (320 - 360) / 3 hundredths
        assert f'<td class="number">{figure}</td>' in body
    assert "worse than stock" in body


def test_a_policy_that_was_set_to_audit_says_since_when() -> None:
    audited = AuditedPolicy(digest="ab", since="2026-03-02T10:00:00Z", reason="hot nodes")
    row = policy(mode="Audit", audited=audited)
    body = policies_page(PoliciesReport(policies=(row,)), {}).body
    assert "set to Audit at 2026-03-02T10:00:00Z</strong>: hot nodes" in body
    assert "No pod has been bound yet" in body


def test_no_policy_and_no_counts_are_shown_as_such() -> None:
    page = policies_page(PoliciesReport(policies=()), {})
    assert "No policy is in force" in page.body
    assert not page.figures
    recorded = policies_page(PoliciesReport(policies=(policy(),)), {}).body
    assert "not counted in a recording" in recorded
    assert "Abstained" not in recorded


def test_what_went_wrong_is_said() -> None:
    report = PoliciesReport(
        policies=(policy(warnings=("slow part",)),), last_reload_error="a.yaml:3"
    )
    body = policies_page(report, {}).body
    assert "newer files are not loaded: a.yaml:3" in body
    assert "calm: slow part" in body


def test_texts_are_escaped() -> None:
    rules = (RuleRow(kind=RuleKind.FILTER, name=HOSTILE, rejected_nodes=1),)
    row = policy(HOSTILE, rules=rules, warnings=(HOSTILE,))
    report = PoliciesReport(policies=(row,), last_reload_error=HOSTILE, counted=True)
    page = policies_page(report, {})
    assert "<img" not in page.body
    assert "<" not in page.figures["turned-away"]["data"][0]["y"][0]


def test_what_became_of_bindings_is_told_by_who_decides_them() -> None:
    status = BindingStatus(
        leads=True,
        kept=5,
        moved=7,
        denied=2,
        escaped=1,
        reasons={"Claims": 5, "BetterNode": 7, "NoRoom": 2},
        moved_by={"calm": 7},
        paused="bindings escape",
    )
    body = policies_page(PoliciesReport(policies=(policy(),), bindings=status), {}).body
    for title, count in (("Kept", 5), ("Moved", 7), ("Denied", 2), ("Escaped", 1)):
        assert f"<dt>{title}</dt><dd>{count}</dd>" in body
    assert body.index(">BetterNode<") < body.index(">Claims<") < body.index(">NoRoom<")
    assert '<th scope="row">calm</th>\n<td class="number">7</td>' in body
    assert "no pod is moved just now: bindings escape" in body
    other = PoliciesReport(policies=(policy(),), bindings=BindingStatus())
    assert "At bindings" not in policies_page(other, {}).body


RULES = (RuleRow(kind=RuleKind.FILTER, name="busy", rejected_nodes=1_234),)


def row(name: str = "calm", outcome: PolicyOutcome | None = None) -> PolicyRow:
    return PolicyRow(
        name=name, mode="Enforce", placed_at="Binding", priority=5, rules=RULES, outcome=outcome
    )


def test_its_effect_is_where_pods_were_bound() -> None:
    total = OutcomeFigures(
        pods=20, landed=18, decided=20, scored=20, points=160_000, best=170_000,
        compared=20, compared_points=160_000, stock_points=100_000,
        measured=20, hot=1, stock_hot=6,
    )  # fmt: skip
    outcome = PolicyOutcome(policy="calm", mode="Enforce", total=total)
    body = policy_page(row(outcome=outcome), [busy(65)], counted=True).body
    assert "<dd>90.0 %</dd>" in body  # 18 of 20
    assert "<dd>+30.0</dd>" in body  # (160,000 - 100,000) / 20 pods / 100
    assert "<dd>5.0</dd>" in body  # (170,000 - 160,000) / 20 pods / 100
    assert '6 <span aria-hidden="true">→</span><span class="unseen">to</span> 1<' in body
    assert "1,234" in body
    assert '<a href="nodes?resource=cpu&amp;measure=load">cpu load 65 %</a>' in body


def test_without_an_outcome_it_says_what_to_do() -> None:
    body = policy_page(row(), [], counted=False).body
    assert "stowplan simulate --cluster RECORDING --arm calm --html report.html" in body


def test_texts_are_escaped_in_policy() -> None:
    assert HOSTILE not in policy_page(row(HOSTILE), [], counted=False).body
