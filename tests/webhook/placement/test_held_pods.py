from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from engine.model.pod import pod_of
from engine.model.time import SECOND, Micros, date
from engine.policy import load_policies
from webhook.placement.advice_limits import MOST_BYTES
from webhook.placement.held_pods import DEFAULT_HOLD_MAX, NEVER, HeldPod, HeldPods

NOON = Micros(1_767_614_400 * SECOND)


class Watched:
    """Held pods, and a watch and a clock that a test moves."""

    def __init__(self, *, most: int = 10, most_bytes: int = 1_000_000) -> None:
        self.now = NOON
        self.pods = HeldPods(lambda: self.now, hold_seconds=60, most=most, most_bytes=most_bytes)

    def wait(self, seconds: float) -> None:
        self.now = Micros(self.now + round(seconds * SECOND))

    def overdue(self) -> float:
        return self.pods.oldest_overdue_seconds(self.now)

    def show(
        self,
        name: str,
        *gates: str,
        age: float = 0,
        version: int = 1,
        metadata: dict[str, Any] | None = None,
        spec: dict[str, Any] | None = None,
    ) -> None:
        """Deliver a pod that was created so many seconds ago."""
        manifest = pod(name, *gates)
        manifest["metadata"] |= metadata or {}
        manifest["spec"] |= spec or {}
        created = date(self.now) - timedelta(seconds=age)
        manifest["metadata"]["creationTimestamp"] = created.isoformat()
        raw = msgspec.json.encode(manifest)
        model = pod_of(msgspec.json.decode(raw, type=api.Pod))
        self.pods.pod_changed(model, version, msgspec.Raw(raw))


def pod(name: str, *gates: str) -> dict[str, Any]:
    gated = [{"name": gate} for gate in gates or (HOLD_GATE,)]
    metadata = {"namespace": "shop", "name": name, "uid": name}
    return {"metadata": metadata, "spec": {"schedulingGates": gated, "containers": []}}


def held(watched: Watched, name: str) -> HeldPod:
    found = watched.pods.get(f"shop/{name}")
    assert found is not None
    return found


def test_a_pod_is_listed_as_it_was_sent_while_our_gate_holds_it() -> None:
    watched = Watched()
    watched.show("a", version=7, spec={"dnsPolicy": "Default"})
    assert held(watched, "a").version == 7
    assert msgspec.json.decode(held(watched, "a").raw)["spec"]["dnsPolicy"] == "Default"
    assert [each.key for each in watched.pods] == ["shop/a"]
    assert watched.pods.changed.is_set()
    model = held(watched, "a").pod
    watched.pods.pod_changed(msgspec.structs.replace(model, scheduling_gates=()), 8, b"{}")
    assert watched.pods.get("shop/a") is None
    assert len(watched.pods) == 0


@pytest.mark.parametrize(
    ("change", "is_held"),
    [
        ({}, True),
        ({"scheduling_gates": ("example.org/other",)}, False),
        ({"scheduling_gates": ("example.org/other", HOLD_GATE)}, False),  # we act when ours is last
        ({"deleting": True}, False),  # a finalizer keeps it, and nobody will run it
        ({"phase": "Failed"}, False),
    ],
)
def test_only_pods_that_wait_for_us_alone_are_held(
    change: dict[str, Any], *, is_held: bool
) -> None:
    watched = Watched()
    watched.show("a")
    model = msgspec.structs.replace(held(watched, "a").pod, **change)
    watched.pods.pod_changed(model, 2, held(watched, "a").raw)
    assert (watched.pods.get("shop/a") is not None) is is_held


def test_expressions_that_are_allowed_after_admission_know_what_they_read(tmp_path: Path) -> None:
    paths = [
        "request.operation == 'CREATE'",
        "request.namespace == 'shop'",
        "request.name == 'a'",
        "request.kind.kind == 'Pod'",
        "request.resource.resource == 'pods'",
        "request.requestKind.version == 'v1'",
        "request.requestResource.group == ''",
        "request.subResource + request.requestSubResource == ''",
        "!request.dryRun",
        "object.spec.containers.size() == 0",
    ]
    conditions = [f'    - {{name: c{n}, expression: "{text}"}}' for n, text in enumerate(paths)]
    text = (
        "apiVersion: stowplan.dev/v1alpha1\nkind: PlacementPolicy\nmetadata: {name: late}\nspec:\n"
        "  placement: {at: Binding, preemption: On}\n  match:\n    matchConditions:\n"
        + "\n".join(conditions)
    )
    (tmp_path / "policy.yaml").write_text(text)
    watched = Watched()
    watched.show("a")
    match = load_policies([tmp_path]).match(held(watched, "a").placement_request, NOON)
    assert [policy.name for policy in match.enforced] == ["late"]
    assert match.errors == ()


def test_a_deleted_pod_is_held_no_longer() -> None:
    watched = Watched()
    watched.show("a")
    watched.pods.pod_deleted("shop", "a")
    watched.pods.pod_deleted("shop", "a")
    assert len(watched.pods) == 0
    assert not watched.pods.is_full


def test_a_hold_is_bound_from_the_creation_whatever_the_pod_says() -> None:
    watched = Watched()
    far = {RELEASE_BY_ANNOTATION: "2126-01-01T00:00:00Z"}
    watched.show("a", age=50, metadata={"annotations": far})
    assert held(watched, "a").release_by == NOON + 10 * SECOND
    past = {RELEASE_BY_ANNOTATION: "1999-01-01T00:00:00Z"}
    watched.show("b", metadata={"annotations": past})
    assert watched.overdue() == 0
    watched.wait(12)
    assert watched.overdue() == 2


