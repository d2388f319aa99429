from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.errors import InvalidFileError
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.pod import pod_of
from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.model.rule_outcomes import SCHEDULER
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.policy import PolicySet, load_policies
from engine.policy.schema import Mode
from engine.view import ClusterState, PodSumProfile
from tests.config_map import MountedConfigMap
from tests.patience import PATIENCE_SECONDS
from webhook.background import on_change
from webhook.placement.live_policies import LivePolicies, PolicyCounts
from webhook.placement.placer import Placer
from webhook.placement.policy_files import PolicyResources

RAW = b'{"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}'

WATCHING = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: watching}
spec:
  mode: Audit
  filters:
    - name: second-zone
      expression: "node.labels['topology.kubernetes.io/zone'] == 'zone-2'"
      message: another zone
"""


@pytest.fixture
def loaded(state: ClusterState, policies: Path) -> PolicySet:
    (policies / "watching.yaml").write_text(WATCHING)
    policy_set = load_policies([policies])
    state.track_sums(policy_set.sum_profiles)
    return policy_set


def place(state: ClusterState, counts: PolicyCounts, policies: PolicySet, namespace: str) -> None:
    placer = Placer(view=state.view, now=lambda: Micros(0), scope=Scope())
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace=namespace)
    counts.count(placer.place(PlacementRequest(pod=pod, raw=RAW), policies), policies)


def seen(counts: PolicyCounts, policies: PolicySet) -> dict[tuple[str, str, str], int]:
    """Return the decisions that there were."""
    return {key: count for key, count in counts.decisions(policies).items() if count}


def test_each_policy_that_takes_part_is_counted_with_its_mode_and_the_outcome(
    state: ClusterState, loaded: PolicySet
) -> None:
    counts = PolicyCounts()
    place(state, counts, loaded, "shop")
    place(state, counts, loaded, "closed")
    assert seen(counts, loaded) == {
        ("balance-limits", "Enforce", "placed"): 1,
        ("balance-limits", "Enforce", "denied"): 1,  # with `closed`, all of whose filters apply
        ("closed", "Enforce", "denied"): 1,
        ("watching", "Audit", "placed"): 2,
    }
    # All 3 nodes in `closed`; of those in both zones, the 2 of the first one, twice.
    assert counts.rejections(loaded) == {
        ("closed", "Enforce", "nobody"): 3,
        ("watching", "Audit", "second-zone"): 4,
    }


def test_a_decision_that_is_not_encoded_is_counted_the_same(
    state: ClusterState, loaded: PolicySet
) -> None:
    # The first zone's 2 nodes are rejected.
    counts = PolicyCounts()
    placer = Placer(view=state.view, now=lambda: Micros(0), scope=Scope())
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace="shop")
    decision, _ = placer.decide(PlacementRequest(pod=pod, raw=RAW), loaded)
    counts.count_release(decision, decision.verdict, loaded)
    assert seen(counts, loaded) == {
        ("balance-limits", "Enforce", "placed"): 1,
        ("watching", "Audit", "placed"): 1,
    }
    assert counts.rejections(loaded)["watching", "Audit", "second-zone"] == 2


def test_what_is_in_force_starts_at_nothing_and_what_is_not_is_forgotten(
    state: ClusterState, loaded: PolicySet
) -> None:
    counts = PolicyCounts()
    assert len(counts.decisions(loaded)) == 3 * 3  # policies, outcomes
    place(state, counts, loaded, "shop")
    audited = loaded.in_audit_mode()
    assert seen(counts, audited) == {("watching", "Audit", "placed"): 1}
    assert {mode for _, mode, _ in counts.decisions(audited)} == {"Audit"}
    assert seen(counts, PolicySet()) == {}
    assert counts.rejections(PolicySet()) == {}


def test_the_time_of_rules_is_known_of_those_in_force(
    state: ClusterState, loaded: PolicySet
) -> None:
    counts = PolicyCounts()
    placer = Placer(
        view=state.view,
        now=lambda: Micros(0),
        scope=Scope(),
        rule_times=counts.rule_times,
    )
    pod = pod_of(msgspec.json.decode(RAW, type=api.Pod), namespace="closed")
    for _ in range(2):
        counts.count(placer.place(PlacementRequest(pod=pod, raw=RAW), loaded), loaded)
    evaluations = counts.rule_evaluations(loaded)
    assert evaluations["closed", "nobody"] == 2
    # Twice by policies in Enforce mode, twice by the one in Audit mode.
    assert evaluations[SCHEDULER, "NodeResourcesFit"] == 4
    assert evaluations[SCHEDULER, "NodePorts"] == 0  # does not concern the pod
    assert counts.rule_seconds(loaded)["closed", "nobody"] > 0
    assert {policy for policy, _ in counts.rule_evaluations(PolicySet())} == {SCHEDULER}


def test_the_rules_of_a_policy_of_a_namespace_are_counted_together(loaded: PolicySet) -> None:
    policy = next(each for each in loaded if each.name == "closed")
    of_tenant = PolicySet([replace(policy, name="team/closed")])
    counts = PolicyCounts()
    counts.rule_evaluations(of_tenant)
    for rule in policy.filters:
        counts.rule_times.note("team/closed", rule.name, 0)
    assert counts.rule_evaluations(of_tenant)["team/closed", ""] == len(policy.filters)


POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: NAME}
spec: {scores: [{plugin: PLUGIN}]}
"""


