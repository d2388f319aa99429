"""New quotas among lagging API servers, changing leaders and other writers, in every order."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.searching import examples
from tests.webhook.controllers.quota_rollout.rollout_model import RolloutCluster

pytestmark = pytest.mark.search
EXAMPLES = examples(int(os.environ.get("STOWPLAN_TEST_EXAMPLES", "50")))

SETTINGS = settings(
    max_examples=max(1, EXAMPLES // 2),  # each lasts for minutes of the model
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_no_pod_beside_a_quota_in_force_is_created_unjudged() -> None:
    run_state_machine_as_test(RolloutCluster, settings=SETTINGS)
