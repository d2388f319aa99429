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
    assert paths.judge(view, "shop", "batch", {"cpu": 2000}, alone=False).allowed
    over = paths.judge(view, "shop", "batch", {"cpu": 2001}, alone=False)
    assert over.exceeded == ("batch",)
    both = paths.judge(view, "shop", "batch", {"cpu": 3001}, alone=False)
    assert both.exceeded == ("batch", "top")
    # What waits is compared with what could ever be free.
    assert paths.judge(view, "shop", "batch", {"cpu": 5000}, alone=True).allowed
    assert not paths.judge(view, "shop", "batch", {"cpu": 5001}, alone=True).allowed


def test_the_quota_of_a_namespace_is_left_to_its_reservations_those_above_are_not() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    state.set_pod(_pod("shop", "a", "3", "batch"), seen_at=Micros(0))
    view = state.view()
    assert [each.name for each in paths.quotas_of(view, "team", "")] == ["top"]
    assert paths.judge(view, "team", "", {"cpu": 4500}, alone=False).exceeded == ("top",)
    assert paths.judge(view, "elsewhere", "", {"cpu": 9000}, alone=False).allowed


def test_a_changed_quota_counts_at_once_and_a_reservation_changes_nothing() -> None:
    state, paths = _state(), QuotaPaths(RESOURCE_QUOTA_RULES)
    tree = paths.tree(state.view())
    batch = quota("batch", "top", most={"cpu": 5000})
    state.set_quota(replace(batch, version=7, reservations="{}"))
    assert paths.tree(state.view()) is tree
    state.set_quota(replace(batch, version=8, max={"cpu": 1000}))
    assert not paths.judge(state.view(), "shop", "batch", {"cpu": 1001}, alone=False).allowed
