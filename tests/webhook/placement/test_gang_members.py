from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.gang import GangKey
from engine.model import api
from engine.model.gang import MIN_AVAILABLE_ANNOTATION, NAME_ANNOTATION, POD_GROUP_LABEL
from engine.model.pod import Pod, pod_of
from webhook.placement.gang_members import GangMembers

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
