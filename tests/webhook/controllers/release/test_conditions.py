from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE, QUEUED_CONDITION, QueuedReason
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros
from engine.release import HeldPod, HeldPodRegistry
from webhook.controllers.release.conditions import IN_ORDER, Place, QueuedConditions, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

_START = 1_000_000 * SECOND
_PACED = Wait(QueuedReason.WAITING_FOR_BINDINGS, "200 released pods are not bound yet")


def _held(
    name: str,
    *,
    seen: float = 0,
    condition: dict[str, str] | None = None,
    is_queued: bool = True,
) -> HeldPod:
    written: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": name, "uid": f"uid-{name}"},
        "spec": {"schedulingGates": [{"name": HOLD_GATE}]},
        "status": {"conditions": [{"type": QUEUED_CONDITION, **condition}] if condition else []},
    }
    pod = pod_of(msgspec.convert(written, api.Pod))
    seen_at = _at(seen)
    raw = msgspec.json.encode(written)
    return HeldPod(
        pod=pod, version=1, raw=raw, release_by=seen_at, seen_at=seen_at, is_queued=is_queued
    )


def _queue(count: int) -> list[HeldPod]:
    return [_held(f"pod-{i}") for i in range(count)]


def _at(seconds: float) -> Micros:
    return Micros(int(_START + seconds * SECOND))


def _messages(
    conditions: QueuedConditions, queue: Sequence[HeldPod], at: float, wait: Wait = IN_ORDER
) -> dict[str, str]:
    due = conditions.due(queue, _at(at), wait_of=lambda _: wait)
    return {each.held.pod.name: each.condition["message"] for each in due}


def test_a_pod_that_is_held_for_a_moment_gets_none() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(1)
    assert _messages(conditions, queue, 0.9) == {}
    assert conditions.released(queue[0], "nominated to node-1", _at(0.95)) is None


def test_a_pod_that_is_held_for_its_placement_alone_gets_none_while_a_burst_is_bound() -> None:
    conditions = QueuedConditions(HeldPodRegistry())
    queue = [_held("moves-on", is_queued=False), _held("waits")]
    assert list(_messages(conditions, queue, 9.9)) == ["waits"]
    assert conditions.released(queue[0], "nominated to node-1", _at(9.95)) is None
    assert list(_messages(conditions, queue, 10.9)) == ["moves-on"]


def test_it_says_the_place_and_what_the_pod_waits_for() -> None:
    conditions = QueuedConditions(HeldPodRegistry())
    (first, _, _, fourth) = conditions.due(_queue(4), _at(2), wait_of=lambda _: _PACED)
    assert first.condition["message"] == "1st of 4; 200 released pods are not bound yet"
    assert fourth.condition == {
        "type": "stowplan.dev/Queued",
        "status": "True",
        "reason": "WaitingForBindings",
        "message": "4th of 4; 200 released pods are not bound yet",
        "lastTransitionTime": "1970-01-12T13:46:42Z",
    }


def test_what_others_wait_for_does_not_change_their_place() -> None:
    refused = Wait(QueuedReason.RELEASE_REFUSED, "denied by policy x")
    due = QueuedConditions(HeldPodRegistry()).due(
        _queue(2), _at(2), lambda held: refused if held.key == "shop/pod-1" else IN_ORDER
    )
    assert [each.condition["reason"] for each in due] == ["WaitingInOrder", "ReleaseRefused"]
    assert [each.condition["message"] for each in due] == [
        "1st of 2",
        "2nd of 2; denied by policy x",
    ]


def test_a_place_in_the_same_band_is_not_written_again() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(12)
    assert len(_messages(conditions, queue, 2)) == 12
    # After a minute two are gone: the 12th (band to 20) is 10th now (to 10), the 11th is 9th, the
    # 6th (to 10) 4th (to 5), the 5th 3rd, the 4th 2nd and the 3rd 1st; of those from 7th to 10th
    # none has left its band but the 7th, now 5th.
    again = _messages(conditions, queue[2:], 63)
    assert again == {
        "pod-2": "1st of 10",
        "pod-3": "2nd of 10",
        "pod-4": "3rd of 10",
        "pod-5": "4th of 10",
        "pod-6": "5th of 10",
        "pod-10": "9th of 10",
        "pod-11": "10th of 10",
    }


