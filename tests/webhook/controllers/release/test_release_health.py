from __future__ import annotations

import pytest

from engine.model.hold import REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION
from webhook.controllers.release.release_health import ReleaseHealth


class World:
    """A status, what it said last, and its clock."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.said: dict[str, str] = {}
        self.status = ReleaseHealth(self.said.__setitem__, lambda: self.seconds)

    def cycle(self, *, waiting: bool, after: float = 1.0) -> str:
        self.seconds += after
        self.status.cycle_ended(waiting=waiting, refused={})
        return self.said[RELEASING_ANNOTATION]


@pytest.fixture
def world() -> World:
    return World()


def test_nothing_to_release_is_enough(world: World) -> None:
    assert world.cycle(waiting=False) == "true"


def test_a_write_is_accepted_within_ten_seconds_while_pods_wait(world: World) -> None:
    said = [world.cycle(waiting=True) for _ in range(12)]
    assert said == ["true"] * 10 + ["false"] * 2
    world.status.accepted()
    assert world.cycle(waiting=True) == "true"
    assert world.cycle(waiting=True, after=10) == "false"
    assert world.cycle(waiting=False) == "true"


def test_refusals_in_several_namespaces_count_until_a_write_is_accepted(world: World) -> None:
    for namespace in ("a", "b", "c"):
        world.status.refused(namespace)
    assert [world.cycle(waiting=False, after=6) for _ in range(3)] == ["true", "true", "false"]
    world.status.accepted()
    assert world.cycle(waiting=False) == "true"


def test_it_is_tried_again_after_a_minute(world: World) -> None:
    for namespace in ("a", "b", "c"):
        world.status.refused(namespace)
    world.cycle(waiting=False)
    assert world.cycle(waiting=False, after=50) == "false"
    assert world.cycle(waiting=False, after=10) == "true"


def test_a_namespace_alone_proves_nothing_however_many_of_its_pods_are_refused(
    world: World,
) -> None:
    for _ in range(20):
        world.status.refused("a")
        assert world.cycle(waiting=False) == "true"


def test_it_names_the_namespaces_in_which_pods_are_refused(world: World) -> None:
    world.status.cycle_ended(waiting=False, refused={"shop": 3, "mail": 1})
    assert world.said[REFUSED_IN_ANNOTATION] == "mail=1,shop=3"
    many = {f"n{number:03}": 1 for number in range(300)}
    world.status.cycle_ended(waiting=False, refused=many)
    named = world.said[REFUSED_IN_ANNOTATION].split(",")
    assert (named[0], named[-1], len(named)) == ("n000=1", "n199=1", 200)
    world.cycle(waiting=False)
    assert world.said[REFUSED_IN_ANNOTATION] == ""
