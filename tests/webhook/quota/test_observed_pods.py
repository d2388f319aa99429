from __future__ import annotations

import pytest

from engine.model import api
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.source_status import SourceStatus
from webhook.quota import ObservedPods, all_synced


def pod(version: str) -> api.Pod:
    meta = api.ObjectMeta(namespace="shop", name="a", uid="u", resource_version=version)
    return api.Pod(metadata=meta)


def test_a_pod_is_seen_as_soon_as_it_is_in_the_view() -> None:
    seen = ObservedPods()
    applier = EventApplier(observers=[seen])
    assert seen.version("u") == 0
    applier.pod(pod("7"))
    assert seen.version("u") == 7
    applier.delete_pod("shop", "a")
    assert seen.version("u") == 7


def test_what_was_seen_later_is_not_forgotten_for_what_was_asked_earlier() -> None:
    seen = ObservedPods()
    seen.observe("shop", "u", 9)
    seen.observe("shop", "u", 7)
    assert seen.version("u") == 9


def test_only_the_last_pods_are_remembered() -> None:
    seen = ObservedPods(most=2)
    for uid in ("a", "b", "a", "c"):
        seen.observe("shop", uid, 1)
    assert [bool(seen.version(uid)) for uid in "abc"] == [True, False, True]


def test_pods_that_nobody_limits_take_no_room() -> None:
    seen = ObservedPods()
    seen.matters = lambda namespace: namespace == "shop"
    seen.observe("elsewhere", "u", 1)
    assert seen.version("u") == 0


@pytest.mark.parametrize(
    ("told", "heard"),
    [
        ({}, False),
        ({"synced": True, "present": True}, True),
        ({"last_contact": 1, "present": False}, True),  # there is no such API
        ({"last_contact": 1, "present": True}, False),
        ({"last_error": "forbidden"}, False),  # it may well be there
    ],
)
def test_a_source_is_heard_in_full_or_known_to_be_absent(
    told: dict[str, object], *, heard: bool
) -> None:
    status = SourceStatus(name="elasticquotas", domain=None, required=False)
    for name, value in told.items():
        setattr(status, name, value)
    assert all_synced([status]) is heard
