from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.outcome import PolicyLanding
from engine.policy import Mode
from engine.report import OutcomeReport
from tests.webhook.controllers.outcome.worlds import POLICY, World, world
from webhook.binding import BindingRecord
from webhook.controllers.outcome import AuditedPolicies, OutcomeCollector

ADVICE = {"stowplan.dev/advice": '{"policies":["prefers-a"],"nodes":["a"],"candidates":3}'}


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


async def test_a_bound_pod_is_judged_against_the_ranking_and_the_stock_scheduler(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as made:
        made.bind("as-meant", "a", ADVICE)
        made.bind("elsewhere", "c", ADVICE)
        made.bind("not-meant", "b")
        (policy,) = (await made.report()).policies
        total = policy.total
        assert (total.pods, total.meant, total.landed) == (3, 2, 1)
        assert total.ranks == (1, 2, 0, 0, 0)
        assert (total.mean_points, total.mean_lost) == (50, 50)  # 100, 0 and 50 of 100
        assert (total.compared, total.stock_points, total.moved) == (3, 15_000, 2)
        assert [each.namespace for each in policy.namespaces] == ["shop"]


async def test_a_pod_that_was_decided_at_its_binding_is_not_judged_again(tmp_path: Path) -> None:
    # The model of the scheduler would take `b`, but the scheduler has said `c`: of the landings as
    # they were recorded, 100 points where `c` has 0.
    async with world(tmp_path) as made:
        landing = PolicyLanding(
            policy="prefers-a",
            mode="Enforce",
            rank=1,
            points=10_000,
            best=10_000,
            stock=0,
            moved=True,
        )
        for name, uid in (("decided", "uid-decided"), ("escaped", "uid-escaped")):
            record = BindingRecord(
                uid=uid, node="a", scheduler_node="c", audited_node="", landings=[landing]
            )
            made.decided.put(f"shop/{name}", record)
        made.bind("decided", "a")
        (policy,) = (await made.report()).policies
        assert (policy.total.pods, policy.total.compared, policy.total.moved) == (1, 1, 1)
        assert (policy.total.stock_points, policy.total.meant, policy.total.landed) == (0, 1, 1)
        # One that is elsewhere than was answered is judged as any other: the model takes `b`.
        made.bind("escaped", "c")
        (policy,) = (await made.report()).policies
        assert (policy.total.pods, policy.total.stock_points) == (2, 5_000)


async def test_pods_that_were_never_seen_waiting_are_not_counted(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.show(
            {
                "metadata": {"name": "old", "namespace": "shop", "uid": "1"},
                "spec": {"nodeName": "a"},
            }
        )
        made.show({"metadata": {"name": "new", "namespace": "shop", "uid": "2"}, "spec": {}})
        made.show(
            {
                "metadata": {"name": "new", "namespace": "shop", "uid": "3"},
                "spec": {"nodeName": "a"},
            }
        )
        made.show({"metadata": {"name": "gone", "namespace": "shop", "uid": "4"}, "spec": {}})
        made.applier.delete_pod("shop", "gone")
        assert (await made.report()).policies == ()


async def test_pods_that_no_policy_places_are_not_judged(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for name, spec in (("other", {"schedulerName": "other"}), ("mine", {})):
            meta = {"name": name, "namespace": "shop", "uid": name}
            made.show({"metadata": meta, "spec": spec})
            made.show({"metadata": meta, "spec": {**spec, "nodeName": "a"}})
        (policy,) = (await made.report()).policies
        assert policy.total.pods == 1


async def test_what_comes_too_fast_is_counted_as_not_judged(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        for number in range(300):
            made.bind(f"p{number}", "a")
        report = await made.report()
        assert report.policies[0].total.pods == 256
        assert made.controller.unjudged == 44


async def test_a_leader_that_is_busy_with_others_judges_a_quarter_as_much(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.judgement_seconds = 0.01
        for number in range(120):
            made.bind(f"p{number}", "a")
        before = (await made.report()).policies[0].total.pods
        assert before in {100, 101}  # a second of them at once
        made.seconds += 41.0
        made.processor_seconds += 40.0
        for number in range(120, 180):
            made.bind(f"p{number}", "a")
        # 40 s x 0.005 + 1 s x 0.02 = 0.22 s; all of it idle would be 0.82 s
        pods = (await made.report()).policies[0].total.pods - before
        assert pods in {22, 23}


async def test_judgements_take_a_fiftieth_of_the_time_of_the_leader(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.judgement_seconds = 0.1
        for number in range(20):
            made.bind(f"p{number}", "a")
        report = await made.report()
        # a second of them at once: the tenth uses up the last of it, but for a rounding error
        assert report.policies[0].total.pods in {10, 11}
        assert report.unjudged == 20 - report.policies[0].total.pods
        made.seconds = 50.0  # a second more
        for number in range(20, 40):
            made.bind(f"p{number}", "a")
        assert (await made.report()).policies[0].total.pods in {20, 21, 22}


async def test_the_next_leader_goes_on_with_the_figures(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        made.bind("first", "a", ADVICE)
        await made.report()
        made.bind("second", "b", ADVICE)
        before = await made.report()
        assert stored_pods(made) == 1
        await made.controller.end()
        made.controller = made.leader()
        assert stored_pods(made) == 2  # with its end
        assert (await made.controller.report()) == before  # a replica that does not lead
        await made.controller.begin()
        made.bind("third", "a", ADVICE)
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
            made.bind(f"p{number}", "c")  # 0 points, the model's node 50
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

        # in Audit mode its pods are judged by what it would have done
        made.bind("later", "b")
        (policy,) = (await made.report()).policies
        assert (policy.mode, policy.total.mean_lost, policy.total.compared) == ("Audit", 50, 0)

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
    for family in OutcomeCollector(world.controller, lambda: 0.0).collect():
        for sample in family.samples:
            if sample.name == name and sample.labels == {"policy": "prefers-a"}:
                return sample.value
    return 0.0
