"""Held pods among replicas, a scheduler, tenants and faults, in every order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from engine.policy import load_policies
from tests.searching import examples
from tests.webhook.controllers.release.cluster_model import HeldCluster
from tests.webhook.controllers.release.combined_model import CombinedCluster
from tests.webhook.controllers.release.gang_model import GangCluster
from tests.webhook.controllers.release.queue_model import QueueCluster
from tests.webhook.controllers.release.reclaim_model import ReclaimCluster
from tests.webhook.controllers.release.reservation_model import ReservationCluster

POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: packed}
spec:
  scores: [{plugin: NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]
  placement: {at: Binding}
"""
pytestmark = pytest.mark.search
EXAMPLES = examples(int(os.environ.get("STOWPLAN_TEST_EXAMPLES", "50")))
"""Of each state machine; more of them find what is rarer, some ten a second."""

SETTINGS = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def _apply(policy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "policy.yaml"
    path.write_text(policy, encoding="utf-8")
    monkeypatch.setattr(HeldCluster, "policies", load_policies([path]), raising=False)


@pytest.fixture
def _policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _apply(POLICY, tmp_path, monkeypatch)


@pytest.fixture
def _preempting_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _apply(POLICY.replace("at: Binding", "at: Binding, preemption: On"), tmp_path, monkeypatch)


@pytest.mark.usefixtures("_policy")
def test_no_pod_waits_for_quota_beside_free_room_and_none_gets_past() -> None:
    run_state_machine_as_test(QueueCluster, settings=SETTINGS)


@pytest.mark.usefixtures("_policy")
def test_what_others_borrow_is_taken_back_and_nobody_is_pushed_below_min() -> None:
    run_state_machine_as_test(ReclaimCluster, settings=SETTINGS)


@pytest.mark.usefixtures("_policy")
def test_no_held_pod_is_lost_and_no_room_given_twice() -> None:
    run_state_machine_as_test(HeldCluster, settings=SETTINGS)


@pytest.mark.usefixtures("_policy")
def test_no_gang_is_released_in_part_and_none_keeps_room_it_does_not_use() -> None:
    run_state_machine_as_test(GangCluster, settings=SETTINGS)


@pytest.mark.usefixtures("_policy")
def test_one_gang_at_a_time_reserves_room_that_is_there_and_gives_it_back() -> None:
    run_state_machine_as_test(ReservationCluster, settings=SETTINGS)


@pytest.mark.usefixtures("_preempting_policy")
def test_gangs_quotas_and_preemption_together_come_to_an_end() -> None:
    run_state_machine_as_test(CombinedCluster, settings=SETTINGS)
