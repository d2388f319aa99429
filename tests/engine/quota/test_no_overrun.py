"""Replicas, an API server and time, in every order: `max` holds, and all shares come back."""

from __future__ import annotations

from hypothesis import settings

from engine.quota import RESOURCE_QUOTA_RULES, QuotaRequest, Reservation, draw
from tests.engine.quota.overrun_model import (
    NEVER,
    TIMEOUTS,
    AllowanceCluster,
    BusyAllowanceCluster,
    BusyCluster,
    Cluster,
    Granted,
    SurgeCluster,
)

Cluster.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestQuotasAreNotOverrun = Cluster.TestCase
BusyCluster.TestCase.settings = Cluster.TestCase.settings
TestBusyQuotasAreNotOverrun = BusyCluster.TestCase
AllowanceCluster.TestCase.settings = Cluster.TestCase.settings
TestQuotasWithAllowancesAreNotOverrun = AllowanceCluster.TestCase
BusyAllowanceCluster.TestCase.settings = Cluster.TestCase.settings
TestBusyQuotasWithAllowancesAreNotOverrun = BusyAllowanceCluster.TestCase
SurgeCluster.TestCase.settings = Cluster.TestCase.settings
TestSurgesStayWithinWhatTheyReplace = SurgeCluster.TestCase

FAST, SLOW = 0, 1


def test_a_slow_watch_waits_for_the_pods_whose_reservations_were_removed() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 6)
    cluster.prune(FAST)  # the pod is observed, but not for long enough
    cluster.now += TIMEOUTS.settled_seconds
    cluster.prune(FAST)
    cluster.write_arrives(FAST, answered=True)
    assert cluster.quota.reservations == '{"quota":"q","seenUpTo":3,"reserved":[]}'
    cluster.watch_quota(SLOW)
    assert cluster.judging(SLOW) is None
    cluster.create_at_once(SLOW, "b", 6)  # 6 + 6 > 10
    cluster.max_holds()
    cluster.watch(SLOW, most=1)
    assert cluster.judging(SLOW) is not None


def test_a_pod_that_was_observed_before_it_grew_counts_as_grown() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 1)
    cluster.watch(SLOW, most=1)
    cluster.grow(FAST, "a", 6)
    cluster.write_arrives(FAST, answered=True)
    cluster.watch_quota(SLOW)
    cluster.create(SLOW, [("b", 5)])  # 6 + 5 > 10
    cluster.write_arrives(SLOW, answered=True)
    cluster.carry_out_all()
    assert cluster.pods["a"].cpu == 6
    cluster.max_holds()


def test_a_pod_that_the_api_server_knows_counts_until_the_watch_delivers_it() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 6)
    cluster.watch_quota(SLOW)
    cluster.now += TIMEOUTS.unseen_seconds
    cluster.confirm_overdue(SLOW)
    cluster.create_at_once(SLOW, "b", 6)  # 6 + 6 > 10
    assert cluster.pods.keys() == {"a"}


def test_a_pod_that_was_refused_later_gives_its_share_back_in_time() -> None:
    cluster = Cluster()
    cluster.create(FAST, [("a", 6)])
    cluster.write_arrives(FAST, answered=True)
    cluster.carry_out(0, later_step_refuses=True)
    cluster.now += TIMEOUTS.unseen_seconds - 1
    cluster.confirm_overdue(FAST)
    cluster.create_at_once(FAST, "b", 6)
    assert not cluster.pods  # it could still come
    cluster.now += 1
    cluster.confirm_overdue(FAST)
    cluster.create_at_once(FAST, "b", 6)
    assert cluster.pods.keys() == {"b"}


def test_a_pod_whose_name_becomes_free_while_it_is_created_has_its_share() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 5)
    cluster.create(FAST, [("a", 5)])  # it waits behind a slow webhook
    cluster.write_arrives(FAST, answered=True)
    late = cluster.in_flight.pop()
    cluster.create_at_once(FAST, "b", 5)  # both of the name `a` count once
    assert cluster.pods.keys() == {"a", "b"}
    cluster.delete("a")
    cluster.watch(FAST, most=9)
    cluster.create_at_once(FAST, "c", 1)
    assert "c" not in cluster.pods  # the late one may still come
    cluster.in_flight.append(late)
    cluster.carry_out_all()
    assert cluster.pods.keys() == {"a", "b"}
    cluster.max_holds()


def test_creations_of_a_name_that_is_taken_leave_room_for_others() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 1)
    for _ in range(9):
        cluster.create_at_once(FAST, "a", 1)
    for number in range(9):
        cluster.create_at_once(FAST, f"b-{number}", 1)
    assert len(cluster.pods) == 10


def test_the_reservation_of_a_resize_that_never_came_ends() -> None:
    cluster = Cluster()
    cluster.create_at_once(FAST, "a", 1)
    cluster.grow(FAST, "a", 6)
    cluster.write_arrives(FAST, answered=True)
    cluster.teardown()  # a later step refused it: nothing may be reserved any more


def test_a_queued_pod_takes_its_share_when_it_is_released() -> None:
    cluster = Cluster()
    cluster.create_queued("a", 6)
    cluster.watch(FAST, most=9)
    cluster.create_at_once(FAST, "b", 6)
    cluster.release_at_once(FAST, "a")  # 6 + 6 > 10
    assert (cluster.pods["a"].queued, cluster.pods["b"].queued) == (True, False)
    cluster.delete("b")
    cluster.watch(FAST, most=9)
    cluster.release_at_once(FAST, "a")
    assert not cluster.pods["a"].queued
    cluster.create_at_once(FAST, "b", 5)
    assert "b" not in cluster.pods


