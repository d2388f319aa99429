from __future__ import annotations

from pathlib import Path

import pytest

from engine.policy import PolicySet, load_policies
from engine.report import RuleKind, policies_report
from engine.report.policies import AuditedPolicy, OutcomeFigures, OutcomeReport, PolicyOutcome

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: calm}
spec:
  mode: Audit
  priority: 3
  filters:
    - {name: small, expression: "node.labels['size'] == 'small'", message: too large}
  scores:
    - {plugin: LoadAware, weight: 2}
"""


@pytest.fixture
def policies(tmp_path: Path) -> PolicySet:
    (tmp_path / "calm.yaml").write_text(POLICY)
    return load_policies([tmp_path])


def test_a_policy_has_its_rules_with_what_they_did(policies: PolicySet) -> None:
    found = policies_report(
        policies,
        decisions={("calm", "Audit", "placed"): 5, ("other", "Audit", "placed"): 9},
        rejections={("calm", "Audit", "small"): 40},
    )
    (row,) = found.policies
    assert (row.mode, row.priority, row.placed_at) == ("Audit", 3, "Admission")
    assert row.decisions == {"placed": 5}
    assert [(rule.kind, rule.name, rule.weight, rule.rejected_nodes) for rule in row.rules] == [
        (RuleKind.FILTER, "small", 0, 40),
        (RuleKind.SCORE, "LoadAware", 2, 0),
    ]


def test_where_nobody_counts_it_is_said(policies: PolicySet) -> None:
    found = policies_report(policies)
    assert not found.counted
    assert found.policies[0].decisions == {}


def test_a_policy_has_its_outcome_and_why_it_is_kept_in_audit_mode(policies: PolicySet) -> None:
    (policy,) = policies
    outcome = PolicyOutcome(policy="calm", mode="Audit", total=OutcomeFigures(pods=4))
    audited = AuditedPolicy(digest=policy.digest.hex(), reason="hot nodes")
    report = OutcomeReport(window_seconds=3600, policies=(outcome,), audited={"calm": audited})
    (row,) = policies_report(policies, outcome=report).policies
    assert (row.outcome, row.audited) == (outcome, audited)


def test_a_policy_that_was_changed_since_is_not_kept_in_audit_mode(policies: PolicySet) -> None:
    report = OutcomeReport(window_seconds=3600, audited={"calm": AuditedPolicy(digest="ab")})
    (row,) = policies_report(policies, outcome=report).policies
    assert row.audited is None
