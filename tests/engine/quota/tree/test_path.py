from __future__ import annotations

from dataclasses import replace

import msgspec

from engine.model import api
from engine.model.koordinator_quota import NAME_LABEL, TreeSettings
from engine.model.pod import Pod, pod_of
from engine.model.time import Micros
from engine.quota import RESOURCE_QUOTA_RULES
from engine.quota.tree import QuotaPaths
from engine.view import ClusterState
from tests.engine.quota.tree.quotas import quota


def _pod(namespace: str, name: str, cpu: str, label: str) -> Pod:
    metadata = {"namespace": namespace, "name": name, "labels": {NAME_LABEL: label}}
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    return pod_of(msgspec.convert({"metadata": metadata, "spec": spec}, api.Pod))


def _state() -> ClusterState:
    state = ClusterState()
    for each in (
        quota("top", most={"cpu": 6000}, tree=TreeSettings(is_parent=True)),
        quota("batch", "top", most={"cpu": 5000}),
        quota("team", "top", most={"cpu": 4000}, namespace="team"),
    ):
        state.set_quota(each)
    return state


def test_a_pod_is_compared_with_the_quota_of_its_label_and_all_above() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    state.set_pod(_pod("shop", "a", "3", "batch"), seen_at=Micros(0))
    view = state.view()
    assert paths.judge(view, "shop", "batch", {"cpu": 2000}, 0.0, dry_run=True).allowed
    over = paths.judge(view, "shop", "batch", {"cpu": 2001}, 0.0)
    assert over.exceeded == ("batch",)
    both = paths.judge(view, "shop", "batch", {"cpu": 3001}, 0.0)
    assert both.exceeded == ("batch", "top")
    # What waits is compared with what could ever be free.
    assert paths.judge_queued(view, "shop", "batch", {"cpu": 5000}, 0.0).allowed
    assert not paths.judge_queued(view, "shop", "batch", {"cpu": 5001}, 0.0).allowed


def test_pods_that_were_admitted_a_moment_ago_count_before_they_are_seen() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    view = state.view()
    admitted = [paths.judge(view, "shop", "batch", {"cpu": 2000}, now / 100) for now in range(3)]
    assert [verdict.allowed for verdict in admitted] == [True, True, False]
    assert paths.judge(view, "shop", "batch", {"cpu": 2000}, 1.0).allowed  # they never came


def test_only_so_many_pods_wait_for_a_quota_of_the_tree() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    few = replace(quota("batch", "top", most={"cpu": 5000}), max_queued=2)
    state.set_quota(few)
    view = state.view()
    waits = [paths.judge_queued(view, "shop", "batch", {"cpu": 1}, 0.0) for _ in range(3)]
    assert [verdict.allowed for verdict in waits] == [True, True, False]
    expected = "too many pods wait for quota: batch, waiting: 2, limited: 2"
    assert waits[2].message == expected


def test_the_quota_of_a_namespace_is_left_to_its_reservations_those_above_are_not() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    state.set_pod(_pod("shop", "a", "3", "batch"), seen_at=Micros(0))
    view = state.view()
    assert [each.name for each in paths.quotas_of(view, "team", "")] == ["top"]
    assert paths.judge(view, "team", "", {"cpu": 4500}, 0.0).exceeded == ("top",)
    assert paths.judge(view, "elsewhere", "", {"cpu": 9000}, 0.0).allowed


def test_a_changed_quota_counts_at_once_and_a_reservation_changes_nothing() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    tree = paths.tree(state.view())
    batch = quota("batch", "top", most={"cpu": 5000})
    state.set_quota(replace(batch, version=7, reservations="{}"))
    assert paths.tree(state.view()) is tree
    state.set_quota(replace(batch, version=8, max={"cpu": 1000}))
    assert not paths.judge(state.view(), "shop", "batch", {"cpu": 1001}, 0.0).allowed
