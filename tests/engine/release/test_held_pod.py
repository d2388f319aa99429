from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from msgspec.structs import replace

from engine.gang import GangKey
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RECLAIM_PLAN_ANNOTATION
from engine.model.time import Micros
from engine.release import (
    HeldPod,
    HeldPodRecord,
    HeldPodRegistry,
    Next,
    Phase,
    ReclaimNote,
    ReleaseAttempt,
    ReleaseDecision,
    RoomWait,
    WriteFailure,
    WrittenCondition,
)
from tests.engine.release.pods import held_of, pod

NOW = Micros(0)
DENIED = "denied by a policy"


def held(name: str = "a", *, uid: str = "", version: int = 1, reasons: str = "order") -> HeldPod:
    annotated: dict[str, Any] = {HOLD_REASONS_ANNOTATION: reasons}
    gated = replace(pod(name, uid=uid, annotations=annotated), scheduling_gates=(HOLD_GATE,))
    return replace(held_of(gated, version), is_queued=reasons == "quota")


@pytest.fixture
def pods() -> HeldPodRegistry:
    return HeldPodRegistry()


@pytest.fixture
def record(pods: HeldPodRegistry) -> HeldPodRecord:
    return pods.of(held())


def sent(record: HeldPodRecord, of: HeldPod | None = None) -> ReleaseAttempt:
    """Begin a release, and send it."""
    attempt = record.release_begins(of or held(), ReleaseDecision(node_name="node-1"))
    attempt.write_begins()
    record.release_sent(attempt, at=10)
    return attempt


def failed(
    record: HeldPodRecord, attempt: ReleaseAttempt, failure: WriteFailure, at: float = 11
) -> Next:
    return record.release_failed(attempt, failure, DENIED, retry_after=None, now=NOW, at=at)


# Phases.


def test_a_pod_that_is_released_and_bound_goes_from_phase_to_phase(
    pods: HeldPodRegistry, record: HeldPodRecord
) -> None:
    phases = [record.phase]
    attempt = record.release_begins(held(), ReleaseDecision())
    phases.append(record.phase)
    record.release_sent(attempt, at=0)
    record.release_accepted(attempt)
    phases.append(record.phase)
    pods.ended("shop/a")
    phases.append(record.phase)
    assert phases == [Phase.CREATED, Phase.RELEASING, Phase.RELEASED, Phase.ENDED]


def test_queued_means_that_a_pod_waits_for_quota(pods: HeldPodRegistry) -> None:
    assert pods.of(held("q", reasons="quota")).phase is Phase.QUEUED
    assert pods.of(held("o", reasons="order")).phase is Phase.CREATED


def test_a_pod_that_others_are_evicted_for_has_room_then_and_goes(record: HeldPodRecord) -> None:
    record.reclaim_begins()
    phases = [record.phase]
    record.room_is_there()
    phases.append(record.phase)
    record.release_begins(held(), ReleaseDecision())
    phases.append(record.phase)
    assert phases == [Phase.RECLAIMING, Phase.RESERVED, Phase.RELEASING]


def test_a_pod_that_is_not_bound_in_time_is_lost_until_it_is(
    pods: HeldPodRegistry, record: HeldPodRecord
) -> None:
    sent(record)
    assert not pods.take_lost(69)
    assert pods.take_lost(70) == [record]
    assert not pods.take_lost(70)
    pods.retain(lambda _: False)
    assert (record.phase, list(pods)) == (Phase.LOST, [record])
    pods.ended("shop/a")
    assert list(pods) == []


# Failures of a release.


def test_a_release_without_an_answer_may_have_been_written(record: HeldPodRecord) -> None:
    attempt = sent(record)
    assert failed(record, attempt, WriteFailure.UNREACHABLE) is Next.TRY_AGAIN
    assert (attempt.is_sent, attempt.is_writing, attempt.is_doubtful) == (True, False, True)
    assert record.phase is Phase.RELEASING
    attempt.write_begins()  # again
    assert failed(record, attempt, WriteFailure.CHANGED) is Next.SEE
    assert record.attempt is None
    assert not record.may_be_written(version=1, at=25)  # the watch is behind
    assert record.may_be_written(version=2, at=25)
    assert record.may_be_written(version=1, at=26)


