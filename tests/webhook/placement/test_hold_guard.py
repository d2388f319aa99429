from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import pytest

from engine.model import api
from engine.model.hold import HOLD_GATE, REFUSED_IN_ANNOTATION, RELEASING_ANNOTATION
from engine.model.pod import Pod
from engine.model.shape_computation import shape_of
from engine.model.time import SECOND, Micros
from webhook.placement.held_pods import HeldPods
from webhook.placement.hold_guard import HoldGuard, Refusal

NOON = Micros(1_767_614_400 * SECOND)


@dataclass(frozen=True, kw_only=True)
class Lease:
    holder: str = "a replica"
    annotations: Mapping[str, str] = field(default_factory=lambda: {RELEASING_ANNOTATION: "true"})
    age_seconds: float = 14.9


def refusal(
    lease: Lease, *, held: int = 0, seconds: float = 0, asks: str = "shop", most: int = 100
) -> Refusal:
    """Return the refusal so long after some pods of `shop` were held for up to a minute."""
    pods = HeldPods(lambda: NOON, hold_seconds=60, most=most)
    for number in range(held):
        gated = Pod(
            namespace="shop",
            name=str(number),
            scheduling_gates=(HOLD_GATE,),
            shape=shape_of(api.Pod()),
        )
        pods.pod_changed(gated, 1, b"")
    return HoldGuard(lambda: lease, pods).refusal(Micros(NOON + round(seconds * SECOND)), asks)


def test_pods_may_be_held_while_a_leader_releases_them_in_time() -> None:
    assert refusal(Lease()) == ""
    assert refusal(Lease(), held=1, seconds=60 + 29.9) == ""


@pytest.mark.parametrize(
    ("lease", "reason"),
    [
        (Lease(holder=""), "no_leader"),
        (Lease(age_seconds=15), "no_leader"),
        (Lease(age_seconds=inf), "no_leader"),  # found, and never seen to be renewed
        (Lease(annotations={}), "not_releasing"),
        (Lease(annotations={RELEASING_ANNOTATION: "false"}), "not_releasing"),
    ],
)
def test_no_pod_is_held_when_nobody_demonstrably_releases(lease: Lease, reason: str) -> None:
    assert refusal(lease) == reason


@pytest.mark.parametrize("asks", ["shop", "mail", ""])
def test_no_pod_is_held_while_one_is_long_overdue_that_nobody_refuses(asks: str) -> None:
    assert refusal(Lease(), held=1, seconds=60 + 30, asks=asks) == "overdue"
    elsewhere = {RELEASING_ANNOTATION: "true", REFUSED_IN_ANNOTATION: "mail=1,shops=1"}
    lease = Lease(annotations=elsewhere)
    assert refusal(lease, held=1, seconds=60 + 30, asks=asks) == "overdue"


def test_pods_whose_release_is_refused_are_their_own_affair() -> None:
    lease = Lease(
        annotations={RELEASING_ANNOTATION: "true", REFUSED_IN_ANNOTATION: "mail=1,shop=2"}
    )
    for asks in ("shop", "mail", ""):
        assert refusal(lease, held=2, seconds=3_600, asks=asks) == ""
    assert refusal(lease, held=3, seconds=3_600, asks="mail") == ""
    assert refusal(lease, held=3, seconds=3_600, asks="shop") == "overdue"


@pytest.mark.parametrize("written", ["mail=1,shop=3", "shop=4000", "shop=3,=,mail=x"])
def test_a_namespace_whose_pods_are_refused_again_and_again_has_no_more_held(written: str) -> None:
    # What waits for quota or a gang is never overdue.
    lease = Lease(annotations={RELEASING_ANNOTATION: "true", REFUSED_IN_ANNOTATION: written})
    assert refusal(lease, asks="shop") == "not_releasing"
    assert refusal(lease, asks="mail") == ""


def test_a_namespace_that_has_its_share_is_full_and_others_are_not() -> None:
    # Of 2 pods one is left to others.
    assert refusal(Lease(), held=1, most=2) == "full"
    assert refusal(Lease(), held=1, most=2, asks="mail") == ""
    assert refusal(Lease(), held=0, most=0) == "full"
