from __future__ import annotations

from typing import Any

import pytest

from engine.model.pod import Pod
from engine.model.pod_traits import LONGEST_TRAITS, REQUIRED, decoded_traits, traits_of
from tests.engine.measured_cluster import pod

Json = dict[str, Any]


def term(**more: object) -> Json:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, **more}


def preferring(side: str, *weights: int, **more: object) -> Pod:
    terms = [{"weight": weight, "podAffinityTerm": term(**more)} for weight in weights]
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return pod("p", affinity={side: preferred}, metadata={"labels": {"version": "1"}})


@pytest.mark.parametrize(("side", "sign"), [("podAffinity", 1), ("podAntiAffinity", -1)])
def test_preferred_terms_count_for_or_against_a_node(side: str, sign: int) -> None:
    # Weights that the API server refuses, of any size, are left out.
    weights = [1, 100, 0, 101, -1, 2**70]
    found = decoded_traits(traits_of(preferring(side, *weights))).attraction
    assert [each.weight for each in found] == [sign * 1, sign * 100]


def test_a_required_term_of_affinity_makes_a_node_better() -> None:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}
    attracting = pod("p", affinity={"podAffinity": required})
    (found,) = decoded_traits(traits_of(attracting)).attraction
    assert (found.weight, found.pod_affinity_term.topology_key) == (REQUIRED, "zone")


def test_label_keys_of_a_pod_that_is_not_stored_are_in_its_selectors() -> None:
    (found,) = preferring("podAffinity", 5, matchLabelKeys=["version"]).preferred_pod_affinity
    selector = found.pod_affinity_term.label_selector
    assert selector is not None
    assert [each.values for each in selector.match_expressions or ()] == [["1"]]


def test_what_a_pod_prefers_is_left_out_before_all_else() -> None:
    namespaces = [f"namespace-{i}" for i in range(LONGEST_TRAITS // 10)]
    large = preferring("podAffinity", 5, namespaces=namespaces)
    traits = decoded_traits(traits_of(large))
    assert traits.attraction == ()
    assert traits.labels == {"version": "1"}


def test_constraints_of_topology_spread_are_hard_or_soft() -> None:
    constraints = [
        {"topologyKey": when, "maxSkew": 1, "whenUnsatisfiable": when}
        for when in ("DoNotSchedule", "ScheduleAnyway", "Never")
    ]
    found = pod("p", topologySpreadConstraints=constraints)
    assert [each.topology_key for each in found.topology_spread] == ["DoNotSchedule"]
    assert [each.topology_key for each in found.soft_topology_spread] == ["ScheduleAnyway"]
