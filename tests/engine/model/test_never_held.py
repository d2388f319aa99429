from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE
from engine.model.never_held import is_never_held
from engine.model.pod import pod_of

OURS, THEIRS = {"name": HOLD_GATE}, {"name": "example.org/theirs"}


@pytest.mark.parametrize(
    ("metadata", "spec", "never"),
    [
        ({}, {}, False),
        ({}, {"priority": 999_999_999}, False),
        ({}, {"priority": 1_000_000_000}, True),
        ({}, {"schedulingGates": [OURS]}, False),  # a second round of admission
        ({}, {"schedulingGates": [THEIRS]}, True),
        ({}, {"schedulingGates": [OURS, THEIRS]}, True),
        ({}, {"schedulingGroup": {"podGroupName": "gang"}}, True),
        ({}, {"schedulingGroup": None}, False),
        ({"labels": {"kueue.x-k8s.io/queue-name": "team"}}, {}, True),
        ({"annotations": {"kueue.x-k8s.io/workload": "job"}}, {}, True),
        ({"labels": {"example.org/kueue.x-k8s.io": "no"}}, {}, False),
        # 256 KiB of annotations are possible, and 16 KiB of them are left for ours.
        ({"annotations": {"a": "x" * (240 * 1024 - 1)}}, {}, False),
        ({"annotations": {"a": "x" * 240 * 1024}}, {}, True),
        ({"annotations": {"a": "é" * 120 * 1024}}, {}, True),
    ],
)
def test_only_pods_that_can_wait_for_us_are_held(
    metadata: dict[str, Any], spec: dict[str, Any], *, never: bool
) -> None:
    pod = msgspec.convert({"metadata": metadata, "spec": spec}, api.Pod)
    assert is_never_held(pod_of(pod)) is never
