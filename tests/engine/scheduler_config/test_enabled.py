from __future__ import annotations

from typing import Any

from engine.scheduler_config.configuration import PluginSet
from engine.scheduler_config.enabled import FILTER, SCORE, enabled_at

Points = dict[str, dict[str, list[Any]]]
DEFAULT_SCORES = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


def plugins(points: Points) -> dict[str, PluginSet]:
    return {point: PluginSet.model_validate(changes) for point, changes in points.items()}


def weights(points: Points) -> dict[str, int]:
    return {each.name: each.weight for each in enabled_at(SCORE, plugins(points))}


def test_a_profile_that_changes_nothing_has_the_default_scores() -> None:
    assert weights({}) == DEFAULT_SCORES


def test_a_score_without_a_weight_has_weight_1_also_in_place_of_a_default() -> None:
    found = weights({"score": {"enabled": [{"name": "TaintToleration"}, {"name": "LoadAware"}]}})
    assert found == {**DEFAULT_SCORES, "TaintToleration": 1, "LoadAware": 1}


def test_what_is_switched_off_and_on_again_has_the_new_weight() -> None:
    own: dict[str, list[Any]] = {
        "disabled": [{"name": "*"}],
        "enabled": [{"name": "NodeResourcesFit", "weight": 5}],
    }
    assert weights({"score": own}) == {"NodeResourcesFit": 5}


def test_a_plugin_at_every_point_is_a_filter_and_a_score() -> None:
    everywhere: Points = {"multiPoint": {"enabled": [{"name": "LoadAware", "weight": 7}]}}
    assert weights(everywhere)["LoadAware"] == 7
    assert "LoadAware" in [each.name for each in enabled_at(FILTER, plugins(everywhere))]
    off: Points = {**everywhere, "score": {"disabled": [{"name": "LoadAware"}]}}
    assert weights(off) == DEFAULT_SCORES


def test_the_weight_at_the_point_itself_wins() -> None:
    both: Points = {
        "multiPoint": {"enabled": [{"name": "LoadAware", "weight": 7}]},
        "score": {"enabled": [{"name": "LoadAware", "weight": 2}]},
    }
    assert weights(both)["LoadAware"] == 2


def test_all_defaults_may_be_switched_off_at_every_point() -> None:
    only: Points = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "LoadAware"}]}}
    assert weights(only) == {"LoadAware": 1}
