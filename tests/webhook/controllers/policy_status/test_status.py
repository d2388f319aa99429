from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.policy import CompiledPolicy, compile_resource
from engine.report import AuditedPolicy, OutcomeFigures, PolicyOutcome
from webhook.controllers.policy_status.status import (
    Condition,
    OutcomeStatus,
    PolicyFacts,
    PolicyStatus,
    read_status,
    status_of,
)
from webhook.placement.policy_resources import Acceptance, ResourceStanding

VALID = PolicyResource(
    kind=PolicyKind.CLUSTER, name="web", spec={"filters": [{"plugin": "LimitAware"}]}, generation=2
)
THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def policy(**changes: Any) -> CompiledPolicy:  # noqa: ANN401 - fields of a policy
    compiled = compile_resource(VALID).policy
    assert compiled is not None
    return replace(compiled, **changes)


def accepted() -> ResourceStanding:
    return ResourceStanding(
        resource=VALID, acceptance=Acceptance.ACCEPTED, policy=policy(), policy_generation=2
    )


def conditions(status: PolicyStatus) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in status.conditions}


def test_an_accepted_policy_is_in_force_in_its_mode() -> None:
    status = status_of(accepted(), PolicyFacts(policy=policy()), PolicyStatus(), NOW)
    assert status.mode == "Enforce"
    assert conditions(status) == {
        "Accepted": ("True", "Accepted"),
        "Degraded": ("False", "AsExpected"),
    }
    assert {each.observed_generation for each in status.conditions} == {2}
    assert {each.last_transition_time for each in status.conditions} == {NOW}


def test_every_mistake_is_told_and_what_stays_in_force() -> None:
    broken = replace(VALID, spec={"mode": "?", "filters": [{"plugin": "LimitAwar"}]}, generation=3)
    problems = compile_resource(broken).problems
    standing = replace(
        accepted(), resource=broken, acceptance=Acceptance.INVALID, problems=problems
    )
    status = status_of(standing, PolicyFacts(policy=policy()), PolicyStatus(), NOW)
    told = status.conditions[0]
    assert (told.status, told.reason, told.observed_generation) == ("False", "Invalid", 3)
    assert told.message == (
        "it has mistakes; generation 2 stays in force\n"
        "placementpolicies/web:7:13: spec.filters[0].plugin: unknown plugin `LimitAwar`\n"
        " |   - plugin: LimitAwar\n"
        " | ............^\n"
        "hint: did you mean `LimitAware`?\n"
        "placementpolicies/web:8:9: spec.mode: `?` is not `Enforce` or `Audit`\n"
        " |   mode: '?'\n"
        " | ........^"
    )
    never = replace(standing, policy=None)
    status = status_of(never, PolicyFacts(), PolicyStatus(), NOW)
    assert status.conditions[0].message.startswith("it has mistakes; nothing is in force\n")
    assert (status.mode, conditions(status)["Degraded"]) == ("", ("Unknown", "NotInForce"))


def test_a_message_is_bounded() -> None:
    filters = [{"plugin": f"{'x' * 200}{number}"} for number in range(64)]
    broken = replace(VALID, spec={"filters": filters})
    problems = compile_resource(broken).problems
    standing = ResourceStanding(resource=broken, acceptance=Acceptance.INVALID, problems=problems)
    message = status_of(standing, PolicyFacts(), PolicyStatus(), NOW).conditions[0].message
    assert len(problems) == 64
    assert len(message) < 8_300
    assert message.endswith(" more")


@pytest.mark.parametrize(
    ("facts", "reason", "text"),
    [
        (
            {"audited": AuditedPolicy(digest="", reason="worse by 3 points")},
            "KeptInAudit",
            "it is kept in Audit mode: worse by 3 points",
        ),
        (
            {
                "outcome": PolicyOutcome(
                    policy="web", mode="Enforce", total=OutcomeFigures(), worse="3 points lost"
                )
            },
            "MakesThingsWorse",
            "it makes things worse: 3 points lost",
        ),
        (
            {"error": "filter `x`: no such key"},
            "RuleErrors",
            "lately it could not be evaluated for a pod: filter `x`: no such key",
        ),
        ({"policy": policy(slow_parts=("x: slow",))}, "SlowParts", "x: slow"),
    ],
)
def test_a_policy_that_does_less_than_it_should_is_degraded(
    facts: dict[str, Any], reason: str, text: str
) -> None:
    known = PolicyFacts(**{"policy": policy(), **facts})
    told = status_of(accepted(), known, PolicyStatus(), NOW).conditions[1]
    assert (told.status, told.reason, told.message) == ("True", reason, text)


def test_figures_of_the_window_are_shown() -> None:
    figures = OutcomeFigures(
        pods=9, landed=7, rejected=1, compared=4, compared_points=1000, stock_points=400
    )
    outcome = PolicyOutcome(policy="web", mode="Enforce", total=figures)
    facts = PolicyFacts(policy=policy(), outcome=outcome, since=THEN)
    shown = status_of(accepted(), facts, PolicyStatus(), NOW).outcome
    # (1000 - 400) / 4 hundredths of a point
    assert shown == OutcomeStatus(since=THEN, pods=9, landed=7, rejected=1, gain="1.5")


def test_what_was_written_is_right_and_conditions_of_others_stay() -> None:
    other = Condition(type="Reviewed", status="True", last_transition_time=THEN)
    facts = PolicyFacts(policy=policy())
    first = status_of(accepted(), facts, PolicyStatus(conditions=(other,)), THEN)
    stored = read_status(msgspec.json.decode(msgspec.json.encode(first)))
    assert status_of(accepted(), facts, stored, NOW) == stored
    assert stored.conditions[-1] == other
    worse = replace(facts, error="x")
    changed = status_of(accepted(), worse, stored, NOW)
    assert [each.last_transition_time for each in changed.conditions] == [THEN, NOW, THEN]


def test_a_status_that_cannot_be_read_is_written_anew() -> None:
    assert read_status({"conditions": "none"}) == PolicyStatus()