def test_what_was_never_sent_is_prepared_again(record: HeldPodRecord) -> None:
    attempt = record.release_begins(held(), ReleaseDecision())
    attempt.write_begins()
    assert failed(record, attempt, WriteFailure.UNREACHABLE) is Next.TRY_AGAIN
    assert (attempt.is_sent, attempt.is_idle, record.phase) == (False, True, Phase.RELEASING)


def test_a_pod_that_has_changed_is_decided_again_after_a_moment(record: HeldPodRecord) -> None:
    attempt = sent(record)
    assert failed(record, attempt, WriteFailure.CHANGED) is Next.GIVE_BACK
    assert record.given_back(attempt)
    assert not record.given_back(attempt)  # once
    assert record.phase is Phase.CREATED
    assert [record.may_be_written(version=1, at=at) for at in (11.9, 12)] == [False, True]


def test_a_pod_over_its_quota_waits_again(pods: HeldPodRegistry) -> None:
    queued = held("q", reasons="quota")
    record = pods.of(queued)
    attempt = sent(record, queued)
    assert failed(record, attempt, WriteFailure.OVER_QUOTA) is Next.WAIT_FOR_QUOTA
    record.given_back(attempt)
    assert (record.phase, record.refusal, record.was_refused) == (Phase.QUEUED, None, True)


# Refusals.


def test_a_refused_pod_waits_longer_each_time(record: HeldPodRecord) -> None:
    waits = []
    for _ in range(7):
        record.write_refused(DENIED, None, NOW, at=0, jitter=lambda: 1.0)
        assert record.refusal is not None
        waits.append(record.refusal.retry_at)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    record.write_refused(DENIED, None, NOW, at=0, jitter=lambda: 0.0)
    assert record.refusal is not None
    assert record.refusal.retry_at == 15  # half of it at least
    assert (record.may_be_written(1, at=14.9), record.may_be_written(1, at=15)) == (False, True)


def test_a_wait_that_was_asked_for_is_kept_within_bounds(record: HeldPodRecord) -> None:
    for asked, waited in ((60, 60), (1_000, 120)):
        record.write_refused(DENIED, asked, NOW, at=0)
        assert record.refusal is not None
        assert record.refusal.retry_at == waited


def test_what_is_reserved_is_given_back_after_three_refusals(record: HeldPodRecord) -> None:
    follows = [failed(record, sent(record), WriteFailure.REFUSED) for _ in range(4)]
    assert follows == [Next.TRY_AGAIN, Next.TRY_AGAIN, Next.WITHDRAW, Next.WITHDRAW]
    assert (record.phase, record.released_at) == (Phase.REFUSED, None)


def test_an_accepted_write_ends_a_refusal(record: HeldPodRecord) -> None:
    failed(record, sent(record), WriteFailure.REFUSED)
    record.release_accepted(sent(record))
    assert (record.refusal, record.was_refused) == (None, True)  # its condition is there still


def test_another_pod_of_the_name_is_not_concerned(pods: HeldPodRegistry) -> None:
    record = pods.of(held())
    failed(record, sent(record), WriteFailure.REFUSED)
    other = pods.of(held(uid="other"))
    assert (other.phase, record.phase) == (Phase.CREATED, Phase.ENDED)
    assert pods.by_key("shop/a") is other


# The registry.


def test_what_concerns_held_pods_is_forgotten_with_them(pods: HeldPodRegistry) -> None:
    for name in ("a", "b"):
        pods.of(held(name)).write_refused(DENIED, None, NOW, at=0)
    pods.retain(lambda each: each.name == "b")
    assert [record.pod.name for record in pods] == ["b"]


def test_a_pod_that_others_are_evicted_for_is_known_until_that_ends(pods: HeldPodRegistry) -> None:
    record = pods.of(held())
    record.reclaim_begins()
    pods.retain(lambda _: False)
    assert list(pods) == [record]
    record.reclaim_given_up()
    pods.retain(lambda _: False)
    assert list(pods) == []


def test_an_older_version_of_a_pod_replaces_no_newer_one(pods: HeldPodRegistry) -> None:
    newer = held(version=2)
    pods.of(newer)
    assert pods.of(held(version=1)).held is newer


def test_what_comes_late_of_an_earlier_pod_ends_nothing_of_the_later(pods: HeldPodRegistry) -> None:
    later = held(uid="later", version=5)
    record = pods.of(later)
    sent(record, later)
    pods.of(held()).reclaim_given_up()
    assert (record.phase, record.keeps_order) == (Phase.RELEASING, True)
    pods.retain(lambda _: False)
    assert pods.by_key("shop/a") is record
    pods.ended("shop/a")
    assert list(pods) == []


