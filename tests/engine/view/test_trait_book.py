from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.disruption_budget import DisruptionBudget
from engine.model.node import Node
from engine.model.pod import Pod, traits_of
from engine.model.selectors import LabelSelector, Operator, Requirement
from engine.view import ClusterState, ClusterView, pods_not_evictable
from engine.view.trait_book import TraitBook, with_number, without_number
from tests.engine.measured_cluster import NOW, by_node, pod

SELECTORS: list[tuple[dict[str, Any], bool]] = [
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["c"]}]}, False),
    ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["a"]}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
    ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ({"matchLabels": {"app": "b", "tier": "x"}}, False),
    ({}, True),
]
WHERE: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"namespaces": ["default", "other"]}, True),
    ({"namespaces": ["other"]}, False),
    ({"namespaceSelector": {}}, True),
    ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, True),
    ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, False),
    ({"namespaces": [f"n{number}" for number in range(99)] + ["default"]}, True),
]


@pytest.mark.parametrize(("selector", "selects"), SELECTORS)
@pytest.mark.parametrize(("where", "is_there"), WHERE)
def test_the_terms_against_a_pod_are_found(
    selector: dict[str, Any], where: dict[str, Any], *, selects: bool, is_there: bool
) -> None:
    term = {"topologyKey": "zone", "labelSelector": selector, **where}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    avoiding = pod("avoiding", "n", affinity={"podAntiAffinity": required})
    book = TraitBook()
    number = book.number(traits_of(avoiding))
    found = book.anti_affinity.against("default", {"app": "b"}, {"team": "red"})
    assert bool(found) is (selects and is_there)
    assert book.repelling(found).tolist() == [False, bool(found)]
    assert number == 1


_NUMBERS = st.lists(st.sampled_from([0, 1, 255, 256, 257, 65_536, 65_537, 2**24]), min_size=1)


@given(_NUMBERS, st.data())
def test_numbers_that_were_added_can_be_taken_out_one_by_one(
    numbers: list[int], data: st.DataObject
) -> None:
    text = b""
    for number in numbers:
        text = with_number(text, number)
    for count, number in enumerate(data.draw(st.permutations(numbers)), 1):
        text = without_number(text, number)
        assert len(text) == 4 * (len(numbers) - count)
    assert text == b""


@given(_NUMBERS, st.data())
def test_only_the_number_that_is_meant_goes(numbers: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(numbers))
    text = b"".join(with_number(b"", number) for number in numbers)
    left = np.frombuffer(without_number(text, gone), np.int32).tolist()
    assert Counter(left) == Counter(numbers) - Counter([gone])


def test_a_number_may_be_added_several_times() -> None:
    assert np.frombuffer(with_number(b"", 7, 3), np.int32).tolist() == [7, 7, 7]
    assert with_number(b"", 7, 0) == b""


KEPT = {"karpenter.sh/do-not-disrupt": "true"}
OWNED = [{"kind": "ReplicaSet"}]
POOL = {"karpenter.sh/nodepool": "default"}


def of(
    app: str, name: str, on: str, *, owned: bool = True, kept: bool = False, ends: str = ""
) -> Pod:
    metadata = {
        "labels": {"app": app},
        "ownerReferences": OWNED if owned else [],
        "annotations": KEPT if kept else {},
    }
    if ends:
        metadata["deletionTimestamp"] = ends
    return pod(name, on, metadata=metadata)


def budget(app: str, allowed: int, namespace: str = "default", name: str = "") -> DisruptionBudget:
    requirement = Requirement("app", Operator.IN, frozenset((app,)))
    return DisruptionBudget(
        namespace=namespace,
        name=name or app,
        selector=LabelSelector((requirement,)),
        disruptions_allowed=allowed,
    )


def cluster(pods: Sequence[Pod]) -> ClusterState:
    state = ClusterState()
    state.set_node(Node(name="ours", labels={}, allocatable={}))
    state.set_node(Node(name="karpenter", labels=POOL, allocatable={}))
    for each in pods:
        state.set_pod(each, seen_at=NOW)
    return state