def test_a_pod_is_written_once_a_minute_at_most() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(3)
    assert len(_messages(conditions, queue, 2)) == 3
    assert _messages(conditions, queue, 61.9, _PACED) == {}
    assert len(_messages(conditions, queue, 63, _PACED)) == 3


def _quota_wait(position: int, eta: float | None = None) -> Wait:
    return Wait(
        QueuedReason.WAITING_FOR_QUOTA,
        "needs cpu 2, 1 free; batch borrows 12",
        Place(position, 17, "shop/team"),
        None if eta is None else Micros(int(eta * SECOND)),
    )


def test_a_pod_that_waits_for_its_quota_says_its_place_there_and_how_long_it_takes() -> None:
    (due,) = QueuedConditions(HeldPodRegistry()).due(
        _queue(1), _at(2), wait_of=lambda _: _quota_wait(4, eta=170)
    )
    assert due.condition["message"] == (
        "4th of 17 in shop/team; needs cpu 2, 1 free; batch borrows 12; about 3 min"
    )


def test_the_place_in_the_quota_is_the_one_whose_band_counts() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(1)
    assert len(_messages(conditions, queue, 2, _quota_wait(9))) == 1
    assert _messages(conditions, queue, 63, _quota_wait(6)) == {}  # both are in the band to 10
    assert len(_messages(conditions, queue, 64, _quota_wait(5))) == 1


def test_a_guess_is_written_when_there_is_one_and_again_when_it_is_over() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(1)
    assert len(_messages(conditions, queue, 2, _quota_wait(9))) == 1
    (message,) = _messages(conditions, queue, 63, _quota_wait(9, eta=300)).values()
    assert message.endswith("about 5 min")
    # It foretold the release for 363 s; until then another guess is no news.
    assert _messages(conditions, queue, 362, _quota_wait(9, eta=600)) == {}
    (message,) = _messages(conditions, queue, 365, _quota_wait(9, eta=600)).values()
    assert message.endswith("about 10 min")


def test_later_writes_leave_the_moment_of_the_transition() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(1)
    conditions.due(queue, _at(2))
    (again,) = conditions.due(queue, _at(63), wait_of=lambda _: _PACED)
    assert "lastTransitionTime" not in again.condition


def test_few_are_written_at_a_time_and_the_front_first() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(70)
    first = _messages(conditions, queue, 2)
    assert list(first) == [f"pod-{i}" for i in range(30)]
    assert _messages(conditions, queue, 2.5) == {}
    assert list(_messages(conditions, queue, 3.1)) == [f"pod-{i}" for i in range(30, 60)]


def test_the_release_ends_it() -> None:
    conditions, queue = QueuedConditions(HeldPodRegistry()), _queue(1)
    conditions.due(queue, _at(2))
    assert conditions.released(queue[0], "nominated to node-1", _at(5)) == {
        "type": "stowplan.dev/Queued",
        "status": "False",
        "reason": "Released",
        "message": "nominated to node-1",
        "lastTransitionTime": "1970-01-12T13:46:45Z",
    }


@pytest.mark.parametrize("status", ["True", "False"])
def test_a_new_leader_knows_what_the_one_before_wrote(status: str) -> None:
    conditions = QueuedConditions(HeldPodRegistry())
    held = _held(
        "a", condition={"status": status, "reason": "WaitingInOrder", "message": "3rd of 9"}
    )
    is_true = status == "True"
    assert (conditions.released(held, "unplaced", _at(1)) is not None) == is_true
    assert len(conditions.due([held], _at(2))) == (not is_true)
    assert len(conditions.due([held], _at(63), wait_of=lambda _: _PACED)) == 1


def test_a_condition_that_cannot_be_read_counts_as_none() -> None:
    held = msgspec.structs.replace(_held("a"), raw=b'{"status": "' + QUEUED_CONDITION.encode())
    assert QueuedConditions(HeldPodRegistry()).released(held, "unplaced", _at(1)) is None


def test_pods_that_are_gone_are_forgotten() -> None:
    pods, queue = HeldPodRegistry(), _queue(30)
    conditions = QueuedConditions(pods)
    conditions.due(queue, _at(2))
    pods.retain(lambda pod: pod.name == "pod-0")
    # Pod 29 comes back, and has no condition that it would have to wait a minute for.
    assert list(_messages(conditions, [queue[0], queue[29]], 6)) == ["pod-29"]