def test_the_object_of_a_pod_is_not_kept_while_it_finds_no_node(
    pods: HeldPodRegistry, record: HeldPodRecord
) -> None:
    sent(record)
    pods.take_lost(70)
    pods.retain(lambda _: False)
    assert (list(pods), record.held) == ([record], None)


# The queue order, and evictions.


def test_a_pod_waits_for_its_gang_for_a_node_or_for_quota(pods: HeldPodRegistry) -> None:
    record = pods.of(held(reasons="quota"))
    phases = [record.phase]
    record.finds_no_node(at=0)
    phases.append(record.phase)
    record.gang = GangKey("shop", "g")
    phases.append(record.phase)
    record.reclaim_begins()
    phases.append(record.phase)
    assert phases == [Phase.QUEUED, Phase.UNPLACED, Phase.GATHERING, Phase.RECLAIMING]


def test_pods_without_a_node_are_known_in_the_queue_order_while_their_turn_may_come(
    pods: HeldPodRegistry,
) -> None:
    queue = [held(name) for name in ("c", "a", "b")]
    pods.set_order(queue)
    for each in (queue[2], queue[0]):
        pods.of(each).finds_no_node(at=0)
    assert pods.without_node() == [queue[0], queue[2]]
    pods.set_order(queue[1:])
    assert pods.without_node() == [queue[2]]
    pods.retain(lambda _: False)  # as where nobody leads any more
    assert pods.without_node() == []


def test_a_node_is_looked_for_again_after_a_while_or_if_nobody_can_be_evicted(
    record: HeldPodRecord,
) -> None:
    record.finds_no_node(at=10)
    assert (record.rests(11.9), record.rests(12)) == (True, False)
    record.is_reclaim_in_vain = True
    assert not record.rests(11.9)


def test_what_an_earlier_leader_began_is_kept_only_where_pods_are_evicted(
    pods: HeldPodRegistry,
) -> None:
    left = held(version=2)
    annotations = {**left.pod.annotations, RECLAIM_PLAN_ANNOTATION: "node-1: `batch/b`"}
    pod_left = replace(left.pod, annotations=annotations, nominated_node_name="node-1")
    left = replace(left, pod=pod_left)
    assert pods.of(left).phase is Phase.CREATED
    pods.begin_evictions()
    assert pods.of(left).phase is Phase.RECLAIMING
    pods.of(left).reclaim_given_up()
    assert pods.of(left).phase is Phase.CREATED  # what is noted on it counts no more
    pods.end_evictions()
    assert pods.of(left).phase is Phase.CREATED


def test_a_pod_that_others_would_be_evicted_for_is_told_of_once(pods: HeldPodRegistry) -> None:
    pods.released_without_node(held("early"), "quota", NOW)  # nobody is evicted here
    pods.begin_evictions()
    pods.released_without_node(held("b"), "quota", Micros(2))
    pods.released_without_node(held("a"), "quota", Micros(1))
    pods.retain(lambda _: False)
    assert pods.take_released_without_node("preemption", Micros(5)) == []
    assert pods.take_released_without_node("quota", Micros(0)) == []
    told = pods.take_released_without_node("quota", Micros(2))
    assert [each.pod.name for each in told] == ["a", "b"]
    assert pods.take_released_without_node("quota", Micros(5)) == []
    pods.retain(lambda _: False)
    assert list(pods) == []


@pytest.mark.parametrize("first", ["releases", "evictions"])
def test_nothing_is_left_of_held_pods_in_whichever_order_a_leader_ends(
    pods: HeldPodRegistry, first: str
) -> None:
    pods.begin_evictions()
    stages = {
        "reclaiming": HeldPodRecord.reclaim_begins,
        "reserved": HeldPodRecord.room_is_there,
        "given-up": HeldPodRecord.reclaim_given_up,
    }
    for name, begin in stages.items():
        begin(pods.of(held(name)))
    pods.released_without_node(held("unplaced"), "quota", NOW)
    sent(pods.of(held("sent")), held("sent"))

    def releases_end() -> None:
        pods.retain(lambda _: False)

    ends = [releases_end, pods.end_evictions]
    for end in ends if first == "releases" else reversed(ends):
        end()
    assert [(each.pod.name, each.phase, each.held) for each in pods] == [
        ("sent", Phase.RELEASED, None)
    ]
    assert pods.by_key("shop/reclaiming") is None
    pods.begin_evictions()
    assert pods.kept_for_reclaim() == []


