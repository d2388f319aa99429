"""Gangs of a world, and what becomes of their members."""

from __future__ import annotations

from tests.webhook.controllers.release.controller_world import Replica, World


def members(
    world: World,
    *names: str,
    gang: str = "train",
    minimum: int = 3,
    reasons: str = "gang",
    namespace: str = "shop",
) -> None:
    world.gang(gang, minimum, namespace=namespace)
    for name in names:
        world.member(name, gang, reasons=reasons, namespace=namespace)


def message(replica: Replica, name: str) -> str:
    held = replica.held.get(f"shop/{name}")
    wait = None if held is None else replica.gangs.wait(held)
    return "" if wait is None else wait.detail


class Binder:
    """Binds released pods, but for some."""

    def __init__(self, world: World, *, but: str = "") -> None:
        self._world = world
        self._but = but

    def bind(self, *names: str) -> None:
        for name in names:
            if name != self._but and self._world.released(name):
                self._world.bind(name, self._world.nominated(name))
