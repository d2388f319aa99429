from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.disruption_budget import DisruptionBudget, disruption_budget_of


def budget(**spec: object) -> DisruptionBudget:
    wire = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": spec,
        "status": {"disruptionsAllowed": 1, "currentHealthy": 3},
    }
    return disruption_budget_of(msgspec.convert(wire, api.PodDisruptionBudget))


def test_it_protects_the_pods_that_it_selects_in_its_namespace() -> None:
    found = budget(selector={"matchLabels": {"app": "web"}})
    assert found.key == "shop/web"
    assert found.disruptions_allowed == 1
    assert found.selects("shop", {"app": "web", "tier": "1"})
    assert not found.selects("shop", {"app": "db"})
    assert not found.selects("mail", {"app": "web"})


def test_an_empty_selector_selects_all_and_none_at_all_nothing() -> None:
    assert budget(selector={}).selects("shop", {})
    assert not budget().selects("shop", {})


def test_a_selector_that_cannot_be_read_is_an_error() -> None:
    wrong = {"matchExpressions": [{"key": "app", "operator": "Like", "values": ["web"]}]}
    with pytest.raises(ValueError, match=r"spec\.selector\.matchExpressions\[0\]"):
        budget(selector=wrong)
