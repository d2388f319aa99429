from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.policy import Mode
from engine.report import OutcomeReport
from tests.webhook.controllers.policy_outcome.worlds import POLICY, World, world
from webhook.controllers.policy_outcome import AuditedPolicies, OutcomeCollector

ADVICE = {"policies": ["prefers-a"], "nodes": ["a"], "candidates": 3}


def config_map(world: World) -> dict[str, Any]:
    return world.server.objects("configmaps")["stowplan-system", "stowplan-outcome"]


def stored_pods(world: World) -> int:
    report = msgspec.json.decode(config_map(world)["data"]["report.json"], type=OutcomeReport)
    return report.policies[0].total.pods


def events(world: World) -> list[str]:
    return [each["message"] for each in world.server.objects("events").values()]


def mode(world: World) -> Mode:
    (policy,) = world.policies.current
    return policy.mode


async def test_a_pod_that_is_decided_at_its_binding_counts_against_the_scheduler_s_choice(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made:
        made.bind("better", "a", "c")
        made.bind("kept", "b", "b")
        (policy,) = (await made.report()).policies
        total = policy.total
        assert (total.pods, total.landed, total.decided, total.moved) == (2, 2, 2, 1)
        assert total.ranks == (1, 1, 0, 0, 0)
        assert (total.mean_points, total.mean_lost, total.mean_gained) == (75, 25, 50)
        assert [each.namespace for each in policy.namespaces] == ["shop"]


async def test_a_pod_that_was_advised_counts_by_whether_that_was_followed(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for name, node in (("follows", "a"), ("does-not", "c")):
            made.show(name, advice=ADVICE)
            made.show(name, node, advice=ADVICE)
        made.show("of-nobody")
        made.show("of-nobody", "a")
        (policy,) = (await made.report()).policies
        total = policy.total
        assert (total.pods, total.landed, total.decided, total.rejected) == (2, 1, 0, 0)
        assert (total.mean_rank, total.mean_points, total.mean_gained) == (None, None, None)


async def test_advice_of_policies_that_are_not_in_force_does_not_count(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        forged = ADVICE | {"policies": ["forged"]}
        made.show("forged", advice=forged)
        made.show("forged", "a", advice=forged)
        assert (await made.report()).policies == ()
        assert not made.controller.counts.figures


async def test_a_pod_that_is_elsewhere_than_was_answered_does_not_count(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.decide("escaped", "a")
        made.show("escaped")
        made.show("escaped", "c")
        assert (await made.report()).policies == ()


async def test_a_pod_counts_once(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.bind("decided", "a")
        made.show("advised", advice=ADVICE)
        for name, advice in (("decided", None), ("advised", ADVICE)):
            made.show(name, "a", advice=advice)
            made.show(name, "a", advice=advice)
        assert (await made.report()).policies[0].total.pods == 2


async def test_advised_pods_that_were_never_seen_waiting_are_not_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.show("old", "a", advice=ADVICE)
        made.show("new", advice=ADVICE)
        made.show("new", "a", uid="of-another", advice=ADVICE)
        made.show("gone", advice=ADVICE)
        made.bound.pod_deleted("shop", "gone")
        made.show("gone", "a", advice=ADVICE)
        assert (await made.report()).policies == ()


async def test_what_is_bound_while_another_replica_leads_is_not_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.controller.end()
        made.bind("theirs", "a")
        await made.controller.begin()
        made.bind("ours", "a")
        assert (await made.report()).policies[0].total.pods == 1


async def test_the_next_leader_goes_on_with_the_figures(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.bind("first", "a")
        await made.report()
        made.bind("second", "b")
        before = await made.report()
        assert stored_pods(made) == 1
        await made.controller.end()
        made.controller = made.leader()
        assert stored_pods(made) == 2  # with its end
        assert (await made.controller.report()) == before  # a replica that does not lead
        await made.controller.begin()
        made.bind("third", "a")
        assert (await made.report()).policies[0].total.pods == 3


async def test_figures_are_stored_once_a_minute_and_only_by_the_leader(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.bind("first", "a")
        await made.report()
        made.bind("second", "a")
        await made.report()
        assert stored_pods(made) == 1
        made.seconds, made.leads = 61.0, False
        await made.report()
        assert stored_pods(made) == 1
        made.seconds, made.leads = 122.0, True
        await made.report()
        assert stored_pods(made) == 2


async def test_a_policy_that_makes_things_worse_is_reported_once(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for number in range(3):
            made.bind(f"p{number}", "c")  # 0 points, the scheduler's node 50
        report = await made.report()
        await made.controller.round()
        assert report.policies[0].worse.startswith("its pods landed on nodes with 50.0 points less")
        assert [text[:46] for text in events(made)] == [
            "policy `prefers-a` makes things worse than the"
        ]
        assert mode(made) is Mode.ENFORCE
        assert metric(made, "stowplan_outcome_policy_worse") == 1


async def test_where_that_is_wanted_it_is_set_to_audit_until_somebody_takes_it_back(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, "Audit") as made:
        for number in range(3):
            made.bind(f"p{number}", "c")
        report = await made.report()
        assert mode(made) is Mode.AUDIT
        assert list(report.audited) == ["prefers-a"]
        assert report.policies == ()  # what it did is forgotten, it acts otherwise now
        assert events(made)[0].startswith("policy `prefers-a` is set to Audit: its pods landed")
        assert metric(made, "stowplan_outcome_policy_audited") == 1

        # another replica follows the Lease
        made.policies.keep_in_audit({})
        AuditedPolicies(made.policies, lambda: made.lease).read()
        assert mode(made) is Mode.AUDIT

        # so does the next leader, by the ConfigMap
        made.policies.keep_in_audit({})
        await made.controller.end()
        made.controller = made.leader()
        await made.controller.begin()
        assert mode(made) is Mode.AUDIT

        # in Audit mode it is compared by what it would have done
        made.bind("later", "b")
        (policy,) = (await made.report()).policies
        total = policy.total
        assert (policy.mode, total.landed, total.moved, total.mean_gained) == ("Audit", 0, 1, 50)

        # somebody takes it back
        taken_back = config_map(made)
        taken_back["data"]["audited.json"] = "{}"
        made.server.replace(taken_back)
        assert (await made.report()).audited == {}
        assert mode(made) is Mode.ENFORCE
        assert made.lease["stowplan.dev/audited-policies"] == "{}"


async def test_a_policy_that_was_changed_is_in_force_again(tmp_path: Path) -> None:
    async with world(tmp_path, "Audit") as made:
        for number in range(3):
            made.bind(f"p{number}", "c")
        await made.report()
        assert mode(made) is Mode.AUDIT
        (tmp_path / "policy.yaml").write_text(POLICY.replace("50", "60"))
        await made.policies.reload()
        assert mode(made) is Mode.ENFORCE


async def test_a_policy_whose_filters_promise_something_is_only_reported(tmp_path: Path) -> None:
    async with world(tmp_path, "Audit") as made:
        promise = "  filters: [{name: linux, expression: \"!('windows' in node.labels)\"}]\n"
        (tmp_path / "policy.yaml").write_text(POLICY + promise)
        await made.policies.reload()
        for number in range(3):
            made.bind(f"p{number}", "c")
        assert (await made.report()).audited == {}
        assert mode(made) is Mode.ENFORCE
        assert len(events(made)) == 1


async def test_without_the_config_map_figures_are_counted_all_the_same(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.leads = False
        made.bind("first", "a")
        assert (await made.report()).policies[0].total.pods == 1


@pytest.mark.parametrize(
    "data", [{"window.json": "["}, {"window.json": '{"steps":[{"start":1}]}', "audited.json": "3"}]
)
async def test_a_config_map_that_cannot_be_read_is_begun_anew(
    tmp_path: Path, data: dict[str, str]
) -> None:
    async with world(tmp_path) as made:
        made.server.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"namespace": "stowplan-system", "name": "stowplan-outcome"},
                "data": data,
            }
        )
        made.controller = made.leader()
        await made.controller.begin()
        made.bind("first", "a")
        assert (await made.report()).policies[0].total.pods == 1


def metric(world: World, name: str) -> float:
    for family in OutcomeCollector(world.controller).collect():
        for sample in family.samples:
            if sample.name == name and sample.labels == {"policy": "prefers-a"}:
                return sample.value
    return 0.0
