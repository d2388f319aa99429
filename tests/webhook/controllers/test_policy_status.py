from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.policy_resource import PolicyKind, PolicyResource, policy_resource_of
from engine.policy import CompiledPolicy, compile_resource
from engine.report import AuditedPolicy, OutcomeFigures, OutcomeReport, PolicyOutcome
from tests.fake_api_server import FakeApiServer, fake_api_server
from webhook.cluster.client.connection import Connection, connected
from webhook.cluster.timing import MonotonicClock
from webhook.controllers.policy_status import (
    Condition,
    OutcomeStatus,
    PolicyFacts,
    PolicyObservations,
    PolicyStatus,
    PolicyStatuses,
    read_status,
    status_of,
)
from webhook.controllers.reconciler import Reconciler
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.policy_files import Acceptance, PolicyResources, ResourceStanding

Json = dict[str, Any]
VALID = {"filters": [{"plugin": "LimitAware"}]}
_WIRES = {
    "placementpolicies": api.PlacementPolicy,
    "namespacedplacementpolicies": api.NamespacedPlacementPolicy,
}


class World:
    """A server, its policies as they were seen last, and the controller."""

    def __init__(self, server: FakeApiServer, connection: Connection) -> None:
        self.server = server
        self.seconds = 0.0
        self.pods = 0
        self.resources = PolicyResources()
        self.controller = Reconciler(
            connection,
            PolicyStatuses(
                standings=lambda: self.resources.standings(frozenset()),
                facts=self.facts,
                today=lambda: "2026-01-01T00:00:00Z",
            ),
            clock=MonotonicClock(now=lambda: self.seconds),
            may_write=lambda: True,
        )

    async def facts(self) -> Mapping[str, PolicyFacts]:
        return {
            each.policy.name: PolicyFacts(
                policy=each.policy,
                outcome=PolicyOutcome(
                    policy=each.policy.name, mode="Enforce", total=OutcomeFigures(pods=self.pods)
                ),
            )
            for each in self.resources.standings(frozenset())
            if each.policy is not None
        }

    def write(self, spec: Json, *, namespace: str = "") -> None:
        kind = "NamespacedPlacementPolicy" if namespace else "PlacementPolicy"
        plural = f"{kind.lower()[:-1]}ies"
        found = self.server.objects(plural).get((namespace, "web"))
        written = {
            "apiVersion": "stowplan.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "web", **({"namespace": namespace} if namespace else {})},
            "spec": spec,
            "status": found.get("status", {}) if found else {},
        }
        (self.server.create if found is None else self.server.replace)(written)

    async def see(self) -> None:
        for plural, wire in _WIRES.items():
            for stored in self.server.objects(plural).values():
                self.resources.set(policy_resource_of(msgspec.convert(stored, wire)))
        await self.resources.compile_changed()

    async def round(self, *, after: float = 1) -> None:
        await self.see()
        self.seconds += after
        await self.controller.round()

    def status(self, namespace: str = "") -> Json:
        plural = "namespacedplacementpolicies" if namespace else "placementpolicies"
        status: Json = self.server.objects(plural)[namespace, "web"].get("status", {})
        return status

    def version(self) -> str:
        stored = self.server.objects("placementpolicies")["", "web"]
        return str(stored["metadata"]["resourceVersion"])


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(folder), None) as connection,
    ):
        yield World(server, connection)


