from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.gang import pod_group_of
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.placement import ADVICE_ANNOTATION
from engine.view import ClusterState
from tests.webhook.admission.test_hold import (
    HELD,
    Lease,
    World,
    gates,
    manifest,
    patched,
    policy,
)
from webhook.admission.handler import Outcome

FOR_GANG = {**HELD, HOLD_REASONS_ANNOTATION: "gang"}
LABEL = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh"


@pytest.fixture
def world(state: ClusterState, tmp_path: Path) -> World:
    """Return a world in which the namespace `shop` has the PodGroup `train`."""
    wire = {"metadata": {"name": "train", "namespace": "shop"}, "spec": {"minMember": 2}}
    state.set_extra(pod_group_of(msgspec.convert(wire, api.PodGroup)))
    return World(state, tmp_path)


def member(pod_group: str = "train", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - metadata
    return {"labels": {LABEL: pod_group}, **more}


def test_a_member_of_a_gang_is_held_and_nothing_else(world: World) -> None:
    result = world.review(manifest(member()))
    assert result.outcome is Outcome.HELD
    assert patched(manifest(member()), result) == manifest(
        member(annotations=FOR_GANG), schedulingGates=gates(HOLD_GATE)
    )
    assert result.response.warnings == ()
    assert world.assumed == 0


def test_a_second_round_of_admission_changes_nothing(world: World) -> None:
    once = patched(manifest(member()), world.review(manifest(member())))
    again = world.review(once)
    assert (again.outcome, again.response.patch) == (Outcome.HELD, None)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}},
        {"annotations": {f"{KOORDINATOR}/name": "x", f"{KOORDINATOR}/min-available": "3"}},
    ],
)
def test_koordinators_labels_and_annotations_count_too(
    world: World, metadata: dict[str, Any]
) -> None:
    result = world.review(manifest(metadata))
    assert result.outcome is Outcome.HELD
    after = patched(manifest(metadata), result)
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "gang"


def test_pods_without_a_gang_are_not_held_for_one(world: World) -> None:
    for metadata in ({}, {"labels": {"app": "pod-group"}}):
        result = world.review(manifest(metadata))
        assert (result.outcome, result.response.warnings) == (Outcome.ABSTAINED, ())


@pytest.mark.parametrize(
    ("policies", "reasons"),
    [
        ([policy("late")], "order,gang"),
        ([policy("now", "Admission")], "gang"),
    ],
)
def test_the_reasons_are_all_for_which_a_pod_is_held(
    world: World, policies: list[str], reasons: str
) -> None:
    pod = manifest(member())
    after = patched(pod, world.load(*policies).review(pod))
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == reasons


def test_a_member_that_waits_for_quota_too_is_held_for_both(world: World) -> None:
    world.state.set_namespace("shop", {}, quota_mode="Queue")
    pod = manifest(member())
    after = patched(pod, world.review(pod))
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "quota,gang"


def test_advice_at_admission_is_written_on_a_member_too(world: World) -> None:
    pod = manifest(member())
    after = patched(pod, world.load(policy("now", "Admission")).review(pod))
    assert ADVICE_ANNOTATION in after["metadata"]["annotations"]
    assert world.assumed == 0


@pytest.mark.parametrize(
    ("lease", "reason", "said"),
    [
        (Lease(holder=""), "no_leader", "no replica leads"),
        (Lease(annotations={}), "not_releasing", "no pods are being released"),
    ],
)
def test_where_nobody_releases_a_member_is_let_through_with_a_warning(
    world: World, lease: Lease, reason: str, said: str
) -> None:
    world.lease = lease
    result = world.review(manifest(member()))
    assert (result.outcome, result.response.patch) == (Outcome.ABSTAINED, None)
    (warning,) = result.response.warnings
    assert warning.startswith("stowplan: the pod may start before others of its gang `shop/train`")
    assert warning.endswith(f"it is not held, for {said}")
    assert world.refused == {reason: 1}


def test_an_advice_that_is_shared_keeps_the_warning(world: World) -> None:
    world.load(policy("now", "Admission")).lease = Lease(holder="")
    world.tick = 0.011  # a decision takes more than a tenth of the time
    first = world.review(manifest(member()), uid="u-1")
    second = world.review(manifest(member()), uid="u-2")
    assert (first.outcome, second.outcome) == (Outcome.PLACED, Outcome.SHARED)
    assert "its gang `shop/train`" in second.response.warnings[-1]


@pytest.mark.parametrize(
    "pod",
    [
        manifest(member(), priority=1_000_000_000),
        manifest(member(), schedulingGates=gates("example.org/theirs")),
        manifest({"labels": {LABEL: "train", "kueue.x-k8s.io/queue-name": "team"}}),
    ],
)
def test_members_that_must_not_wait_for_us_are_not_held_and_warned_of(
    world: World, pod: dict[str, Any]
) -> None:
    result = world.review(pod)
    assert (result.outcome, result.response.patch) == (Outcome.ABSTAINED, None)
    assert result.response.warnings[0].endswith("such pods are never held")


@pytest.mark.parametrize(
    ("pod", "namespace"),
    [
        (manifest(member(ownerReferences=[{"kind": "DaemonSet"}])), "shop"),
        (manifest(member(), nodeName="node-a"), "shop"),
        (manifest(member(), schedulerName="koord-scheduler"), "shop"),
        (manifest({}, schedulingGroup={"podGroupName": "train"}), "shop"),
        (manifest(member(), schedulingGroup={"podGroupName": "train"}), "kube-system"),
        (manifest(member()), "kube-system"),
    ],
)
def test_what_is_left_to_others_is_left_to_them_without_a_word(
    world: World, pod: dict[str, Any], namespace: str
) -> None:
    result = world.review(pod, namespace=namespace)
    assert (result.outcome, result.response.patch) == (Outcome.ABSTAINED, None)
    assert result.response.warnings == ()


def test_a_pod_that_a_job_controller_has_put_into_a_group_of_the_scheduler_is_warned_of(
    world: World,
) -> None:
    result = world.review(manifest(member(), schedulingGroup={"podGroupName": "job-pg-0"}))
    assert (result.outcome, result.response.patch) == (Outcome.ABSTAINED, None)
    (warning,) = result.response.warnings
    assert warning.startswith("stowplan: the pod is no member of its gang `shop/train`")


def test_a_pod_may_be_seen_before_its_pod_group(world: World) -> None:
    pod = manifest(member("later"))
    result = world.review(pod)
    assert result.outcome is Outcome.HELD
    (warning,) = result.response.warnings
    assert warning.startswith("stowplan: no PodGroup `shop/later` is known")


def test_without_the_kind_a_label_means_nothing(world: World) -> None:
    world.has_pod_groups = False
    result = world.review(manifest(member("later")))
    assert (result.outcome, result.response.warnings) == (Outcome.ABSTAINED, ())


def test_a_dry_run_shows_the_hold(world: World) -> None:
    result = world.review(manifest(member()), dryRun=True)
    assert patched(manifest(member()), result)["spec"]["schedulingGates"] == gates(HOLD_GATE)
