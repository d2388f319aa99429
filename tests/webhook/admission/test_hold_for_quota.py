from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from engine.placement import ADVICE_ANNOTATION
from engine.view import ClusterState
from tests.webhook.admission.test_handler import Clock, Webhook
from tests.webhook.admission.test_hold import (
    DISK,
    HELD,
    PROMISING,
    Lease,
    World,
    gates,
    manifest,
    patched,
    policy,
)
from tests.webhook.admission.test_placement import PODS
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.wire import AdmissionRequest

FOR_QUOTA = {**HELD, HOLD_REASONS_ANNOTATION: "quota"}


@pytest.fixture
def world(state: ClusterState, tmp_path: Path) -> World:
    """Return a world in which the namespace `shop` has a quota, and queues."""
    state.set_namespace("shop", {}, quota_mode="Queue")
    return World(state, tmp_path)


def test_pods_of_a_namespace_that_queues_are_held_and_nothing_else(world: World) -> None:
    result = world.review()
    assert result.outcome is Outcome.HELD
    assert patched(manifest(), result) == manifest(
        {"annotations": FOR_QUOTA}, schedulingGates=gates(HOLD_GATE)
    )


@pytest.mark.parametrize("mode", ["Enforce", "Audit", "Off", "queue"])
def test_in_other_modes_nothing_is_held_for_quota(world: World, mode: str) -> None:
    world.state.set_namespace("shop", {}, quota_mode=mode)
    assert world.review().outcome is Outcome.ABSTAINED


def test_without_a_quota_nothing_is_held_for_it(world: World) -> None:
    world.state.set_namespace("other", {}, quota_mode="Queue")
    assert world.review(namespace="other").outcome is Outcome.ABSTAINED
    assert not world.refused


@pytest.mark.parametrize(
    ("policies", "reasons"),
    [
        ([policy("late")], "order,quota"),
        ([policy("now", "Admission")], "quota"),
        ([policy("late"), policy("now", "Admission", priority=1)], "quota"),
        ([policy("late", mode="Audit")], "quota"),
    ],
)
def test_the_reasons_are_all_for_which_a_pod_is_held(
    world: World, policies: list[str], reasons: str
) -> None:
    after = patched(manifest(), world.load(*policies).review())
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == reasons


def test_a_queued_pod_has_what_filters_promise(
    world: World,
) -> None:
    after = patched(manifest(), world.load(PROMISING).review())
    assert after["metadata"]["annotations"][HOLD_REASONS_ANNOTATION] == "order,quota"
    required = after["spec"]["affinity"]["nodeAffinity"]
    assert required == {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": DISK}
    }


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {"a": "b"}}])
def test_advice_at_admission_is_written_on_a_queued_pod_that_is_assumed_nowhere(
    world: World, metadata: dict[str, Any]
) -> None:
    world.load(policy("now", "Admission"))
    pod = manifest(metadata)
    result = world.review(pod)
    assert result.outcome is Outcome.HELD
    after = patched(pod, result)
    assert after["metadata"]["annotations"].items() >= FOR_QUOTA.items()
    assert ADVICE_ANNOTATION in after["metadata"]["annotations"]
    assert after["spec"]["affinity"]["nodeAffinity"]
    assert world.assumed == 0
    assert world.counts.decisions(world.policies)["now", "Enforce", "placed"] == 1
    again = world.review(after)
    assert (again.outcome, again.response.patch) == (Outcome.HELD, None)


def test_what_a_policy_denies_at_admission_is_not_held(world: World) -> None:
    deny = policy("now", "Admission").replace(
        "scores:", "filters: [{name: f, expression: 'false'}]\n  scores:"
    )
    world.load(deny.replace("at: Admission", "at: Admission, whenNoneFits: Deny"))
    assert world.review().outcome is Outcome.DENIED


def test_a_pod_that_was_advised_and_is_queued_in_the_second_round_is_assumed_no_longer(
    world: World,
) -> None:
    world.load(policy("now", "Admission")).lease = Lease(holder="")
    advised = patched(manifest(), world.review(uid="u-1"))
    assert world.assumed == 1
    world.lease = Lease()
    assert world.review(advised, uid="u-2").outcome is Outcome.HELD
    assert world.assumed == 0


