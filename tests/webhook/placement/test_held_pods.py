from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.gang import GangKey
from engine.model import api
from engine.model.gang import MIN_AVAILABLE_ANNOTATION, NAME_ANNOTATION, POD_GROUP_LABEL
from engine.model.hold import (
    HOLD_GATE,
    HOLD_REASONS_ANNOTATION,
    REFUSED_IN_ANNOTATION,
    RELEASE_BY_ANNOTATION,
    RELEASING_ANNOTATION,
)
from engine.model.pod import Pod, pod_of
from engine.model.pod_shape import shape_of
from engine.model.time import SECOND, Micros, date
from engine.policy import load_policies
from engine.release import HeldPod
from tests.builders import pod_from
from webhook.placement.held_pods import (
    NEVER,
    GangMembers,
    HeldPods,
    HoldGuard,
    ObservedLease,
    Refusal,
)
from webhook.placement.placer import MOST_BYTES

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRAIN = GangKey("shop", "train")


def pod(name: str, *, gang: str = "train", minimum: str = "", minute: int = 0) -> Pod:
    annotations = {NAME_ANNOTATION: gang, MIN_AVAILABLE_ANNOTATION: minimum} if minimum else {}
    labels = {POD_GROUP_LABEL: gang} if gang and not minimum else {}
    meta = api.ObjectMeta(
        namespace="shop",
        name=name,
        uid=name,
        labels=labels,
        annotations=annotations,
        creation_timestamp=BEGIN + timedelta(minutes=minute),
    )
    return pod_of(api.Pod(metadata=meta))


def observed(*pods: Pod) -> GangMembers:
    members = GangMembers()
    for each in pods:
        members.pod_changed(each, 1, b"")
    return members


def names(members: GangMembers, key: GangKey = TRAIN) -> set[str]:
    return {member.name for member in members.of(key)}


def test_only_pods_of_gangs_are_kept() -> None:
    members = observed(pod("a"), pod("b"), pod("c", gang=""))
    assert names(members) == {"a", "b"}
    assert len(members) == 2
    assert list(members) == [TRAIN]
    assert members.gang_of("shop/c") is None


def test_a_member_that_is_gone_or_has_finished_is_forgotten() -> None:
    members = observed(pod("a"), pod("b"))
    members.pod_deleted("shop", "a")
    members.pod_changed(
        pod_of(api.Pod(metadata=api.ObjectMeta(namespace="shop", name="b"))), 2, b""
    )
    assert not names(members)
    assert not list(members)


def test_a_member_may_change_its_gang() -> None:
    members = observed(pod("a"), pod("a", gang="other"))
    assert not names(members)
    assert names(members, GangKey("shop", "other")) == {"a"}


def test_the_oldest_member_says_what_a_gang_without_an_object_is() -> None:
    members = observed(pod("b", minimum="3", minute=1), pod("a", minimum="2"))
    described = members.described(TRAIN)
    assert described is not None
    assert described.min_member == 2
    members.pod_deleted("shop", "a")
    described = members.described(TRAIN)
    assert described is not None
    assert described.min_member == 3
    assert observed(pod("a")).described(TRAIN) is None


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
        namespace: str = "shop",
    ) -> None:
        """Deliver a pod that was created so many seconds ago."""
        manifest = waiting_pod(name, *gates)
        manifest["metadata"]["namespace"] = namespace
        manifest["metadata"] |= metadata or {}
        manifest["spec"] |= spec or {}
        created = date(self.now) - timedelta(seconds=age)
        manifest["metadata"]["creationTimestamp"] = created.isoformat()
        raw = msgspec.json.encode(manifest)
        model = pod_of(msgspec.json.decode(raw, type=api.Pod))
        self.pods.pod_changed(model, version, msgspec.Raw(raw))


def waiting_pod(name: str, *gates: str) -> dict[str, Any]:
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
    assert not watched.pods.is_full("shop")


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


