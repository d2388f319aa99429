from __future__ import annotations

import msgspec
import pytest

from engine.errors import QuantityError
from engine.model import api
from engine.model.gang import (
    GangKey,
    GangMode,
    GangTopology,
    MatchPolicy,
    OnGangFailure,
    PodGroup,
    WhenNoRoom,
    pod_group_of,
    waiting_seconds,
)

_KOORDINATOR = "gang.scheduling.koordinator.sh"


def _pod_group(
    kind: type[api.PodGroup] = api.PodGroup,
    *,
    annotations: dict[str, str] | None = None,
    status: dict[str, object] | None = None,
    **spec: object,
) -> PodGroup:
    wire = {
        "metadata": {"name": "train", "namespace": "shop", "annotations": annotations},
        "spec": {"minMember": 3, **spec},
        "status": status or {},
    }
    return pod_group_of(msgspec.convert(wire, kind))


def test_a_pod_group_says_how_many_must_run_and_what_they_need() -> None:
    pod_group = _pod_group(minResources={"cpu": "2500m", "memory": "1Gi"}, status={"succeeded": 2})
    gang = pod_group.gang
    assert gang.key == GangKey("shop", "train")
    assert (gang.min_member, gang.total, gang.succeeded) == (3, 3, 2)
    assert gang.min_resources == {"cpu": 2500, "memory": 2**30}


@pytest.mark.parametrize(("seconds", "meant"), [(None, 60), (0, 60), (-1, 60), (5, 5)])
def test_without_a_timeout_upstreams_default_counts(seconds: int | None, meant: int) -> None:
    assert _pod_group(scheduleTimeoutSeconds=seconds).gang.schedule_timeout_seconds == meant


def test_a_pod_group_of_koordinator_is_another_object_with_defaults_of_its_own() -> None:
    upstreams, koordinators = _pod_group(), _pod_group(api.KoordinatorPodGroup)
    assert upstreams.key != koordinators.key
    assert upstreams.gang.match_policy is MatchPolicy.WAITING_AND_RUNNING
    assert koordinators.gang.match_policy is MatchPolicy.ONCE_SATISFIED
    assert koordinators.gang.schedule_timeout_seconds == 600


def test_a_pod_group_without_a_number_is_a_gang_of_one() -> None:
    assert _pod_group(minMember=0).gang.min_member == 1
    assert _pod_group(minMember=-7).gang.min_member == 1


def test_an_amount_that_is_no_quantity_is_an_error() -> None:
    with pytest.raises(QuantityError):
        _pod_group(minResources={"cpu": "much"})


def test_annotations_say_more() -> None:
    gang = _pod_group(
        annotations={
            f"{_KOORDINATOR}/total-number": "5",
            f"{_KOORDINATOR}/mode": "NonStrict",
            f"{_KOORDINATOR}/match-policy": "only-waiting",
            f"{_KOORDINATOR}/groups": '["shop/train", "shop/serve"]',
            "stowplan.dev/gang-topology": "topology.kubernetes.io/zone",
            "stowplan.dev/when-no-room": "Release",
            "stowplan.dev/on-gang-failure": "Recreate",
        }
    ).gang
    assert gang.total == 5
    assert gang.mode is GangMode.NON_STRICT
    assert gang.match_policy is MatchPolicy.ONLY_WAITING
    assert gang.group == (GangKey("shop", "serve"), GangKey("shop", "train"))
    assert gang.topology == GangTopology("topology.kubernetes.io/zone", required=True)
    assert gang.when_no_room is WhenNoRoom.RELEASE
    assert gang.on_failure is OnGangFailure.RECREATE


def test_members_that_run_are_created_again_where_that_is_wanted_and_all_fail_together() -> None:
    recreate = {"stowplan.dev/on-gang-failure": "Recreate"}
    assert _pod_group(annotations=recreate).gang.is_recreated
    assert not _pod_group().gang.is_recreated
    kept = {**recreate, f"{_KOORDINATOR}/mode": "NonStrict"}
    assert not _pod_group(annotations=kept).gang.is_recreated


def test_the_match_policy_has_an_alias_that_counts_last() -> None:
    alias = {"pod-group.scheduling.sigs.k8s.io/match-policy": "only-waiting"}
    assert _pod_group(annotations=alias).gang.match_policy is MatchPolicy.ONLY_WAITING
    both = {**alias, f"{_KOORDINATOR}/match-policy": "once-satisfied"}
    assert _pod_group(annotations=both).gang.match_policy is MatchPolicy.ONCE_SATISFIED


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{_KOORDINATOR}/total-number", "2"),  # less than must run
        (f"{_KOORDINATOR}/total-number", "9" * 30),
        (f"{_KOORDINATOR}/total-number", "1_000"),
        (f"{_KOORDINATOR}/mode", "strict"),
        (f"{_KOORDINATOR}/match-policy", "always"),
        (f"{_KOORDINATOR}/groups", "shop/serve"),
        (f"{_KOORDINATOR}/groups", '{"shop": "serve"}'),
        (f"{_KOORDINATOR}/groups", "[" * 100_000),
        (f"{_KOORDINATOR}/groups", '["serve"]'),
        ("stowplan.dev/gang-topology", ""),
        ("stowplan.dev/gang-topology", "x" * 1000),
        ("stowplan.dev/when-no-room", "Maybe"),
        ("stowplan.dev/on-gang-failure", ""),
    ],
)
def test_what_is_malformed_counts_as_missing(name: str, text: str) -> None:
    assert _pod_group(annotations={name: text}) == _pod_group()


def test_a_group_of_too_many_gangs_is_none() -> None:
    many = msgspec.json.encode([f"shop/{number}" for number in range(1000)]).decode()
    assert _pod_group(annotations={f"{_KOORDINATOR}/groups": many}) == _pod_group()


def test_a_topology_may_be_preferred() -> None:
    annotations = {
        "stowplan.dev/gang-topology": "rack",
        "stowplan.dev/gang-topology-policy": "Preferred",
    }
    assert _pod_group(annotations=annotations).gang.topology == GangTopology("rack", required=False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, 600), ("", 600), ("soon", 600), ("-5s", 600), ("0s", 600), ("90s", 90), ("1.5s", 2)],
)
def test_a_waiting_time_is_a_go_duration(text: str | None, seconds: int) -> None:
    assert waiting_seconds(text) == seconds