@pytest.mark.parametrize(
    ("lease", "reason"),
    [(Lease(holder=""), "no_leader"), (Lease(annotations={}), "not_releasing")],
)
def test_where_nobody_releases_a_pod_is_left_to_the_judgement_of_its_quota(
    world: World, lease: Lease, reason: str
) -> None:
    world.lease = lease
    result = world.review()
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.patch is None
    assert world.refused == {reason: 1}


@pytest.mark.parametrize(
    ("pod", "namespace"),
    [
        (manifest({"ownerReferences": [{"kind": "DaemonSet"}]}), "shop"),
        (manifest({"annotations": {"kubernetes.io/config.mirror": "a"}}), "shop"),
        (manifest(nodeName="node-a"), "shop"),
        (manifest(schedulerName="volcano"), "shop"),
        (manifest(priority=1_000_000_000), "shop"),
        (manifest(schedulingGates=gates("example.org/theirs")), "shop"),
        (manifest({"labels": {"kueue.x-k8s.io/queue-name": "team"}}), "shop"),
        (manifest(), "kube-system"),
    ],
)
def test_pods_that_are_never_held_are_not_queued(
    world: World, pod: dict[str, Any], namespace: str
) -> None:
    result = world.review(pod, namespace=namespace)
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.patch is None
    world.lease = Lease(holder="")
    world.review(pod, namespace=namespace)
    assert not world.refused


def test_a_forged_reason_is_replaced_by_the_true_one(world: World) -> None:
    forged = {**HELD, HOLD_REASONS_ANNOTATION: "order"}
    pod = manifest({"annotations": forged}, schedulingGates=gates(HOLD_GATE))
    after = patched(pod, world.review(pod))
    assert after["metadata"]["annotations"] == FOR_QUOTA
    world.state.set_namespace("shop", {}, quota_mode="Enforce")
    world.load(policy("late"))
    queued = manifest({"annotations": FOR_QUOTA}, schedulingGates=gates(HOLD_GATE))
    after = patched(queued, world.review(queued))
    assert after["metadata"]["annotations"].items() >= HELD.items()


def sent(number: int) -> bytes:
    """Return the review of a pod of the namespace that queues, as it is sent."""
    request = {
        "uid": f"u-{number}",
        "operation": "CREATE",
        "resource": PODS,
        "namespace": "shop",
        "object": manifest(),
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    "now", [policy("now", "Admission", labels="a: b"), policy("now", "Admission")]
)
async def test_a_late_pod_is_queued_all_the_same(world: World, now: str) -> None:
    # Each reading of the clock takes 8 s, and 6 s after its arrival a review is late.
    reviews = world.load(now).reviews
    async with Webhook(
        reviews.review,
        clock=Clock(step=8.0),
        shortcut=reviews.without_waiting,
        undecided=reviews.undecided,
    ) as webhook:
        response = (await (await webhook.post(sent(1))).json())["response"]
        assert response["patch"]
        assert webhook.counted() == {"held": 1}


async def test_pods_are_queued_while_as_many_others_wait_for_decisions_as_may(
    world: World,
) -> None:
    release = asyncio.Event()

    async def wait(request: AdmissionRequest) -> ReviewResult:
        await release.wait()
        return ReviewResult(Outcome.PLACED, wire.allowed(request.uid))

    reviews = world.reviews
    async with Webhook(
        wait, max_in_flight=4, shortcut=reviews.without_waiting, undecided=reviews.undecided
    ) as webhook:
        other = sent(0).replace(b'"shop"', b'"other"')
        waiting = [asyncio.create_task(webhook.post(other)) for _ in range(4)]
        await webhook.until_in_flight(4)
        answers = await asyncio.gather(*[webhook.post(sent(number)) for number in range(1, 51)])
        assert [bool((await each.json())["response"]["patch"]) for each in answers] == [True] * 50
        assert webhook.counted() == {"held": 50}
        release.set()
        await asyncio.gather(*waiting)
