from __future__ import annotations

from engine.report import OutcomeFigures, PolicyOutcome, PolicyRow, RuleKind, RuleRow
from tests.webhook.pages.reports import HOSTILE, busy
from webhook.pages import policy_page

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


def test_texts_are_escaped() -> None:
    assert HOSTILE not in policy_page(row(HOSTILE), [], counted=False).body