async def test_the_status_of_both_kinds_is_written_once(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        live.write({"mode": "Audit"}, namespace="shop")
        await live.round()
        assert live.status()["mode"] == "Enforce"
        assert live.status("shop")["mode"] == "Audit"
        first = live.version()
        await live.controller.round()  # before the write is observed
        await live.round()
        assert live.version() == first


async def test_what_is_wrong_is_told_at_once_and_taken_back(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.round()
        live.write({"mode": "?"})
        await live.round()
        accepted = live.status()["conditions"][0]
        assert (accepted["status"], accepted["observedGeneration"]) == ("False", 2)
        assert "generation 1 stays in force" in accepted["message"]
        live.write({"mode": "Audit"})
        await live.round()
        assert live.status()["conditions"][0]["status"] == "True"
        assert live.status()["mode"] == "Audit"


async def test_figures_alone_are_written_once_a_minute(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.round()
        live.pods = 5
        await live.round(after=30)
        assert live.status()["outcome"]["pods"] == 0
        await live.round(after=30)
        assert live.status()["outcome"]["pods"] == 5


def test_the_words_of_a_condition_alone_are_written_once_a_minute() -> None:
    statuses = PolicyStatuses(lambda: (), no_facts, lambda: "")
    outcome = OutcomeStatus()

    def status(message: str, reason: str = "RulesFail", generation: int = 1) -> PolicyStatus:
        condition = Condition(
            type="Degraded",
            status="True",
            reason=reason,
            message=message,
            observed_generation=generation,
        )
        return PolicyStatus(outcome=outcome, conditions=(condition,))

    first = status("a fails")
    assert statuses.apart_seconds(first, status("b fails")) == 60
    assert statuses.apart_seconds(first, status("b fails", "Impossible")) == 0
    assert statuses.apart_seconds(first, status("b fails", generation=2)) == 0


async def no_facts() -> Mapping[str, PolicyFacts]:
    return {}


async def test_a_failed_write_is_tried_again_later(tmp_path: Path) -> None:
    async with world(tmp_path) as live:
        live.write(VALID)
        await live.see()
        live.server.delete("placementpolicies", "", "web")
        await live.controller.round()  # it is gone
        live.write(VALID)
        await live.round()
        assert live.status() == {}
        await live.round(after=5)
        assert live.status()["mode"] == "Enforce"


POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: web}
spec: {filters: [{plugin: LimitAware}]}
"""


class Failing(PolicyCounts):
    """Counts whose errors a test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.error = (0, "")

    def errors(self, policy: str) -> tuple[int, str]:
        return self.error if policy == "web" else (0, "")


class ObservationsWorld:
    def __init__(self, folder: Path) -> None:
        (folder / "policy.yaml").write_text(POLICY)
        self.policies = LivePolicies([folder], track=lambda _: None)
        self.counts = Failing()
        self.report = OutcomeReport(window_seconds=60)
        self.reads = 0
        self.seconds = 0.0
        self.observations = PolicyObservations(
            self.policies, self.counts, self.outcome, lambda: self.seconds
        )

    async def outcome(self) -> OutcomeReport:
        self.reads += 1
        return self.report


async def test_an_error_counts_for_ten_minutes(tmp_path: Path) -> None:
    world = ObservationsWorld(tmp_path)
    assert (await world.observations.read())["web"].error == ""
    world.counts.error = (1, "filter `x`: no such key")
    assert (await world.observations.read())["web"].error == "filter `x`: no such key"
    world.seconds = 599
    assert (await world.observations.read())["web"].error
    world.seconds = 600
    assert not (await world.observations.read())["web"].error
    world.counts.error = (2, "filter `x`: no such key")
    assert (await world.observations.read())["web"].error


async def test_outcomes_are_read_now_and_then(tmp_path: Path) -> None:
    world = ObservationsWorld(tmp_path)
    for _ in range(3):
        await world.observations.read()
    assert world.reads == 1
    world.seconds = 10
    await world.observations.read()
    assert world.reads == 2


async def test_a_policy_that_was_changed_is_kept_in_audit_mode_no_more(tmp_path: Path) -> None:
    world = ObservationsWorld(tmp_path)
    (policy,) = world.policies.current
    kept = AuditedPolicy(digest=policy.digest.hex(), reason="worse")
    world.report = OutcomeReport(window_seconds=60, audited={"web": kept})
    assert (await world.observations.read())["web"].audited == kept
    other = AuditedPolicy(digest="00", reason="worse")
    world.report = OutcomeReport(window_seconds=60, audited={"web": other})
    world.seconds = 10
    assert (await world.observations.read())["web"].audited is None


STATUS_VALID = PolicyResource(
    kind=PolicyKind.CLUSTER, name="web", spec={"filters": [{"plugin": "LimitAware"}]}, generation=2
)
THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def policy(**changes: Any) -> CompiledPolicy:  # noqa: ANN401 - fields of a policy
    compiled = compile_resource(STATUS_VALID).policy
    assert compiled is not None
    return replace(compiled, **changes)


def accepted() -> ResourceStanding:
    return ResourceStanding(
        resource=STATUS_VALID, acceptance=Acceptance.ACCEPTED, policy=policy(), policy_generation=2
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
    broken = replace(
        STATUS_VALID, spec={"mode": "?", "filters": [{"plugin": "LimitAwar"}]}, generation=3
    )
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
    broken = replace(STATUS_VALID, spec={"filters": filters})
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
