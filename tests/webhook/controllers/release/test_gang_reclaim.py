"""Gangs within the min of their quota, for which others give back what they borrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.model.hold import GANG_RELEASED_ANNOTATION, HOLD_GATE
from engine.policy import load_policies
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.combined_model import CombinedCluster
from tests.webhook.controllers.release.memory_server import Fate
from tests.webhook.controllers.release.replica_model import RECLAIM_AFTER_SECONDS
from tests.webhook.controllers.release.scheduler_model import gates_of, node_of, runs
from tests.webhook.controllers.release.test_state_machine import POLICY

_MEMBERS = ("p-b", "p-c")


class GangReclaim(CombinedCluster):
    """Two nodes of 4 cores; `lab` borrows all of them, and `shop` is guaranteed 2."""

    preempts = False

    def more_nodes(self) -> None:
        """Add none."""

    def idle(self) -> set[str]:
        return set()

    def promised(self) -> set[str]:
        return set()

    def members(self) -> list[Object]:
        pods = self.server.pods()
        return [pods[name] for name in _MEMBERS if name in pods]

    def lab(self) -> int:
        """Return how many pods of `lab` run."""
        pods = self.server.pods().values()
        return sum(
            each["metadata"]["namespace"] == "lab" and bool(node_of(each)) and runs(each)
            for each in pods
        )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GangReclaim]:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    monkeypatch.setattr(GangReclaim, "policies", load_policies([policy]), raising=False)
    made = GangReclaim()
    made.begin(is_ready_at_the_end=True)
    made.time_passes(2.0)
    assert made.lab() == 3
    for name in _MEMBERS:
        made._create(name, 1, 0, [HOLD_GATE])  # noqa: SLF001 (at once)
    yield made
    made.teardown()


def test_a_gang_within_min_gets_what_others_borrow(cluster: GangReclaim) -> None:
    cluster.pass_time(RECLAIM_AFTER_SECONDS - 2.0, step=0.5)
    assert cluster.lab() == 3
    cluster.pass_time(30.0, step=0.5)
    assert all(map(node_of, cluster.members()))
    released = {
        each["metadata"]["annotations"].get(GANG_RELEASED_ANNOTATION, "")
        for each in cluster.members()
    }
    assert len(released) == 1
    assert released != {""}
    assert cluster.lab() == 2


@pytest.mark.parametrize("writes", range(1, 16, 2))
def test_the_leader_may_end_at_any_write_of_a_reclaim(cluster: GangReclaim, writes: int) -> None:
    cluster.pass_time(RECLAIM_AFTER_SECONDS - 1.0, step=0.5)
    cluster.server.fates.extend([*[Fate.DONE] * writes, Fate.ENDS_AFTER])
    cluster.pass_time(8.0, step=0.5)
    cluster.server.fates.clear()
    cluster.lead(1)
    cluster.pass_time(150.0, step=1.0)
    assert all(map(node_of, cluster.members()))
    assert not any(map(gates_of, cluster.members()))
    assert cluster.lab() == 2
