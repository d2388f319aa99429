from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP
from tests.webhook.controllers.quota_rollout.configurations import Fate, Weather
from tests.webhook.controllers.quota_rollout.rollout_model import (
    SETTLE_SECONDS,
    Replica,
    RolloutCluster,
)
from webhook.controllers.quota_rollout import RolloutError


@pytest.fixture
def narrow() -> Iterator[RolloutCluster]:
    """A cluster without quotas, after which nobody is asked."""
    cluster = RolloutCluster()
    cluster.narrow()
    yield cluster
    cluster.teardown()


def listed(cluster: RolloutCluster) -> set[str]:
    return {name for name in ("a", "b", "c", "of-nobody") if cluster.model.selects(-1, name)}


def refusal(cluster: RolloutCluster, replica: Replica) -> str:
    """Return why a namespace is not covered, after all the time that a replica takes."""

    async def reason() -> str:
        try:
            await replica.coverage.cover(frozenset("a"))
        except RolloutError as error:
            return str(error)
        return ""

    task = cluster.loop.create_task(reason())
    cluster.loop.advance(20)
    return task.result()


def test_a_quota_is_stored_once_every_api_server_asks_about_its_namespace(
    narrow: RolloutCluster,
) -> None:
    narrow.create_quota("a", UPSTREAM_GROUP, 1, 0.0, (0.0, 2.0))
    narrow.loop.advance(1.9)
    assert listed(narrow) == {"a"}
    assert not narrow.model.quotas
    narrow.loop.advance(0.7)
    assert narrow.in_force
    narrow.no_pod_is_created_unjudged()


def test_an_api_server_that_is_too_far_behind_keeps_a_quota_from_being_stored(
    narrow: RolloutCluster,
) -> None:
    narrow.lag((0.0, 30.0))
    assert refusal(narrow, narrow.replicas[1]) == (
        "not every API server has taken up the webhook configuration"
    )


def test_a_configuration_that_cannot_be_written_keeps_a_quota_from_being_stored(
    narrow: RolloutCluster,
) -> None:
    narrow.model.weather.append(Weather(fate=Fate.LOST))
    assert refusal(narrow, narrow.replicas[1]) == (
        "the webhook configuration cannot be kept: the connection broke"
    )


def test_a_quota_of_koordinators_tree_has_all_namespaces_asked_about(
    narrow: RolloutCluster,
) -> None:
    narrow.create_quota("a", KOORDINATOR_GROUP, 1, 0.0, (0.0, 0.0))
    assert listed(narrow) == {"a", "b", "c", "of-nobody"}


def test_the_leader_shows_the_namespaces_that_are_asked_about() -> None:
    cluster = RolloutCluster()
    leader, other = cluster.replicas
    cluster.loop.advance(1)
    shown = [leader.shown]
    cluster.narrow()
    cluster.create_quota("a", UPSTREAM_GROUP, 1, 0.0, (0.0, 0.0))
    cluster.loop.advance(5)
    shown += [leader.shown, other.shown]
    leader.end()
    cluster.loop.advance(1)
    # All after an install; one that does not lead shows none.
    assert [*shown, leader.shown] == [None, frozenset("a"), frozenset(), frozenset()]
    cluster.teardown()


def test_many_new_quotas_are_served_by_one_write(narrow: RolloutCluster) -> None:
    coverage, before = narrow.replicas[0].coverage, narrow.model.versions[-1]["metadata"]
    reaches = [frozenset({f"n-{number}"}) for number in range(500)]
    tasks = [narrow.loop.create_task(coverage.cover(reach)) for reach in reaches]
    narrow.loop.advance(1)
    assert all(task.done() and task.exception() is None for task in tasks)
    assert narrow.model.versions[-1]["metadata"]["generation"] == before["generation"] + 1


def test_more_names_than_a_selector_takes_have_all_namespaces_asked_about(
    narrow: RolloutCluster,
) -> None:
    many = frozenset(f"n-{number}" for number in range(10_001))
    task = narrow.loop.create_task(narrow.replicas[0].coverage.cover(many))
    narrow.loop.advance(1)
    assert task.exception() is None
    assert "of-nobody" in listed(narrow)


