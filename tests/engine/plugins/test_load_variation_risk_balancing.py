from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import ValidationError

from engine.plugins import Cycle
from engine.plugins.load_variation_risk_balancing import (
    LoadVariationRiskBalancingArgs,
    LoadVariationRiskBalancingScore,
    safety,
    variation,
)
from tests.engine.measured_cluster import GI, NOW, by_node, cluster, node, pod, report

if TYPE_CHECKING:
    from engine.model.usage import NodeUsage


def varying(margin: float, sensitivity: float, percent: float = 36) -> float:
    return float(variation(np.array([100.0]), np.array([percent]), margin, sensitivity)[0])


def scores(the_report: NodeUsage, **args: Any) -> dict[str, int]:  # noqa: ANN401 (any args)
    """Return the score of a node of 10 cores and 10Gi for a pod that requests 1 core."""
    rule = LoadVariationRiskBalancingScore(LoadVariationRiskBalancingArgs.model_validate(args))
    view = cluster([node("a", cpu="10", memory="10Gi")], reports=[the_report])
    scored = rule.score(Cycle(pod(requests={"cpu": "1"}), view, NOW)).values
    return by_node(view, rule.normalize(scored))


def test_the_deviation_is_rooted_then_multiplied_and_bounded() -> None:
    assert varying(1, 1) == pytest.approx(0.36)
    assert varying(1, 2) == pytest.approx(0.6)
    assert varying(2, 2) == 1
    assert varying(0, 1) == 0
    assert varying(1, -1) == pytest.approx(0.36)


def test_without_sensitivity_only_the_greatest_deviation_counts() -> None:
    assert varying(1, 0, percent=99) == 0
    assert varying(1, 0, percent=100) == 1


def test_load_is_bounded_by_what_is_offered_before_the_request_is_added() -> None:
    # (1 - (1 + 0) / 2) * 100, and nothing where nothing is offered
    columns = (np.array([100.0, 0]), np.array([10.0, 10]), np.array([200.0, 200]), np.zeros(2))
    assert safety(*columns).tolist() == [50, 0]


def test_the_riskier_resource_counts() -> None:
    # cpu: mu 0.2 + 0.1, sigma 0.1 -> 80; memory: mu 0.5, sigma 0.2 -> 65
    usage, deviation = {"cpu": 2000, "memory": 5 * GI}, {"cpu": 1000, "memory": 2 * GI}
    assert scores(report("a", usage, deviation=deviation)) == {"a": 65}


def test_a_resource_without_a_metric_has_no_say() -> None:
    assert scores(report("a", {"memory": 5 * GI})) == {"a": 75}
    assert scores(report("a", {"cpu": 2000})) == {"a": 85}
    assert scores(report("a", None)) == {"a": 0}


def test_what_is_negative_counts_as_one() -> None:
    args = LoadVariationRiskBalancingArgs.model_validate(
        {"safeVarianceMargin": -2, "safeVarianceSensitivity": -0.5}
    )
    assert (args.safe_variance_margin, args.safe_variance_sensitivity) == (1, 1)


@pytest.mark.parametrize("value", ["1", float("nan"), float("inf"), True])
def test_a_factor_is_a_number(value: object) -> None:
    with pytest.raises(ValidationError):
        LoadVariationRiskBalancingArgs.model_validate({"safeVarianceMargin": value})
