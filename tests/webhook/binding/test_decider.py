"""What is kept of bindings that are asked about, and how a leader ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from engine.model import api
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.pipeline import Scope
from tests.engine.binding.test_ledger import Desk, after
from tests.engine.binding.worlds import NOW, by_rank, request
from webhook.binding import SeenBindings
from webhook.binding.decider import AskedBinding, BindingDecider, DeciderParts, WaitingPods
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import MOST_BYTES, Placer


def pod(
    name: str, *, namespace: str = "shop", uid: str = "", node: str = "", gate: str = ""
) -> Pod:
    spec = api.PodSpec(
        node_name=node, scheduling_gates=[api.PodSchedulingGate(name=gate)] if gate else None
    )
    metadata = api.ObjectMeta(namespace=namespace, name=name, uid=uid or f"uid-of-{name}")
    return pod_of(api.Pod(metadata=metadata, spec=spec))


def kept(waiting: WaitingPods, *names: str, namespace: str = "shop") -> list[str]:
    """Return the pods whose objects are kept."""
    found = {name: waiting.get(namespace, name, "") for name in names}
    return [name for name, each in found.items() if each is not None and each.raw]


def test_a_pod_is_kept_until_it_has_a_node() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web"), 1, b"{}")
    found = waiting.get("shop", "web", "uid-of-web")
    assert found is not None
    assert found.raw == b"{}"
    assert found.placement_request.request["name"] == "web"
    waiting.pod_changed(pod("web", node="node-a"), 2, b"{}")
    assert not kept(waiting, "web")
    assert len(waiting) == 0


def test_a_pod_of_the_same_name_is_another_one() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web", uid="1"), 1, b"{}")
    assert waiting.get("shop", "web", "2") is None
    waiting.pod_deleted("shop", "web")
    waiting.pod_changed(pod("web", uid="2"), 1, b"{}")
    assert waiting.get("shop", "web", "2") is not None


def test_a_pod_with_a_gate_waits_for_others_than_the_scheduler() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web", gate="example.com/later"), 1, b"{}")
    assert not kept(waiting, "web")


def test_of_a_pod_that_is_too_large_for_a_decision_only_who_it_is_is_kept() -> None:
    waiting = WaitingPods()
    waiting.pod_changed(pod("web"), 1, b"{}")
    waiting.pod_changed(pod("web"), 2, b"x" * (MOST_BYTES + 1))
    found = waiting.get("shop", "web", "uid-of-web")
    assert found is not None
    assert (found.raw, found.pod.key) == (b"", "shop/web")
    waiting.pod_deleted("shop", "web")
    assert waiting.get("shop", "web", "") is None


def test_a_namespace_with_many_pods_loses_its_own_the_oldest_first() -> None:
    waiting = WaitingPods(most_bytes=100)
    waiting.pod_changed(pod("only", namespace="small"), 1, b"x" * 20)
    for name in ("first", "second", "third", "fourth"):
        waiting.pod_changed(pod(name), 1, b"x" * 25)  # 20 + 3 x 25 = 95, with a fourth 120
    assert kept(waiting, "first", "second", "third", "fourth") == ["second", "third", "fourth"]
    waiting.pod_changed(pod("another", namespace="small"), 1, b"x" * 20)  # 40 + 75 = 115
    assert kept(waiting, "second", "third", "fourth") == ["third", "fourth"]
    assert kept(waiting, "only", "another", namespace="small") == ["only", "another"]
    assert waiting.get("shop", "first", "uid-of-first") is not None
    assert len(waiting) == 6


def test_a_pod_that_changes_counts_once() -> None:
    waiting = WaitingPods(most_bytes=100)
    waiting.pod_changed(pod("web"), 1, b"x" * 60)
    waiting.pod_changed(pod("web"), 2, b"x" * 90)
    waiting.pod_changed(pod("api"), 1, b"x" * 10)
    assert kept(waiting, "web", "api") == ["web", "api"]


def events_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, asyncio.Event) for each in gc.get_objects())


async def test_nothing_is_kept_of_a_pod_whose_caller_has_less_time_than_it_may_take_to_appear() -> (
    None
):
    seen = SeenBindings(lambda _: None, lambda: NOW)
    before = events_in_memory()
    for number in range(100):
        asked = AskedBinding(namespace="shop", name=f"never-{number}", uid="", node="node-a")
        waiting = asyncio.create_task(seen.appears(asked))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert events_in_memory() < before + 10


def parts_of(
    desk: Desk,
    *,
    now: Callable[[], Micros],
    lead_seconds_left: Callable[[], float] = lambda: 10.0,
    hand_over: Callable[[], None] = lambda: None,
    reserved_for: Callable[[Pod, int], str] = lambda _pod, _row: "",
) -> DeciderParts:
    return DeciderParts(
        placer=Placer(view=desk.state.view, now=lambda: NOW, scope=Scope()),
        ledger=desk.ledger,
        seen=SeenBindings(lambda _: None, now),
        policies=by_rank,
        counts=PolicyCounts(),
        reserved_room=lambda _view: reserved_for,
        records=None,
        hot_percent=80,
        lead_seconds_left=lead_seconds_left,
        succeeds=lambda: False,
        hand_over=hand_over,
        is_ready=lambda: True,
        seen_until=lambda: NOW,
        now=now,
    )


class _Clock:
    """A time that goes on by a quarter of a second whenever somebody looks.

    Args:
        desk: where a pod is seen.
        node_name: on which node.
        seen_after: in how many seconds.
    """

    def __init__(self, desk: Desk, node_name: str, seen_after: float) -> None:
        self.seconds = 0.0
        self._desk = desk
        self._node_name = node_name
        self._seen_after = seen_after

    def now(self) -> Micros:
        self.seconds += 0.25
        if self.seconds >= self._seen_after:
            self._desk.see("p", self._node_name)
        return after(self.seconds)


@pytest.mark.parametrize(
    ("node_name", "seen_after", "lead_seconds", "is_settled"),
    [
        ("b", 3, 10, True),  # it was moved, and is waited for
        ("b", 3, 2, False),  # by then another one may lead
        ("a", 3, 10, False),  # it goes where the scheduler expects it
        ("a", 0.5, 10, True),
    ],
)
async def test_who_ends_waits_for_moves_as_long_as_nobody_else_may_lead(
    node_name: str,
    seen_after: float,
    lead_seconds: float,
    is_settled: bool,  # noqa: FBT001
) -> None:
    desk, handed_over = Desk("p"), asyncio.Event()
    clock = _Clock(desk, node_name, seen_after)
    parts = parts_of(
        desk,
        lead_seconds_left=lambda: lead_seconds - clock.seconds,
        hand_over=handed_over.set,
        now=clock.now,
    )
    lead = asyncio.create_task(BindingDecider(parts).lead())
    await asyncio.sleep(0)  # it leads
    if node_name == "b":
        desk.moved("p")
    else:
        desk.ask("p")
    lead.cancel()
    await asyncio.gather(lead, return_exceptions=True)
    assert handed_over.is_set() == is_settled


P_TO_A = AskedBinding(namespace="shop", name="p", uid="p", node="a")


def decider_of_p(desk: Desk, *seconds: float) -> BindingDecider:
    """Return a decider that has seen the pod p, and looks at the clock at some moments."""
    moments = map(after, seconds)
    parts = parts_of(desk, now=lambda: next(moments))
    seen = request("p")
    parts.seen.pod_changed(seen.pod, 1, seen.raw)
    return BindingDecider(parts)


@pytest.mark.parametrize(("seconds", "is_given"), [(0.9, True), (1, False)])
def test_a_decision_that_takes_a_second_is_too_late_and_the_pod_counts_where_it_may_be_bound(
    seconds: float,
    is_given: bool,  # noqa: FBT001
) -> None:
    desk = Desk("p")
    decider = decider_of_p(desk, 0, 0, seconds)
    made = decider.decide(P_TO_A, decider.note(P_TO_A), lambda _: b"", in_haste=False)
    assert (made is not None) == is_given
    assert desk.counted() == {"a": 1, "b": int(is_given)}
    assert desk.ledger.counters.lost == (not is_given)


def test_a_binding_that_waits_for_its_turn_is_the_one_that_is_decided_then() -> None:
    desk = Desk("p")
    for number in range(4):
        desk.see(f"full-a{number}", "a")
        desk.see(f"full-b{number}", "b")
    desk.ledger.lead_begins(NOW, None)  # so that the scheduler is not believed
    decider = decider_of_p(desk, 0, 1, 1.5, 2)
    noted = decider.note(P_TO_A)
    assert desk.counted() == {"a": 5, "b": 4}
    made = decider.decide(P_TO_A, noted, lambda _: b"", in_haste=False)
    assert made is not None
    assert made.decision.action == "Deny"
    decider.answered(made, is_lost=False)
    assert desk.counted() == {"a": 4, "b": 4}


@pytest.mark.parametrize(("on_b", "action"), [(2, "Keep"), (3, "Deny")])
def test_a_pod_that_is_too_large_for_a_decision_is_denied_for_want_of_room_alone(
    on_b: int, action: str
) -> None:
    # Node b has 4 cores. A pod of one core was moved there, and the large one requests another.
    desk = Desk("moved")
    for number in range(on_b):
        desk.see(f"b{number}", "b")
    desk.ledger.answered(desk.moved("moved"), NOW)
    desk.see("large")
    parts = parts_of(desk, now=lambda: NOW)
    parts.seen.pod_changed(request("large").pod, 1, b"x" * (MOST_BYTES + 1))
    asked = AskedBinding(namespace="shop", name="large", uid="large", node="b")
    decider = BindingDecider(parts)
    made = decider.decide(asked, decider.note(asked), lambda _: b"", in_haste=False)
    assert made is not None
    assert made.decision.action == action


@pytest.mark.parametrize(
    ("spec", "action"),
    [
        ({}, "Deny"),
        ({"priority": 1}, "Keep"),
        ({"status": {"nominatedNodeName": "a"}}, "Keep"),  # others were evicted for it
    ],
)
def test_a_pod_that_is_too_large_for_a_decision_leaves_room_that_is_reserved(
    spec: dict[str, Any], action: str
) -> None:
    def reserved_for(pod: Pod, _row: int) -> str:
        return "a gang" if not pod.priority and pod.nominated_node_name != "a" else ""

    desk = Desk("p")
    parts = parts_of(desk, now=lambda: NOW, reserved_for=reserved_for)
    seen = request("p", **spec).pod
    parts.seen.pod_changed(seen, 1, b"x" * (MOST_BYTES + 1))
    made = BindingDecider(parts).decide(P_TO_A, None, lambda _: b"", in_haste=False)
    assert made is not None
    assert made.decision.action == action


def broken(_pod: Pod, _row: int) -> str:
    raise RuntimeError


@pytest.mark.parametrize(
    ("reserved_for", "action", "in_haste"),
    [
        (lambda _pod, _row: "gang `shop/train`", "Deny", "Deny"),
        (lambda _pod, row: "gang `shop/train`" * row, "Keep", "Keep"),  # a is left, b is better
        (lambda _pod, row: "gang `shop/train`" * (not row), "Move", "Deny"),
        (lambda _pod, _row: "", "Move", "Keep"),
        (broken, "Move", "Keep"),
    ],
)
def test_a_pod_leaves_room_that_is_reserved(
    reserved_for: Callable[[Pod, int], str], action: str, in_haste: str
) -> None:
    desk = Desk("p")
    parts = parts_of(desk, now=lambda: NOW, reserved_for=reserved_for)
    seen = request("p")
    parts.seen.pod_changed(seen.pod, 1, seen.raw)
    decider = BindingDecider(parts)
    for expected, is_hasty in ((in_haste, True), (action, False)):
        made = decider.decide(P_TO_A, None, lambda _: b"", in_haste=is_hasty)
        assert made is not None
        assert made.decision.action == expected
        if expected == "Deny":
            assert made.decision.message == "the room is reserved for gang `shop/train`"