def text_of(name: str, plugin: str = "LimitAware") -> str:
    return POLICY.replace("NAME", name).replace("PLUGIN", plugin)


def write(path: Path, name: str, plugin: str = "LimitAware") -> None:
    path.write_text(text_of(name, plugin))


def names(live: LivePolicies) -> list[str]:
    return [policy.name for policy in live.current.policies]


def ignore(_: Iterable[PodSumProfile]) -> None:
    """Track nothing."""


async def test_changed_files_come_into_force(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    assert names(live) == ["one"]
    write(path, "two")
    assert await live.reload()
    assert names(live) == ["two"]


async def test_a_bad_change_keeps_the_last_good_policies_and_is_told_until_it_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    write(path, "two", plugin="LimitAwar")
    assert not await live.reload()
    assert names(live) == ["one"]
    assert "LimitAwar" in live.last_error
    assert "LimitAwar" in caplog.text
    write(path, "two")
    assert await live.reload()
    assert live.last_error == ""


def test_a_bad_start_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one", plugin="LimitAwar")
    with pytest.raises(InvalidFileError, match="LimitAwar"):
        LivePolicies([path], track=ignore)


async def test_the_view_keeps_the_sums_of_new_policies_before_they_come_into_force(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    tracked: list[tuple[list[str], int]] = []

    def track(profiles: Iterable[PodSumProfile]) -> None:
        in_force = names(live) if tracked else []
        tracked.append((in_force, len(list(profiles))))

    live = LivePolicies([path], track=track)
    write(path, "two", plugin="LoadAware")
    await live.reload()
    # Kept beside those of the old ones while the new ones are warmed up, and alone after that.
    assert tracked == [([], 0), (["one"], 1), (["one"], 1)]


@pytest.mark.usefixtures("files_are_checked_often")
@pytest.mark.parametrize("by_name", [False, True])
async def test_a_config_map_that_changes_comes_into_force_and_the_log_says_what_changed(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    by_name: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    mounted = MountedConfigMap.at(tmp_path / "mount", a=text_of("one"), b=text_of("two"))
    paths = [mounted.mount / f"{name}.yaml" for name in "ab"] if by_name else [mounted.mount]
    live = LivePolicies(paths, track=ignore)
    reloaded: asyncio.Queue[bool] = asyncio.Queue()

    async def reload() -> None:
        reloaded.put_nowait(await live.reload())

    caplog.set_level(logging.INFO)
    watch = asyncio.create_task(on_change(paths, reload))
    await asyncio.sleep(0)
    mounted.swap(a=text_of("one", "LoadAware"), b=text_of("three"))
    assert await reloaded.get()
    assert names(live) == ["one", "three"]
    assert "policies reloaded: added three; removed two; changed one" in caplog.text

    mounted.swap(a=text_of("four", "LoadAwar"), b=text_of("three"))
    assert not await reloaded.get()
    assert names(live) == ["one", "three"]
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)


async def test_files_that_say_the_same_as_before_are_no_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    path.write_text(f"# a remark\n{text_of('one')}")
    assert await live.reload()
    assert "policies reloaded: no change" in caplog.text


async def test_it_is_known_since_when_policies_are_in_force(tmp_path: Path) -> None:
    days = (datetime(2026, 3, day, tzinfo=UTC) for day in range(1, 9))
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore, now=lambda: next(days))
    assert live.loaded_at.day == 1
    write(path, "one", plugin="LimitAwar")
    await live.reload()
    assert live.loaded_at.day == 1
    write(path, "two")
    await live.reload()
    assert live.loaded_at.day == 2


async def test_where_an_installation_only_audits_no_policy_acts_now_or_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore, only_audit=True)
    assert [policy.mode for policy in live.current] == [Mode.AUDIT]
    write(path, "two")
    assert await live.reload()
    assert [policy.mode for policy in live.current] == [Mode.AUDIT]