def test_objects_are_kept_up_to_a_share_and_pods_are_known_beyond_it() -> None:
    watched = Watched(most=0, most_bytes=100 * 3_072)  # none should be held, some may be still
    for number in range(60):
        watched.show(f"pod-{number}")
    assert len(watched.pods) == 60
    assert sum(bool(each.raw) for each in watched.pods) == 50  # half, at 3 KiB each however small
    for number in range(30):
        watched.show(f"pod-{number}", namespace="mail")
    assert sum(bool(each.raw) for each in watched.pods) == 75  # half of what is left
    watched.show("pod-0", version=2)
    assert held(watched, "pod-0").raw  # what it had it keeps


def test_a_namespace_is_full_by_number_and_leaves_as_much_to_the_next() -> None:
    watched = Watched(most=9, most_bytes=100_000_000)
    for number in range(20):
        assert watched.pods.is_full("shop") is (number >= 5)  # 4 + 1 <= 9 - 4, and 5 + 1 > 9 - 5
        watched.show(f"pod-{number}")
    for number in range(20):
        assert watched.pods.is_full("mail") is (number >= 2)  # 1 + 1 <= 4 - 1, and 2 + 1 > 4 - 2
        watched.show(f"pod-{number}", namespace="mail")
    assert not watched.pods.is_full("docs")
    for number in range(20):
        watched.pods.pod_deleted("shop", f"pod-{number}")
    assert not watched.pods.is_full("shop")
    assert not watched.pods.is_full("mail")


def test_a_namespace_is_full_by_bytes_and_leaves_as_much_to_the_next() -> None:
    # The next pod may have MOST_BYTES. Two of a bit more than half of it have a bit more than
    # MOST_BYTES, with the next one 2 * MOST_BYTES, and leave a bit less than that.
    watched = Watched(most=1_000, most_bytes=3 * MOST_BYTES)
    large = {"annotations": {"a": "x" * (MOST_BYTES // 2)}}
    watched.show("a", metadata=large)
    assert not watched.pods.is_full("shop")
    watched.show("b", metadata=large)
    assert watched.pods.is_full("shop")
    assert not watched.pods.is_full("mail")


def test_pods_that_are_overdue_for_half_a_minute_are_known_by_namespace() -> None:
    watched = Watched()
    watched.show("a")
    watched.show("b", namespace="mail")
    watched.wait(60 + 29)
    watched.show("late")
    assert watched.pods.overdue(watched.now) == {}
    watched.wait(1)
    assert {name: {*keys} for name, keys in watched.pods.overdue(watched.now).items()} == {
        "shop": {"shop/a"},
        "mail": {"mail/b"},
    }
    assert watched.overdue() == 30
    watched.show("a", age=90, version=2)  # a change is no release
    assert {*watched.pods.overdue(watched.now)} == {"shop", "mail"}
    watched.pods.pod_deleted("shop", "a")
    watched.show("b", "example.org/other", namespace="mail")
    assert watched.pods.overdue(watched.now) == {}
    assert watched.overdue() == 0


def test_a_pod_of_which_only_a_part_can_be_read_is_held_without_its_object() -> None:
    watched = Watched()
    watched.pods.pod_changed(pod_from(waiting_pod("a")), 1, b"")
    assert held(watched, "a").raw == b""


@given(
    st.lists(
        st.tuples(st.sampled_from(["show", "gate off", "delete", "wait"]), st.integers(0, 5)),
        max_size=60,
    )
)
def test_any_order_of_events_leaves_what_is_held_now(events: list[tuple[str, int]]) -> None:
    watched, expected = Watched(most=3), dict[str, Micros]()
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
    if not expected:
        assert not watched.pods.is_full("shop")
    late = [name for name, created in expected.items() if watched.now - created >= 90 * SECOND]
    assert {*watched.pods.overdue(watched.now).get("shop", ())} == {f"shop/{name}" for name in late}


@dataclass(frozen=True, kw_only=True)
class Lease(ObservedLease):
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
