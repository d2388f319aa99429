from __future__ import annotations

from pathlib import Path

from engine.report import AuditedPolicy, OutcomeReport
from webhook.controllers.policy_status.observations import PolicyObservations
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_counts import PolicyCounts

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


class World:
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
    world = World(tmp_path)
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
    world = World(tmp_path)
    for _ in range(3):
        await world.observations.read()
    assert world.reads == 1
    world.seconds = 10
    await world.observations.read()
    assert world.reads == 2


async def test_a_policy_that_was_changed_is_kept_in_audit_mode_no_more(tmp_path: Path) -> None:
    world = World(tmp_path)
    (policy,) = world.policies.current
    kept = AuditedPolicy(digest=policy.digest.hex(), reason="worse")
    world.report = OutcomeReport(window_seconds=60, audited={"web": kept})
    assert (await world.observations.read())["web"].audited == kept
    other = AuditedPolicy(digest="00", reason="worse")
    world.report = OutcomeReport(window_seconds=60, audited={"web": other})
    world.seconds = 10
    assert (await world.observations.read())["web"].audited is None
