from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import ElasticQuota
from engine.model.gang import POD_GROUP_LABEL
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, QUEUED_CONDITION
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros, micros
from engine.report import (
    QueueEntry,
    QuotaPlace,
    ReleaseRates,
    ReleaserReport,
    eta_text,
    expected_wait,
    place_text,
    queue_report,
)
from tests.builders import elastic_quota


def _at(seconds: float) -> Micros:
    return Micros(int((1_000_000 + seconds) * SECOND))


def _rates(*released: float, waiting_since: float = 0) -> ReleaseRates:
    rates = ReleaseRates()
    rates.waits("team", _at(waiting_since))
    for moment in released:
        rates.released("team", _at(moment))
    return rates


def _seconds(rates: ReleaseRates, now: float) -> float | None:
    interval = rates.interval("team", _at(now))
    return None if interval is None else interval / SECOND


def test_the_interval_is_the_time_of_waiting_by_the_releases_in_it() -> None:
    # Five pods left in the 300 s since the first one waits: one each 60 s.
    assert _seconds(_rates(10, 50, 120, 130, 290), 300) == 60


def test_there_is_none_below_five_releases() -> None:
    rates = _rates(10, 50, 120, 130)
    assert _seconds(rates, 300) is None
    rates.released("team", _at(299))
    assert _seconds(rates, 300) == 60
    assert ReleaseRates().interval("team", _at(0)) is None


def test_releases_of_more_than_ten_minutes_ago_do_not_count() -> None:
    # At 1,000 s the window begins at 400 s, with six releases in it: 600 / 6.
    rates = _rates(100, 200, 300, 401, 500, 600, 700, 800, 900)
    assert _seconds(rates, 1_000) == 100
    # At 1,150 s it begins at 550 s, and four are left.
    assert _seconds(rates, 1_150) is None


def test_of_many_releases_the_latest_hundred_count() -> None:
    # One in a second up to 100 s, then one each half second up to 150 s. The latest hundred are
    # those at 100.5, 101 ... 150; 99 of them are after the first: 49.5 / 99.
    rates = _rates(*range(1, 101), *(100 + half / 2 for half in range(1, 101)))
    assert _seconds(rates, 150) == 0.5


def test_while_nothing_is_released_the_interval_grows() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    assert _seconds(rates, 50) == 10  # 50 / 5
    assert _seconds(rates, 500) == 100  # 500 / 5


def test_one_quota_says_nothing_of_another() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    assert rates.interval("other", _at(50)) is None


def test_a_quota_that_nobody_waits_for_is_forgotten_after_ten_minutes() -> None:
    rates = _rates(10, 20, 30, 40, 50)
    rates.retain(_at(649), set())
    assert _seconds(rates, 100) == 20
    rates.retain(_at(660), {"team"})
    assert _seconds(rates, 100) == 20
    rates.retain(_at(660), set())
    assert _seconds(rates, 100) is None


def test_a_pod_waits_for_as_many_releases_as_its_position() -> None:
    assert expected_wait(4, Micros(45 * SECOND)) == 180 * SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 1 min"),
        (60, "about 1 min"),
        (61, "about 2 min"),
        (180, "about 3 min"),
        (3_600, "about 60 min"),
        (3_601, "about 2 h"),
        (86_400, "about 24 h"),
        (86_401, "more than a day"),
    ],
)
def test_a_wait_is_told_as_a_guess(seconds: float, text: str) -> None:
    assert eta_text(Micros(int(seconds * SECOND))) == text


Json = dict[str, Any]

_CREATED = datetime(2026, 3, 2, tzinfo=UTC)
_NOW = Micros(micros(_CREATED) + 90 * SECOND)


def _entry(
    name: str,
    *,
    gates: tuple[str, ...] = (HOLD_GATE,),
    status: Json | None = None,
    bound: int = 60,
    labels: Json | None = None,
) -> QueueEntry:
    written = {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "creationTimestamp": _CREATED,
            "labels": labels or {},
        },
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