def test_a_pod_that_is_queued_again_is_not_released_on_its_first_reservation() -> None:
    cluster = Cluster()
    cluster.create_queued("a", 6)
    cluster.watch(FAST, most=9)
    cluster.release_at_once(FAST, "a")
    cluster.watch(FAST, most=9)
    cluster.queue("a")
    cluster.watch(FAST, most=9)
    cluster.create_at_once(FAST, "b", 6)
    assert cluster.pods.keys() == {"a", "b"}
    cluster.release_at_once(FAST, "a")  # the reservation is still on the quota
    assert cluster.pods["a"].queued
    cluster.max_holds()


def test_releases_of_a_pod_that_are_repeated_take_one_share() -> None:
    cluster = Cluster()
    cluster.create_queued("a", 5)
    cluster.watch(FAST, most=9)
    for _ in range(3):  # each is refused by a later step of admission
        cluster.release(FAST, "a")
        cluster.write_arrives(FAST, answered=True)
        cluster.carry_out(0, later_step_refuses=True)
    cluster.create_at_once(FAST, "b", 5)
    assert cluster.pods.keys() == {"a", "b"}


def test_two_releases_at_once_on_two_replicas_fit_together_or_one_is_refused() -> None:
    cluster = Cluster()
    cluster.create_queued("a", 6)
    cluster.create_queued("b", 6)
    for index in (FAST, SLOW):
        cluster.watch(index, most=9)
        cluster.watch_quota(index)
    cluster.release(FAST, "a")
    cluster.release(SLOW, "b")
    cluster.all_writes_arrive()
    cluster.carry_out_all()
    assert [cluster.pods[name].queued for name in "ab"] == [False, True]


def with_allowance(cluster: AllowanceCluster) -> AllowanceCluster:
    """Have the fast replica take an allowance, and the slow one observe it."""
    cluster.take_allowance(FAST)
    cluster.carry_out_all()
    cluster.watch(FAST, most=9)
    cluster.create_at_once(FAST, "a", 1)
    assert '"allowances"' in cluster.quota.reservations
    cluster.watch_quota(SLOW)
    return cluster


def test_nothing_is_drawn_once_others_may_count_the_allowance_as_abandoned() -> None:
    cluster = with_allowance(AllowanceCluster())
    for _ in range(2):
        cluster.now += 91  # 15 s to draw from it, 75 s until requests have ended
        cluster.relist(SLOW)
        cluster.prune(SLOW)
        cluster.write_arrives(SLOW, answered=True)
    cluster.fill(SLOW)
    before = len(cluster.pods)
    cluster.draw_all(FAST)  # it was suspended, and has observed nothing
    assert len(cluster.pods) == before
    cluster.max_holds()


def test_an_allowance_counts_while_pods_drawn_from_it_may_still_be_stored() -> None:
    cluster = with_allowance(AllowanceCluster())
    cluster.now += 14
    request = QuotaRequest(Reservation("late", "late", {"cpu": 1}))
    state = cluster.replicas[FAST].state
    assert state is not None
    assert draw(request, [state], RESOURCE_QUOTA_RULES, cluster.now)
    cluster.in_flight.append(Granted(request.reservation, 1, cluster.now))
    cluster.now += 60  # as long as a request may take
    cluster.relist(SLOW)
    cluster.prune(SLOW)
    cluster.write_arrives(SLOW, answered=True)
    cluster.replicas[FAST].writing = None
    late = cluster.in_flight.pop()
    cluster.fill(SLOW)
    cluster.in_flight.append(late)
    cluster.carry_out_all()
    assert "late" in cluster.pods
    cluster.max_holds()


def test_an_abandoned_allowance_counts_until_its_pods_have_been_observed() -> None:
    cluster = with_allowance(AllowanceCluster())
    cluster.relist(SLOW)
    cluster.draw_all(FAST)
    gone = f'"{cluster.replicas[FAST].name}"'
    cluster.crash(FAST)
    for _ in range(2):
        cluster.now += 91
        cluster.prune(SLOW)
        cluster.write_arrives(SLOW, answered=True)
    assert gone in cluster.quota.reservations  # else all would have to wait for that
    cluster.relist(SLOW)
    cluster.prune(SLOW)
    cluster.write_arrives(SLOW, answered=True)
    assert gone not in cluster.quota.reservations
    cluster.fill(SLOW)
    cluster.max_holds()


def test_a_slow_watch_waits_for_the_pods_whose_allowance_was_given_back() -> None:
    cluster = with_allowance(BusyAllowanceCluster())
    cluster.relist(SLOW)
    cluster.draw_all(FAST)
    cluster.watch(FAST, most=99)
    cluster.now += 16
    cluster.allowances = NEVER
    cluster.refresh_allowance(FAST)
    cluster.write_arrives(FAST, answered=True)
    cluster.watch_quota(SLOW)
    assert cluster.judging(SLOW) is None
    cluster.fill(SLOW)
    cluster.max_holds()


def test_one_pod_of_a_deployment_surges_and_the_next_one_once_a_pod_has_ended() -> None:
    cluster = SurgeCluster()
    # 4 + 4 of 10: the third is above, and the fourth is not admitted by any replica.
    cluster.roll_out([(FAST, "a"), (FAST, "c"), (FAST, "e"), (FAST, "g"), (SLOW, "g")])
    assert sorted(cluster.pods) == ["a", "c", "e"]
    cluster.delete("a")
    cluster.roll_out([(SLOW, "g")])
    assert sorted(cluster.pods) == ["c", "e", "g"]
