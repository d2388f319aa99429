"""Whether what a server knows after a long time is what one knows that starts now."""

from __future__ import annotations

import base64
import itertools
import time
from typing import Any

import msgspec

from tests.bench.generate import GeneratedCluster
from tests.bench.load.parts import Server
from tests.bench.load.reviews import Reviews
from tests.bench.load.stage import Plan, Stage

_DIFFERENT_PODS = 300
_FORGOTTEN_AFTER_SECONDS = 12.0  # advice for pods that never come, see `DEFAULT_IN_FLIGHT_SECONDS`
_ATTEMPTS = 3  # measurements grow old between the two answers
_GAUGES = ("stowplan_view_nodes", "stowplan_view_pods", "stowplan_policies_hash")


def differences(stage: Stage) -> list[str]:
    """Return in what a server differs from one that starts now, in words; nothing may happen.

    Compared are how much they know, and their answers, patches included, to reviews of pods of many
    kinds: a difference in a single sum of some node would show in the order of nodes.
    """
    time.sleep(_FORGOTTEN_AFTER_SECONDS)
    fresh = stage.another_server("rebuilt")
    try:
        fresh.start()
        return [*_gauges(stage.server, fresh), *_answers(stage.plan, stage.server, fresh)]
    finally:
        fresh.kill()


def _gauges(old: Server, fresh: Server) -> list[str]:
    one, other = old.scrape(), fresh.scrape()
    told = [(name, one.value(name), other.value(name)) for name in _GAUGES]
    sources = one.by("source", "stowplan_source_objects")
    now = other.by("source", "stowplan_source_objects")
    told += [(f"objects of {name}", sources[name], now.get(name)) for name in sources]
    return [f"{name}: {had} and {has}" for name, had, has in told if had != has]


def _answers(plan: Plan, old: Server, fresh: Server) -> list[str]:
    cluster = GeneratedCluster(nodes=plan.nodes, pods=plan.pods)
    reviews = Reviews(cluster.workloads, _DIFFERENT_PODS, dry_run=True)
    bodies = list(itertools.islice(reviews, _DIFFERENT_PODS))
    for _ in range(_ATTEMPTS):
        bodies = [body for body in bodies if _answer(old, body) != _answer(fresh, body)]
    if not bodies:
        return []
    example = f"such as {_answer(old, bodies[0])} and {_answer(fresh, bodies[0])}"
    return [f"{len(bodies)} of {_DIFFERENT_PODS} answers differ", example]


def _answer(server: Server, body: bytes) -> dict[str, Any]:
    response = server.review(body)
    patch = base64.b64decode(response.get("patch", ""))
    return {**response, "patch": msgspec.json.decode(patch or b"[]")}
