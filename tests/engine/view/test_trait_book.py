from __future__ import annotations

from typing import Any

import pytest

from engine.model.pod_traits import traits_of
from engine.view.trait_book import TraitBook
from tests.engine.measured_cluster import pod

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