def test_where_some_api_servers_cannot_be_asked_they_have_three_seconds(
    narrow: RolloutCluster,
) -> None:
    narrow.model.alive = 3
    narrow.create_quota("a", UPSTREAM_GROUP, 0, 0.0, (0.0, 0.0))
    narrow.loop.advance(2.9)
    assert not narrow.model.quotas
    narrow.loop.advance(0.2)
    assert narrow.in_force


def test_a_quota_that_is_created_while_its_namespace_is_to_leave_keeps_it(
    narrow: RolloutCluster,
) -> None:
    narrow.create_quota("a", UPSTREAM_GROUP, 0, 0.0, (0.0, 0.0))
    narrow.calm_down()
    narrow.delete_quota("a", UPSTREAM_GROUP)
    narrow.watch(0)
    narrow.loop.advance(65)  # it was announced that it leaves: some seconds from now
    assert listed(narrow) == {"a"}
    narrow.create_quota("a", UPSTREAM_GROUP, 1, 59.0, (0.0, 0.0))
    narrow.loop.advance(40)
    assert listed(narrow) == {"a"}
    narrow.loop.advance(20)
    assert narrow.in_force
    narrow.no_pod_is_created_unjudged()


def test_a_quota_that_is_stored_before_its_namespace_was_to_leave_keeps_it(
    narrow: RolloutCluster,
) -> None:
    narrow.create_quota("a", UPSTREAM_GROUP, 0, 59.0, (0.0, 0.0))  # nothing was announced yet
    narrow.loop.advance(SETTLE_SECONDS + 1)
    assert narrow.in_force
    narrow.loop.advance(SETTLE_SECONDS)
    narrow.no_pod_is_created_unjudged()


def test_an_api_server_that_has_an_older_version_of_the_same_is_behind() -> None:
    cluster = RolloutCluster()
    cluster.lag((0.0, 300.0))  # it still has what the chart said: all namespaces
    cluster.narrow()
    cluster.model.upgrade()  # and all again; in between it will see that nobody is asked
    assert refusal(cluster, cluster.replicas[1])
    cluster.teardown()


def test_a_closed_coverage_leaves_nobody_waiting(narrow: RolloutCluster) -> None:
    narrow.lag((0.0, 30.0))
    coverage = narrow.replicas[1].coverage
    task = narrow.loop.create_task(coverage.cover(frozenset("a")))
    narrow.loop.advance(0.5)
    narrow.loop.create_task(coverage.close())
    narrow.loop.advance(0.1)
    assert isinstance(task.exception(), RolloutError)


def test_after_an_upgrade_all_are_asked_about_and_later_those_with_a_quota_again(
    narrow: RolloutCluster,
) -> None:
    narrow.create_quota("a", UPSTREAM_GROUP, 0, 0.0, (0.0, 0.0))
    narrow.calm_down()
    narrow.model.upgrade()
    assert listed(narrow) == {"a", "b", "c", "of-nobody"}
    narrow.calm_down()
    assert listed(narrow) == {"a"}


def test_a_quota_that_nobody_was_asked_about_is_found_by_the_leader(narrow: RolloutCluster) -> None:
    narrow.create_quota_while_nobody_is_asked("b", UPSTREAM_GROUP)
    narrow.watch(0)
    narrow.loop.advance(3)
    assert listed(narrow) == {"b"}


def test_a_removed_quotas_namespace_leaves_late(narrow: RolloutCluster) -> None:
    narrow.create_quota("a", UPSTREAM_GROUP, 0, 0.0, (0.0, 0.0))
    narrow.delete_quota("a", UPSTREAM_GROUP)
    narrow.watch(0)
    narrow.loop.advance(SETTLE_SECONDS - 2)
    assert listed(narrow) == {"a"}
    narrow.loop.advance(20)
    assert listed(narrow) == set()


def test_the_configuration_keeps_what_the_chart_excludes(narrow: RolloutCluster) -> None:
    narrow.loop.create_task(narrow.replicas[0].coverage.cover(frozenset(["kube-system", "a"])))
    narrow.loop.advance(1)
    assert not narrow.model.selects(-1, "kube-system")
    assert narrow.model.selects(-1, "a")