def _queued(
    name: str, quota: ElasticQuota | None, *, cpu: str = "2", status: Json | None = None
) -> QueueEntry:
    annotations = {HOLD_REASONS_ANNOTATION: "quota"}
    resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
    written = {
        "metadata": {
            "namespace": "shop",
            "name": name,
            "creationTimestamp": _CREATED,
            "annotations": annotations,
        },
        "spec": {
            "schedulingGates": [{"name": HOLD_GATE}],
            "containers": [{"name": "c", "resources": resources}],
        },
        "status": status or {},
    }
    raw = msgspec.json.encode(written)
    pod = pod_of(msgspec.json.decode(raw, type=api.Pod))
    return QueueEntry(pod=pod, release_by=None, raw=raw, quota=quota)


def _team(**figures: str) -> ElasticQuota:
    return elastic_quota(
        most={"cpu": 4000},
        figures={f"stowplan.dev/{name.replace('_', '-')}": text for name, text in figures.items()},
    )


def _places(*entries: QueueEntry) -> dict[str, QuotaPlace | None]:
    report = queue_report(entries, _NOW, queue_sort="PrioritySort", releaser=None)
    return {pod.pod.name: pod.quota for pod in report.pods}


def test_a_pod_that_waits_for_quota_has_a_place_among_those_of_its_quota() -> None:
    team = _team(
        free='{"cpu":"1"}', blocked_by="mail/batch,dev/ci", seconds_per_release="45", queued="9"
    )
    entries = [_queued("a", team), _entry("placed"), _queued("b", team, cpu="500m")]
    assert _places(*entries) == {
        "a": QuotaPlace(
            quota="shop/team",
            position=1,
            of=2,
            needs={"cpu": "2"},
            free={"cpu": "1"},
            blocked_by=("mail/batch", "dev/ci"),
            eta_seconds=45,
        ),
        "placed": None,
        "b": QuotaPlace(
            quota="shop/team",
            position=2,
            of=2,
            needs={"cpu": "500m"},
            free={"cpu": "1"},
            blocked_by=("mail/batch", "dev/ci"),
            eta_seconds=90,
        ),
    }


def test_it_says_why_it_waits_as_its_condition_does() -> None:
    team = _team(free='{"cpu":"1"}', blocked_by="mail/batch", seconds_per_release="90")
    report = queue_report(
        [_queued("a", team), _queued("b", team)], _NOW, queue_sort="", releaser=None
    )
    first, second = report.pods
    assert first.reason == second.reason == "WaitingForQuota"
    assert second.message == (
        "2nd of 2 in shop/team; needs cpu 2, 1 free; mail/batch borrows; about 3 min"
    )


def test_another_reason_of_its_condition_stays() -> None:
    condition = {
        "type": QUEUED_CONDITION,
        "status": "True",
        "reason": "WaitingForReclaim",
        "message": "3rd of 9 in shop/team; evicts mail/batch-1",
    }
    entry = _queued("a", _team(), status={"conditions": [condition]})
    (pod,) = queue_report([entry], _NOW, queue_sort="", releaser=None).pods
    assert (pod.reason, pod.message) == (
        "WaitingForReclaim",
        "1st of 1 in shop/team; evicts mail/batch-1",
    )


def test_a_member_of_a_gang_names_it_and_what_it_waits_for() -> None:
    condition = {
        "type": QUEUED_CONDITION,
        "status": "True",
        "reason": "WaitingForGang",
        "message": "9th of 9; gang `shop/train`: 3 of 8 members exist",
    }
    entry = _entry("m-0", status={"conditions": [condition]}, labels={POD_GROUP_LABEL: "train"})
    (pod,) = queue_report([entry], _NOW, queue_sort="", releaser=None).pods
    assert (pod.gang, pod.reason) == ("shop/train", "WaitingForGang")
    assert pod.message == "1st of 1; gang `shop/train`: 3 of 8 members exist"


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"free": "{", "seconds_per_release": "soon", "blocked_by": "," * 9_000},
        {"free": '{"cpu":1}', "seconds_per_release": "-1", "blocked_by": ""},
        {"free": "[" * 100_000, "seconds_per_release": "1e9"},
    ],
)
def test_what_a_quota_does_not_tell_is_unknown(figures: dict[str, str]) -> None:
    place = QuotaPlace(quota="shop/team", position=1, of=1)
    assert _places(_queued("a", _team(**figures))) == {"a": place}
