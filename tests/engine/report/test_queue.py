from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE, QUEUED_CONDITION
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros, micros
from engine.report import QueueEntry, ReleaserReport, place_text, queue_report

Json = dict[str, Any]

_CREATED = datetime(2026, 3, 2, tzinfo=UTC)
_NOW = Micros(micros(_CREATED) + 90 * SECOND)


def _entry(
    name: str, *, gates: tuple[str, ...] = (HOLD_GATE,), status: Json | None = None, bound: int = 60
) -> QueueEntry:
    written = {
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": _CREATED},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], "priority": 5},
        "status": status or {},
    }
    raw = msgspec.json.encode(written)
    pod = pod_of(msgspec.json.decode(raw, type=api.Pod))
    release_by = micros(_CREATED + timedelta(seconds=bound))
    return QueueEntry(pod=pod, release_by=release_by, raw=raw)


def test_pods_are_reported_in_order_with_why_they_are_held() -> None:
    refused = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
            {
                "type": QUEUED_CONDITION,
                "status": "True",
                "reason": "ReleaseRefused",
                "message": "9th of 9; denied by policy x; tried again in 20 s",
            },
        ],
        "nominatedNodeName": "node-1",
    }
    queue = [
        _entry("gated", gates=(HOLD_GATE, "example.com/quota")),
        _entry("first", status=refused),
        _entry("second", bound=120),
    ]
    releaser = ReleaserReport(holder="a", renewed_seconds_ago=1.0, releasing=True)
    report = queue_report(queue, _NOW, queue_sort="PrioritySort", releaser=releaser)
    assert msgspec.json.decode(msgspec.json.encode(report)) == {
        "queueSort": "PrioritySort",
        "held": 3,
        "overdue": 1,  # held for 90 s of 60 s; the one with another gate waits for others
        "releaser": {"holder": "a", "renewedSecondsAgo": 1.0, "releasing": True},
        "pods": [
            {
                "pod": {"namespace": "shop", "name": "first"},
                "place": 1,
                "priority": 5,
                "qosClass": "BestEffort",
                "heldSeconds": 90,
                "reason": "ReleaseRefused",
                "message": "1st of 2; denied by policy x; tried again in 20 s",
                "nominatedNode": "node-1",
                "overdueSeconds": 30,
            },
            {
                "pod": {"namespace": "shop", "name": "second"},
                "place": 2,
                "priority": 5,
                "qosClass": "BestEffort",
                "heldSeconds": 90,
                "reason": "WaitingInOrder",
                "message": "2nd of 2",
            },
            {
                "pod": {"namespace": "shop", "name": "gated"},
                "place": 0,
                "priority": 5,
                "qosClass": "BestEffort",
                "heldSeconds": 90,
                "reason": "WaitingForOtherGates",
                "message": "waits for others to remove example.com/quota",
            },
        ],
    }


def test_some_may_be_listed_and_places_are_among_all() -> None:
    queue = [_entry(name) for name in "abc"]
    report = queue_report(
        queue, _NOW, queue_sort="QOSSort", releaser=None, lists=lambda pod: pod.name != "a", most=1
    )
    assert [(each.pod.name, each.message) for each in report.pods] == [("b", "2nd of 3")]
    assert report.held == 3


@pytest.mark.parametrize(
    ("place", "text"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"),
     (21, "21st"), (22, "22nd"), (101, "101st"), (111, "111th"), (113, "113th")],
)  # fmt: skip
def test_places_are_ordinals(place: int, text: str) -> None:
    assert place_text(place, 200) == f"{text} of 200"
