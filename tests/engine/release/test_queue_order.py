from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.gang import GangKey
from engine.model import api
from engine.model.gang import POD_GROUP_LABEL, pod_group_of
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import APP_GROUP_LABEL, WORKLOAD_LABEL, AppGroup, app_group_of
from engine.release import QUEUE_SORTS, QueueFacts, QueueOrder, QueueSortName
from engine.view import ClusterState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine.view import ClusterView

_START = datetime(2026, 1, 1, tzinfo=UTC)
_RESOURCES = {
    "BestEffort": {},
    "Burstable": {"requests": {"cpu": "100m"}},
    "Guaranteed": {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    },
}
SORTS: tuple[QueueSortName, ...] = get_args(QueueSortName)


@dataclass(frozen=True, kw_only=True)
class Queued:
    """What the order of a pod depends on."""

    priority: int = 0
    second: int = 0
    qos: str = "BestEffort"
    group: str = ""
    workload: str = ""


queued = st.builds(
    Queued,
    priority=st.integers(-1, 2),
    second=st.integers(0, 3),
    qos=st.sampled_from(sorted(_RESOURCES)),
    group=st.sampled_from(("", "shop", "mail", "unknown")),
    workload=st.sampled_from(("", "a", "b", "c", "z")),
)


def _pods(entries: Iterable[Queued]) -> list[Pod]:
    return [_pod(entry, f"{i:03}") for i, entry in enumerate(entries)]


def _pod(entry: Queued, uid: str) -> Pod:
    labels = {APP_GROUP_LABEL: entry.group, WORKLOAD_LABEL: entry.workload} if entry.group else {}
    written = {
        "metadata": {
            "name": f"pod-{uid}",
            "uid": uid,
            "labels": labels,
            "creationTimestamp": _START + timedelta(seconds=entry.second),
        },
        "spec": {
            "priority": entry.priority,
            "containers": [{"name": "c", "resources": _RESOURCES[entry.qos]}],
        },
    }
    return pod_of(msgspec.convert(written, api.Pod), namespace="default")


def _cluster() -> ClusterState:
    state = ClusterState()
    for name, indexes in {"shop": {"a": 3, "b": 2, "c": 1}, "mail": {"a": 1, "b": 2}}.items():
        order = [
            {"workload": {"selector": selector}, "index": index}
            for selector, index in indexes.items()
        ]
        written = {
            "metadata": {"name": name, "namespace": "default"},
            "status": {"topologyOrder": order},
        }
        state.set_extra(app_group_of(msgspec.convert(written, api.AppGroup)))
    return state


_VIEW = _cluster().view()


def _sorted(pods: Sequence[Pod], sort: QueueSortName) -> list[Pod]:
    return QueueOrder(sort=sort).sorted(pods, _VIEW, pod_of=lambda pod: pod)


def _uids(entries: Iterable[Queued], sort: QueueSortName) -> list[int]:
    return [int(pod.uid) for pod in _sorted(_pods(entries), sort)]


@pytest.mark.parametrize("sort", SORTS)
@given(entries=st.lists(queued, max_size=12), seed=st.integers())
def test_the_order_is_total_so_it_does_not_depend_on_how_pods_were_seen(
    sort: QueueSortName, entries: list[Queued], seed: int
) -> None:
    pods = _pods(entries)
    ordered = _sorted(pods, sort)
    assert sorted(pod.uid for pod in ordered) == [pod.uid for pod in pods]
    Random(seed).shuffle(pods)
    assert _sorted(pods, sort) == ordered


@pytest.mark.parametrize("sort", SORTS)
@given(entries=st.lists(queued, min_size=2, max_size=12))
def test_priority_always_counts_first(sort: QueueSortName, entries: list[Queued]) -> None:
    priorities = [pod.priority for pod in _sorted(_pods(entries), sort)]
    assert priorities == sorted(priorities, reverse=True)


@pytest.mark.parametrize("sort", ["PrioritySort", "QOSSort", "Coscheduling"])
@given(entries=st.lists(queued, max_size=12))
def test_a_pod_that_upstream_puts_before_another_is_before_it(
    sort: QueueSortName, entries: list[Queued]
) -> None:
    less = QUEUE_SORTS[sort](QueueFacts()).less
    for first, second in itertools.combinations(_sorted(_pods(entries), sort), 2):
        assert not less(second, first)