def counts(view: ClusterView) -> dict[str, int]:
    return {name: int(count) for name, count in by_node(view, pods_not_evictable(view)).items()}


def test_each_node_counts_the_pods_that_its_own_autoscaler_does_not_evict() -> None:
    # Without an owner: Cluster Autoscaler alone keeps it. Kept: Karpenter alone.
    pods = [
        of("web", f"{kind}-{on}", on, owned=kind != "alone", kept=kind == "kept")
        for on in ("ours", "karpenter")
        for kind in ("alone", "kept", "free")
    ]
    pods.append(of("web", "second-alone", "ours", owned=False))
    pods.append(of("web", "going", "ours", owned=False, ends="2026-01-01T00:00:00Z"))
    assert counts(cluster(pods).view()) == {"ours": 2, "karpenter": 1}


def test_a_budget_that_allows_nobody_counts_until_it_allows_one() -> None:
    state = cluster([of("web", "a", "ours"), of("web", "b", "karpenter"), of("db", "c", "ours")])
    assert counts(state.view()) == {"ours": 0, "karpenter": 0}
    state.set_extra(budget("web", 0))
    held = state.view()
    assert counts(held) == {"ours": 1, "karpenter": 1}
    # Another kind of pod comes; a second budget for the same pods; one of another namespace.
    state.set_pod(of("web", "d", "ours", kept=True), seen_at=NOW)
    state.set_extra(budget("web", 0, name="again"))
    state.set_extra(budget("db", 0, namespace="other"))
    assert counts(state.view()) == {"ours": 2, "karpenter": 1}
    state.set_extra(budget("web", 1))
    assert counts(state.view()) == {"ours": 2, "karpenter": 1}
    state.delete_extra(DisruptionBudget, "default/again")
    assert counts(state.view()) == {"ours": 0, "karpenter": 0}
    assert counts(held) == {"ours": 1, "karpenter": 1}  # what was known stays as it was


def test_budgets_beyond_a_thousand_are_not_heeded() -> None:
    state = cluster([of("app-999", "a", "ours"), of("app-1000", "b", "karpenter")])
    for number in range(1_001):
        state.set_extra(budget(f"app-{number}", 0))
    assert counts(state.view()) == {"ours": 1, "karpenter": 0}
    state.set_extra(budget("app-0", 5))
    state.set_extra(budget("app-1000", 0))
    assert counts(state.view()) == {"ours": 1, "karpenter": 1}


_EVENTS = st.lists(
    st.tuples(st.sampled_from(("pod", "gone", "budget", "none")), st.integers(0, 5), st.booleans()),
    max_size=25,
)


@given(_EVENTS)
def test_counts_kept_up_to_date_are_those_of_a_fresh_start(
    events: list[tuple[str, int, bool]],
) -> None:
    state, pods, budgets = cluster([]), dict[str, Pod](), dict[str, DisruptionBudget]()
    views = []
    for kind, number, flag in events:
        app, name = f"app-{number % 3}", f"pod-{number}"
        match kind:
            case "pod":
                new = of(
                    app, name, ("ours", "karpenter")[flag], owned=number != 4, kept=number == 5
                )
                pods[new.key] = new
                state.set_pod(new, seen_at=NOW)
            case "gone":
                pods.pop(f"default/{name}", None)
                state.delete_pod(f"default/{name}")
            case "budget":
                one = budget(app, int(flag))
                budgets[one.key] = one
                state.set_extra(one)
            case _:
                budgets.pop(f"default/{app}", None)
                state.delete_extra(DisruptionBudget, f"default/{app}")
        fresh = cluster([*pods.values()])
        for one in budgets.values():
            fresh.set_extra(one)
        views.append((state.view(), counts(fresh.view())))
        assert counts(views[-1][0]) == views[-1][1]
    for view, expected in views[-3:]:
        assert counts(view) == expected