async def test_the_digest_is_the_same_for_the_same_policies_and_for_no_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    live = LivePolicies([path], track=ignore)
    before = live.digest
    path.write_text(f"# a remark\n{text_of('one')}")
    await live.reload()
    assert live.digest == before
    write(path, "one", plugin="LoadAware")
    await live.reload()
    assert live.digest != before


async def test_what_new_policies_need_is_prepared_while_the_old_ones_are_in_force(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    in_force: list[list[str]] = []

    def prepare(_profiles: Iterable[PodSumProfile]) -> Iterator[None]:
        for _ in range(2):
            in_force.append(names(live))
            yield

    live = LivePolicies([path], track=ignore, prepare=prepare)
    write(path, "two")
    assert await live.reload()
    assert in_force == [["one"], ["one"]]
    assert names(live) == ["two"]


async def test_new_policies_are_warmed_up_once_their_sums_are_kept_and_before_they_are_in_force(
    tmp_path: Path,
) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    steps: list[str] = []

    def warm_up(policies: PolicySet) -> Iterator[None]:
        for policy in policies:
            steps.append(f"{policy.name} while {names(live)}")
            yield

    def track(profiles: Iterable[PodSumProfile]) -> None:
        steps.append(f"{len(list(profiles))} kept")

    live = LivePolicies([path], track=track, warm_up=warm_up)
    write(path, "two", plugin="LoadAware")
    assert await live.reload()
    assert steps == ["0 kept", "1 kept", "two while ['one']", "1 kept"]
    await live.warm_up()
    assert steps[-1] == "two while ['two']"


class Nodes:
    """A cluster that is synced, and whose nodes change when told."""

    def __init__(self) -> None:
        self.version = 1
        self.looks: asyncio.Queue[int] = asyncio.Queue()

    async def synced(self) -> None:
        """Return at once."""

    def nodes_version(self) -> int:
        self.looks.put_nowait(self.version)
        return self.version


async def test_caches_are_filled_again_once_for_each_change_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    filled: asyncio.Queue[int] = asyncio.Queue()
    nodes = Nodes()

    def warm_up(policies: PolicySet) -> Iterator[None]:
        assert [policy.name for policy in policies] == ["one"]
        filled.put_nowait(nodes.version)
        yield

    live = LivePolicies([path], track=ignore, warm_up=warm_up)
    following = asyncio.create_task(live.follow_nodes(nodes))
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(3):
            assert await nodes.looks.get() == 1
        assert filled.get_nowait() == 1
        assert filled.empty()  # the nodes had not changed at the second look
        nodes.version = 2
        assert await filled.get() == 2
    following.cancel()


def _resource(name: str, spec: dict[str, Any]) -> PolicyResource:
    return PolicyResource(kind=PolicyKind.CLUSTER, name=name, spec=spec)


async def test_policies_of_files_and_of_the_api_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    resources = PolicyResources()
    live = LivePolicies([path], resources=resources, track=ignore)
    assert not live.is_loaded  # those of the API are not known yet
    resources.set(_resource("two", {"priority": 1}))
    await live.take_up(resources)
    assert live.is_loaded
    assert names(live) == ["two", "one"]
    before = live.digest
    resources.delete(PolicyKind.CLUSTER, "two")
    await live.take_up(resources)
    assert names(live) == ["one"]
    assert live.digest != before


async def test_a_file_takes_a_name_and_gives_it_back(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one")
    resources = PolicyResources()
    resources.set(_resource("one", {"priority": 7}))
    live = LivePolicies([path], resources=resources, track=ignore)
    await live.take_up(resources)
    assert [policy.priority for policy in live.current] == [0]
    assert [each.acceptance for each in live.standings] == ["NameTaken"]
    write(path, "other")
    assert await live.reload()
    assert {policy.name: policy.priority for policy in live.current} == {"one": 7, "other": 0}
    assert [each.acceptance for each in live.standings] == ["Accepted"]


async def test_a_broken_file_leaves_policies_of_the_api_alone(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    write(path, "one", plugin="LimitAwar")
    resources = PolicyResources()
    resources.set(_resource("two", {}))
    live = LivePolicies([path], resources=resources, track=ignore, may_start_empty=True)
    await live.take_up(resources)
    assert names(live) == ["two"]
    assert not live.is_loaded
    write(path, "one")
    assert await live.reload()
    assert live.is_loaded
    assert names(live) == ["one", "two"]


async def test_nothing_is_replaced_where_nothing_has_changed(tmp_path: Path) -> None:
    resources = PolicyResources()
    resources.set(_resource("two", {}))
    live = LivePolicies([tmp_path], resources=resources, track=ignore)
    await live.take_up(resources)
    before = live.current
    resources.set(_resource("broken", {"mode": "?"}))
    await live.take_up(resources)
    assert live.current is before  # decisions that pods of a template share stay valid


async def test_policies_of_the_api_are_kept_in_audit_mode_like_those_of_files(
    tmp_path: Path,
) -> None:
    resources = PolicyResources()
    resources.set(_resource("two", {}))
    live = LivePolicies([tmp_path], resources=resources, track=ignore)
    await live.take_up(resources)
    (policy,) = live.current
    live.keep_in_audit({"two": policy.digest.hex()})
    assert [each.mode for each in live.current] == [Mode.AUDIT]
    resources.set(_resource("two", {"priority": 1}))
    await live.take_up(resources)
    assert [each.mode for each in live.current] == [Mode.ENFORCE]


async def test_what_the_policies_of_a_namespace_cost_leaves_out_the_one_of_a_name(
    tmp_path: Path,
) -> None:
    resources = PolicyResources()
    kind = PolicyKind.NAMESPACED
    spec = {"filters": [{"plugin": "LimitAware"}]}
    for namespace, name in (("shop", "a"), ("shop", "b"), ("bank", "c")):
        resources.set(PolicyResource(kind=kind, namespace=namespace, name=name, spec=spec))
    live = LivePolicies([tmp_path], resources=resources, track=ignore)
    await live.take_up(resources)
    # A plugin is 150, and a rule 30.
    assert live.cost_of_others("shop", "new") == 2 * 180
    assert live.cost_of_others("shop", "b") == 180
    assert live.cost_of_others("home", "a") == 0