@given(entries=st.lists(queued, max_size=12))
def test_pods_of_one_app_group_and_priority_are_in_upstreams_order(entries: list[Queued]) -> None:
    indexes = {"a": 3, "b": 2, "c": 1}
    ordered = _sorted(_pods(entries), "TopologicalSort")
    for _, members in itertools.groupby(ordered, key=lambda pod: pod.priority):
        at = [
            (place, indexes.get(pod.shape.workload[1], -1))
            for place, pod in enumerate(members)
            if pod.shape.workload and pod.shape.workload[0] == "shop"
        ]
        assert [index for _, index in at] == sorted(index for _, index in at)
        assert [place for place, _ in at] == list(range(at[0][0], at[-1][0] + 1)) if at else True


@given(entries=st.lists(queued, max_size=12))
def test_without_app_groups_topological_sort_is_priority_sort(entries: list[Queued]) -> None:
    pods = _pods(Queued(priority=e.priority, second=e.second, group="unknown") for e in entries)
    assert _sorted(pods, "TopologicalSort") == _sorted(pods, "PrioritySort")


def test_upstreams_circle_of_an_app_group_and_a_pod_between_is_cut() -> None:
    a = Queued(second=1, group="shop", workload="a")
    between = Queued(second=2)
    c = Queued(second=3, group="shop", workload="c")
    # The group stands where its oldest pod, a, would stand: before the pod between. In it c goes
    # first (index 1), then a (index 3).
    assert _uids([a, between, c], "TopologicalSort") == [2, 0, 1]
    facts = QueueFacts(app_group=lambda name: _VIEW.lookup(AppGroup, f"default/{name}"))
    less = QUEUE_SORTS["TopologicalSort"](facts).less
    first, second, third = _pods([a, between, c])
    assert less(first, second)
    assert less(second, third)
    assert less(third, first)


def test_a_guaranteed_pod_goes_before_an_older_one_of_another_class_but_not_of_a_priority() -> None:
    entries = [
        Queued(second=0, qos="BestEffort"),
        Queued(second=1, qos="Burstable"),
        Queued(second=2, qos="Guaranteed"),
        Queued(second=3, priority=1),
    ]
    assert _uids(entries, "QOSSort") == [3, 2, 1, 0]
    assert _uids(entries, "PrioritySort") == [3, 0, 1, 2]


def test_of_pods_alike_in_all_else_the_uid_tells() -> None:
    first, second = _pods([Queued(), Queued()])
    for sort in SORTS:
        assert _sorted([second, first], sort) == [first, second]


def test_app_groups_are_found_in_the_namespaces_given() -> None:
    pods = _pods([Queued(group="shop", workload="a"), Queued(group="shop", workload="c")])
    elsewhere = QueueOrder(sort="TopologicalSort", app_group_namespaces=("other",))
    both = QueueOrder(sort="TopologicalSort", app_group_namespaces=("other", "default"))
    assert elsewhere.sorted(pods, _VIEW, pod_of=lambda pod: pod) == pods
    assert both.sorted(pods, _VIEW, pod_of=lambda pod: pod) == pods[::-1]


def _gang_pod(name: str, second: int, pod_group: str = "") -> Pod:
    written = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {POD_GROUP_LABEL: pod_group} if pod_group else {},
            "creationTimestamp": _START + timedelta(seconds=second),
        }
    }
    return pod_of(msgspec.convert(written, api.Pod))


def _gangs(**seconds: int) -> ClusterView:
    state = ClusterState()
    for name, second in seconds.items():
        written = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "creationTimestamp": _START + timedelta(seconds=second),
            },
            "spec": {"minMember": 2},
        }
        state.set_extra(pod_group_of(msgspec.convert(written, api.PodGroup)))
    return state.view()


def _names(pods: Sequence[Pod], view: ClusterView, failed: Mapping[GangKey, datetime]) -> list[str]:
    order = QueueOrder(sort="Coscheduling")
    return [pod.name for pod in order.sorted(pods, view, pod_of=lambda pod: pod, failed_at=failed)]


def test_coscheduling_puts_members_where_their_gang_is_however_late_they_came() -> None:
    pods = [_gang_pod("a", 5), _gang_pod("b", 9, "train"), _gang_pod("c", 4, "missing")]
    assert _names(pods, _gangs(train=3), {}) == ["b", "c", "a"]


def test_coscheduling_puts_a_gang_that_failed_behind_those_that_waited_meanwhile() -> None:
    pods = [_gang_pod("a", 5), _gang_pod("b", 9, "train"), _gang_pod("c", 8)]
    failed = {GangKey("default", "train"): _START + timedelta(seconds=7)}
    assert _names(pods, _gangs(train=3), failed) == ["a", "b", "c"]