def test_a_pod_stays_held_when_evictions_end(pods: HeldPodRegistry) -> None:
    pods.begin_evictions()
    record = pods.of(held())
    record.reclaim_begins()
    record.reclaim_note = ReclaimNote(None, "for somebody")
    record.is_reclaim_in_vain = True
    record.room_wait = RoomWait(since=NOW, seen_at=NOW)
    pods.released_without_node(held(), "quota", NOW)
    pods.end_evictions()
    assert (list(pods), record.held) == ([record], held())
    assert record.phase is Phase.CREATED
    noted = (record.reclaim_note, record.room_wait, record.is_reclaim_in_vain)
    assert not any([*noted, record.would_evict_from])
    pods.released_without_node(held(), "quota", NOW)  # nobody is evicted any more
    assert not record.would_evict_from


def test_only_who_evicts_goes_on_with_what_an_earlier_leader_began(pods: HeldPodRegistry) -> None:
    left = held(version=2)
    annotations = {**left.pod.annotations, RECLAIM_PLAN_ANNOTATION: "node-1: `batch/b`"}
    left = replace(
        left, pod=replace(left.pod, annotations=annotations, nominated_node_name="node-1")
    )
    pods.begin_evictions()
    pods.end_evictions()
    assert pods.of(left).phase is Phase.CREATED
    pods.of(left).reclaim_given_up()
    pods.begin_evictions()  # another turn to lead: what was given up is forgotten
    assert pods.of(left).phase is Phase.RECLAIMING


def test_all_that_concerns_a_held_pod_is_forgotten_when_it_is_not_held_any_more(
    pods: HeldPodRegistry,
) -> None:
    pods.begin_evictions()
    record = pods.of(held())
    pods.set_order([held()])
    record.gang = GangKey("shop", "g")
    record.room_wait = RoomWait(since=NOW, seen_at=NOW)
    record.condition = WrittenCondition(reason="ReleasesInOrder", band=None, at=NOW)
    record.finds_no_node(at=0)
    record.finds_no_node_within_min(NOW, at=0)
    record.write_refused(DENIED, None, NOW, at=0)
    failed(record, sent(record), WriteFailure.REFUSED)
    record.outdated(version=1, at=11)
    record.nomination_seen("node-1", at=11)  # so that the record stays
    assert record.was_refused
    assert not record.may_be_written(1, at=11)
    pods.retain(lambda _: False)
    forgotten = HeldPodRecord(pod=record.pod)
    forgotten.nomination_seen("node-1", at=11)
    assert vars_of(record) == vars_of(forgotten)
    assert record.may_be_written(1, at=11)


def test_what_reclaims_noted_is_forgotten_with_a_pod_unless_others_are_evicted_for_it(
    pods: HeldPodRegistry,
) -> None:
    record = pods.of(held())
    record.nomination_seen("node-1", at=0)
    for begin, is_kept in (
        (record.reclaim_begins, True),
        (record.room_is_there, True),
        (record.reclaim_given_up, False),
    ):
        begin()
        record.reclaim_note = ReclaimNote(None, "for somebody")
        record.is_reclaim_in_vain = True
        pods.retain(lambda _: False)
        assert (record.reclaim_note is not None) is is_kept
        assert record.is_reclaim_in_vain is is_kept
        assert (pods.kept_for_reclaim() != []) is is_kept


def test_who_begins_to_lead_awaits_the_binding_of_nobody(pods: HeldPodRegistry) -> None:
    for name in ("a", "b"):
        sent(pods.of(held(name)), held(name))
    pods.of(held("b")).nomination_seen("node-1", at=0)
    pods.forget_releases()
    assert (pods.unbound(), pods.schedulers_in_order()) == ([], set())
    assert pods.take_lost(at=1_000) == []
    assert [each.pod.name for each in pods.take_unfollowed(at=1_000)] == ["b"]
    pods.retain(lambda _: False)
    assert [each.pod.name for each in pods] == ["b"]


def vars_of(record: HeldPodRecord) -> dict[str, object]:
    """Return all that is known of a pod but how it was released."""
    of_release = {"released_at", "keeps_order"}
    return {
        each.name: getattr(record, each.name)
        for each in fields(record)
        if each.name not in of_release | {"_stale_version"}
    }
