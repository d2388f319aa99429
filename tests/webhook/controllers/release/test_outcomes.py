from __future__ import annotations

import msgspec
import pytest

from engine.model.pod import Pod
from tests.webhook.controllers.release.releases import pod
from webhook.controllers.release.outcomes import Outcome, Outcomes
from webhook.controllers.release.pacing import Landing, Release

STOCK = "default-scheduler"


class World:
    """Outcomes, a clock, and whether nominated nodes still fit."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.fits = True
        self.shown: list[Outcome] = []
        self.outcomes = Outcomes(lambda: self.seconds, self.shown.append)

    def land(
        self, *, times: int = 1, nominated: str = "node-1", node: str = "node-1", by: str = STOCK
    ) -> Outcome:
        release = Release(key="shop/a", uid="uid-a", scheduler_name=by, node_name=nominated)
        landing = Landing(release, pod(node=node))
        for _ in range(times):
            outcome = self.outcomes.count(landing, self.still_fits)
        return outcome

    def miss(self, *, times: int = 1, by: str = STOCK) -> None:
        assert self.land(times=times, node="node-2", by=by) is Outcome.ELSEWHERE

    def still_fits(self, placed: Pod, node_name: str) -> bool:
        assert (placed.node_name, node_name) == ("node-2", "node-1")
        return self.fits

    @property
    def nominates(self) -> bool:
        return self.outcomes.nominates(STOCK)

    @property
    def hit_rates(self) -> dict[str, float]:
        return dict(self.outcomes.hit_rates())


@pytest.fixture
def world() -> World:
    return World()


def test_each_landing_has_an_outcome(world: World) -> None:
    assert world.land() is Outcome.NOMINATED
    assert world.land(nominated="", node="node-2") is Outcome.NOT_NOMINATED
    assert world.land(node="node-2") is Outcome.ELSEWHERE
    world.fits = False
    assert world.land(node="node-2") is Outcome.NO_ROOM
    world.outcomes.count_lost()
    assert world.shown == [
        Outcome.NOMINATED,
        Outcome.NOT_NOMINATED,
        Outcome.ELSEWHERE,
        Outcome.NO_ROOM,
        Outcome.LOST,
    ]
    assert world.hit_rates == {STOCK: 0.5}  # one followed, one not; the others tell nothing


def test_a_pod_with_volumes_or_devices_tells_nothing_where_it_lands_elsewhere(world: World) -> None:
    release = Release(key="shop/a", uid="uid-a", scheduler_name=STOCK, node_name="node-1")
    moved = msgspec.structs.replace(pod(node="node-2"), has_claims=True)
    assert world.outcomes.count(Landing(release, moved), world.still_fits) is Outcome.CLAIMS
    assert not world.hit_rates
    there = msgspec.structs.replace(pod(node="node-1"), has_claims=True)
    assert world.outcomes.count(Landing(release, there), world.still_fits) is Outcome.NOMINATED
    world.fits = False
    assert world.outcomes.count(Landing(release, moved), world.still_fits) is Outcome.NO_ROOM


def test_nine_of_ten_suffice(world: World) -> None:
    world.miss(times=5)
    world.land(times=45)
    assert world.nominates  # 45 / 50 = 0.9


def test_fewer_end_nominations_for_that_scheduler_alone(world: World) -> None:
    world.miss(times=6)
    world.land(times=43)
    assert world.nominates  # 49 are too few to judge
    world.land()
    assert not world.nominates  # 44 / 50
    assert world.hit_rates == {STOCK: 0.88}
    assert world.outcomes.nominates("another-scheduler")


def test_nodes_that_do_not_fit_any_more_are_no_fault_of_the_scheduler(world: World) -> None:
    world.fits = False
    world.land(times=100, node="node-2")
    assert world.nominates
    assert world.hit_rates == {}


def test_the_last_fifty_count(world: World) -> None:
    world.land(times=500)
    world.miss(times=5)
    assert world.nominates
    world.miss()
    assert not world.nominates


def test_nominations_are_tried_again_and_kept_if_they_are_followed(world: World) -> None:
    world.miss(times=50)
    world.seconds = 299
    assert not world.nominates
    world.land(times=50)  # nominated before: they are no longer judged
    world.seconds = 300
    assert world.nominates
    world.land(times=9)
    world.miss()
    assert world.nominates  # 9 / 10
    assert world.hit_rates == {STOCK: 0.9}
    world.miss(times=3)
    assert world.nominates  # 9 / 13, to be judged at 50 from here on


def test_each_failed_try_is_followed_by_a_longer_time_without(world: World) -> None:
    world.miss(times=50)
    for minutes in (5, 10, 20, 40, 60, 60):
        before = world.seconds
        world.seconds = before + minutes * 60 - 1
        assert not world.nominates
        world.seconds += 1
        assert world.nominates
        world.miss(times=10)
        assert not world.nominates