def test_the_oldest_overdue_hold_is_found_as_pods_come_change_and_go() -> None:
    watched = Watched()
    watched.show("old", age=30)
    watched.show("new", age=10)
    watched.wait(40)
    assert watched.overdue() == 10  # created 70 s ago
    watched.show("old", age=70, version=2)
    assert watched.overdue() == 10
    watched.pods.pod_deleted("shop", "old")
    assert watched.overdue() == 0
    watched.wait(15)
    assert watched.overdue() == 5


def test_a_hold_is_not_overdue_before_it_is_seen() -> None:
    watched = Watched()
    watched.show("a", age=3_600)  # another gate was taken off now, or this replica was started
    assert watched.overdue() == 0
    watched.wait(3)
    watched.show("a", age=3_603, version=2)
    assert watched.overdue() == 3
    watched.show("a", metadata={"uid": "another"})  # deleted and created again
    assert watched.overdue() == 0


def test_a_pod_that_waits_for_quota_is_never_overdue() -> None:
    watched = Watched()
    queued = {"annotations": {HOLD_REASONS_ANNOTATION: "placement,quota"}}
    watched.show("a", age=30, metadata=queued)
    large = {**queued["annotations"], "a": "x" * MOST_BYTES}
    watched.show("giant", metadata={"annotations": large})
    watched.wait(3_600)
    assert watched.overdue() == 0
    for name in ("a", "giant"):
        assert held(watched, name).is_queued
        assert held(watched, name).release_by == NEVER
    watched.show("a", age=3_630, version=2)  # somebody has removed the reason: its time begins
    assert not held(watched, "a").is_queued
    assert watched.overdue() == 0
    watched.wait(7)
    assert watched.overdue() == 7
    watched.show("a", age=3_637, version=3, metadata=queued)
    assert watched.overdue() == 0


def test_a_clock_that_is_set_back_makes_nothing_overdue() -> None:
    watched = Watched()
    watched.show("a")
    watched.wait(-3_600)
    assert watched.overdue() == 0


def test_of_pods_that_cannot_be_decided_only_their_identity_is_kept() -> None:
    watched = Watched(most_bytes=10_000_000)
    watched.show("giant", metadata={"annotations": {"a": "x" * MOST_BYTES}})
    watched.show("crowd", spec={"tolerations": [{"key": str(n)} for n in range(501)]})
    for name in ("giant", "crowd"):
        assert held(watched, name).raw == b""
        assert held(watched, name).pod.is_held_by_us_alone
        assert held(watched, name).pod.uid == name
        assert not held(watched, name).pod.annotations
        assert not held(watched, name).pod.tolerations


def test_objects_are_kept_up_to_a_limit_and_pods_are_known_beyond_it() -> None:
    watched = Watched(most=1_000, most_bytes=1_000)
    for number in range(50):
        watched.show(f"pod-{number}")
    assert len(watched.pods) == 50
    assert 0 < sum(len(each.raw) for each in watched.pods) <= 1_000
    assert not all(each.raw for each in watched.pods)


def test_of_many_forged_holds_only_so_many_objects_are_kept() -> None:
    watched = Watched(most=0, most_bytes=100_000_000)  # none should be held, some may be still
    watched.show("a")
    known = held(watched, "a")
    for number in range(2 * DEFAULT_HOLD_MAX + 5):
        forged = msgspec.structs.replace(known.pod, name=str(number))
        watched.pods.pod_changed(forged, 1, known.raw)
    assert watched.pods.is_full
    assert len(watched.pods) == 2 * DEFAULT_HOLD_MAX + 6
    assert sum(bool(each.raw) for each in watched.pods) == 2 * DEFAULT_HOLD_MAX


def test_it_is_full_by_number_or_by_bytes() -> None:
    by_number, by_bytes = Watched(most=2), Watched(most_bytes=MOST_BYTES + 1)
    by_number.show("a")
    assert not by_number.pods.is_full
    by_number.show("b")
    assert by_number.pods.is_full
    by_bytes.pods.pod_changed(
        pod_of(msgspec.convert(pod("a"), api.Pod)), 1, msgspec.json.encode(pod("a"))
    )
    assert by_bytes.pods.is_full


def test_a_pod_of_which_only_a_part_can_be_read_is_held_without_its_object() -> None:
    watched = Watched()
    watched.pods.pod_changed(pod_of(msgspec.convert(pod("a"), api.Pod)), 1, b"")
    assert held(watched, "a").raw == b""


@given(
    st.lists(
        st.tuples(st.sampled_from(["show", "gate off", "delete", "wait"]), st.integers(0, 5)),
        max_size=60,
    )
)
def test_any_order_of_events_leaves_what_is_held_now(events: list[tuple[str, int]]) -> None:
    most_bytes = MOST_BYTES + 400
    watched, expected = Watched(most=3, most_bytes=most_bytes), dict[str, Micros]()
    for what, number in events:
        name = f"pod-{number}"
        match what:
            case "show":
                watched.show(name, age=(watched.now - expected.get(name, watched.now)) / SECOND)
                expected.setdefault(name, watched.now)
            case "gate off":
                watched.show(name, "example.org/other")
                expected.pop(name, None)
            case "delete":
                watched.pods.pod_deleted("shop", name)
                expected.pop(name, None)
            case _:
                watched.wait(20 * number)
    assert {each.pod.name for each in watched.pods} == expected.keys()
    overdue = [(watched.now - created) / SECOND - 60 for created in expected.values()]
    assert watched.overdue() == max(0, *overdue, 0)
    assert watched.pods.is_full == (
        len(expected) >= 3 or sum(len(each.raw) for each in watched.pods) > 400
    )
