"""Gangs that pods of lower priority make room for, whatever becomes of their leader meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.hold import HOLD_GATE
from engine.policy import load_policies
from tests.webhook.controllers.release.gang_model import GangCluster
from tests.webhook.controllers.release.memory_server import Call, Fate
from tests.webhook.controllers.release.reclaim_model import is_reclaimed_for
from tests.webhook.controllers.release.scheduler_model import (
    gates_of,
    node_of,
    nominated_in,
    runs,
)
from tests.webhook.controllers.release.test_state_machine import POLICY
from webhook.controllers.gang import GangOutcome

_LONG = 150.0


class GangPreemption(GangCluster):
    """Two nodes of 4 cores, full of pods of priority 0."""

    reclaims = preempts = True

    def __init__(self) -> None:
        super().__init__()
        self.is_reserved_at_evictions: list[bool] = []

    def check_write(self, call: Call) -> None:
        """Note whether the whole gang had its room reserved when somebody is evicted."""
        if not call.is_eviction:
            super().check_write(call)
        elif not call.dry_run:
            pods = self.server.pods()
            reserved = [is_reclaimed_for(pods[name]) for name in ("p-b", "p-c") if name in pods]
            self.is_reserved_at_evictions.append(all(reserved))

    def check_nomination(self, replica: object, pod: object, node_name: str) -> None:
        """Nominations are made before there is room."""

    def need(self, cpu: int, priority: int = 5) -> None:
        """Create the members of a gang of two."""
        for name in ("p-b", "p-c"):
            self._create(name, cpu, priority, [HOLD_GATE])

    def nodes_of_gang(self) -> list[str]:
        pods = self.server.pods()
        return sorted(node_of(pods[name]) for name in ("p-b", "p-c") if name in pods)

    def low(self) -> set[str]:
        """Return the pods of low priority that run."""
        return {name for name, pod in self.server.pods().items() if name[0] == "v" and runs(pod)}

    def step_to(self, seconds: float) -> None:
        self.pass_time(seconds, step=0.5)


@pytest.fixture
def cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[GangPreemption]:
    mode = getattr(request, "param", "On")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.replace("at: Binding", f"at: Binding, preemption: {mode}"))
    monkeypatch.setattr(GangPreemption, "policies", load_policies([policy]), raising=False)
    made = GangPreemption()
    made.begin(is_ready_at_the_end=True)
    for name in ("v-a", "v-b"):
        made.create(name, 4, 0, [])
    assert made.low() == {"v-a", "v-b"}
    yield made
    made.teardown()


def test_all_members_get_the_room_of_pods_of_lower_priority(cluster: GangPreemption) -> None:
    cluster.need(3)
    cluster.step_to(20)
    assert cluster.nodes_of_gang() == ["node-a", "node-b"]
    assert not cluster.low()
    assert cluster.is_reserved_at_evictions == [True, True]
    assert cluster.replicas[0].gang_outcomes == [GangOutcome.RELEASED, GangOutcome.STARTED]


def test_nobody_is_evicted_for_a_part_of_a_gang(cluster: GangPreemption) -> None:
    cluster.need(5)  # more than any node has
    cluster.step_to(20)
    assert cluster.low() == {"v-a", "v-b"}
    held = cluster.replicas[0].held.get("shop/p-b")
    assert held is not None
    note = cluster.replicas[0].records.of(held).reclaim_note
    assert note is not None
    assert "no 10 pods of lower priority make room for all of it" in note.text


def test_only_as_many_go_as_are_needed(cluster: GangPreemption) -> None:
    cluster.node_comes("node-c", 3)
    cluster.need(3)
    cluster.step_to(20)
    assert len(cluster.low()) == 1
    assert "node-c" in cluster.nodes_of_gang()


@pytest.mark.parametrize("cluster", ["DryRun", "Off"], indirect=True)
def test_nobody_is_evicted_unless_the_policy_says_so(cluster: GangPreemption) -> None:
    cluster.need(3)
    cluster.step_to(20)
    assert cluster.low() == {"v-a", "v-b"}
    assert all(gates_of(cluster.server.pods()[name]) for name in ("p-b", "p-c"))


def test_a_member_that_goes_takes_all_back(cluster: GangPreemption) -> None:
    cluster.need(3)
    while not any(nominated_in(pod) for pod in cluster.server.pods().values()):
        cluster.step_to(0.5)
    cluster.server.delete("pods", "p-c")
    cluster.step_to(30)
    assert not nominated_in(cluster.server.pods()["p-b"])
    assert gates_of(cluster.server.pods()["p-b"]) == [HOLD_GATE]


@pytest.mark.parametrize("fate", [Fate.ENDS_BEFORE, Fate.ENDS_AFTER])
@pytest.mark.parametrize("writes", range(14))
def test_the_leader_may_end_at_any_write(cluster: GangPreemption, writes: int, fate: Fate) -> None:
    cluster.need(3)
    cluster.server.fates.extend([*[Fate.DONE] * writes, fate])
    cluster.step_to(5)
    cluster.server.fates.clear()
    cluster.lead(1)
    cluster.step_to(_LONG)
    assert cluster.nodes_of_gang() == ["node-a", "node-b"]
    assert not cluster.low()
    assert all(cluster.is_reserved_at_evictions)
