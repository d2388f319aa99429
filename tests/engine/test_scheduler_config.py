from __future__ import annotations

import json
import re
from textwrap import dedent, indent
from typing import Any

import pytest

from engine.errors import InvalidFileError
from engine.plugins import PLUGINS
from engine.policy import CompiledPolicy, load_policies
from engine.scheduler_config import (
    DEFAULT_WEIGHTS,
    FILTER,
    GROUP,
    SCORE,
    UNUSED_ARGS,
    PluginSet,
    enabled_at,
    imported_policies,
)
from tests.engine.plugins.plugin_args import args_of

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


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
KOORDINATOR = """
- schedulerName: koord-scheduler
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      usageThresholds: {cpu: 60, memory: 90}
      estimator: default
  - name: ElasticQuota
    args: {quotaGroupNamespace: koordinator-system}
  plugins:
    filter: {enabled: [{name: LoadAwareScheduling}, {name: Reservation}]}
    score:
      disabled: [{name: "*"}]
      enabled: [{name: LoadAwareScheduling, weight: 3}, {name: Reservation, weight: 5000}]
    permit: {enabled: [{name: Coscheduling}]}
    preFilter: {enabled: [{name: ElasticQuota}]}
"""
TRIMARAN = """
- schedulerName: trimaran
  pluginConfig:
  - name: TargetLoadPacking
    args: {targetUtilization: 50, watcherAddress: http://watcher:2020}
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins:
    multiPoint: {enabled: [{name: TargetLoadPacking, weight: 400}]}
    score: {disabled: [{name: ImageLocality}, {name: TaintToleration}]}
"""


def configuration(profiles: str) -> str:
    return f"{HEAD}profiles:\n{indent(profiles.strip(), '  ')}\n"


def imported(text: str, name: str = "") -> tuple[str, list[CompiledPolicy]]:
    """Return the text, and the policies that it holds."""
    made = imported_policies(text.encode(), "scheduler.yaml", name=name).text
    return made, list(load_policies((), {"made.yaml": made.encode()}))


def rules(policy: CompiledPolicy) -> tuple[list[str], dict[str, int]]:
    filters = [rule.name for rule in policy.filters]
    return filters, {rule.name: rule.weight for rule in policy.scores}


def test_a_profile_of_koordinator_becomes_a_policy_with_its_args() -> None:
    text, (policy,) = imported(configuration(KOORDINATOR))
    assert policy.name == "koord-scheduler"
    assert rules(policy) == (["LoadAware"], {"LoadAware": 3})
    assert policy.filters[0].thresholds[0].percent == 60
    assert "# Accepted and not used: estimator." in text
    assert "kind: LoadAwareSchedulingArgs" not in text


def test_comments_say_what_a_policy_cannot() -> None:
    text, _ = imported(configuration(KOORDINATOR))
    comments = [line.removeprefix("# - ") for line in text.splitlines() if line.startswith("# - ")]
    assert comments == [
        "`Reservation`: no counterpart",
        "`Coscheduling`: gangs are held and released together, see docs/gangs.md",
        "`ElasticQuota`: Koordinator's quotas are kept at admission, see docs/elastic-quota.md",
    ]


def test_what_is_said_for_all_profiles_is_a_note_on_each() -> None:
    text, _ = imported(
        f"percentageOfNodesToScore: 30\nextenders: [{{}}]\n{configuration(TRIMARAN)}"
    )
    assert "by `stowplan serve --percentage-of-nodes-to-score 30`\n" in text
    assert "# - 1 `extenders`: no counterpart\n" in text


def test_scores_of_the_scheduler_itself_keep_their_part_of_the_sum() -> None:
    text, (policy,) = imported(configuration(TRIMARAN))
    # 400 becomes 100, 2 and 1 become a quarter of that, and at least 1.
    assert rules(policy) == (
        [],
        {
            "NodeResourcesFit": 1,
            "TargetLoadPacking": 100,
            "NodeAffinity": 1,
            "PodTopologySpread": 1,
            "InterPodAffinity": 1,
            "NodeResourcesBalancedAllocation": 1,
        },
    )
    assert "type: MostAllocated" in text
    assert "# - weights are scaled to at most 100" in text


def test_several_profiles_are_policies_for_the_pods_of_each() -> None:
    text, policies = imported(configuration(KOORDINATOR + TRIMARAN + "- {}\n"))
    assert [policy.name for policy in policies] == [
        "default-scheduler",
        "koord-scheduler",
        "trimaran",
    ]
    assert text.count("name: scheduler\n") == 3
    assert 'pod.schedulerName in [\\"\\", \\"default-scheduler\\"]' in text


@pytest.mark.parametrize("entry", ["{name: a, args: {}}", "[{name: a, args: {}}]"])
@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_a_lone_entry_is_every_rule_that_its_plugin_has(name: str, entry: str) -> None:
    text = entry.replace("name: a", f"name: {name}")
    text = text.replace("{}", json.dumps(args_of(name)))
    plugin = PLUGINS[name]
    if plugin.score is None and name in DEFAULT_WEIGHTS:
        with pytest.raises(InvalidFileError, match="is neither a filter nor a score of a policy"):
            imported(text)
        return
    _, (policy,) = imported(text)
    filters, weights = rules(policy)
    assert filters == [name] * (plugin.filter is not None and name not in DEFAULT_WEIGHTS)
    assert list(weights) == [name] * (plugin.score is not None)


def test_a_profile_alone_and_one_in_a_config_map_are_read_too() -> None:
    whole, _ = imported(configuration(KOORDINATOR))
    alone, _ = imported(dedent(KOORDINATOR.replace("- schedulerName", "  schedulerName")))
    assert alone == whole
    inner = indent(configuration(KOORDINATOR), "    ")
    held, _ = imported(
        f"apiVersion: v1\nkind: ConfigMap\ndata:\n  other: x\n  config.yaml: |\n{inner}"
    )
    assert held.splitlines()[2:] == whole.splitlines()[2:]
    assert "in `scheduler.yaml: config.yaml`" in held


def test_the_name_may_be_given() -> None:
    assert imported(configuration(KOORDINATOR), name="ours")[1][0].name == "ours"
    both = imported(configuration(KOORDINATOR + TRIMARAN), name="ours")[1]
    assert [policy.name for policy in both] == ["ours-koord-scheduler", "ours-trimaran"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            configuration(KOORDINATOR.replace("cpu: 60", "cpu: 0.6")),
            r"scheduler.yaml:10:\d+: expected a whole number of percent",
        ),
        (
            f"{HEAD.replace('/v1', '/v1beta4')}profiles: []\n",
            "scheduler.yaml:1:13: `kubescheduler.config.k8s.io/v1beta4` is not known",
        ),
        ("kind: Deployment", "scheduler.yaml:1:7: expected a KubeSchedulerConfiguration, .* not"),
        ("{args: {}}", "scheduler.yaml:1:1: expected a KubeSchedulerConfiguration"),
        ("profiles: 3", "scheduler.yaml:1:11: expected a list"),
        ("{name: Coscheduling}", "hint: gangs are held and released together"),
        ("", "scheduler.yaml: expected a KubeSchedulerConfiguration"),
    ],
)
def test_a_mistake_has_its_place_in_the_configuration(text: str, message: str) -> None:
    with pytest.raises(InvalidFileError, match=message):
        imported(text)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        # The line of `cpu: 0.6` in the configuration is 10, and 5 stand before it here.
        (
            "  config.yaml: |\n{}",
            r"scheduler.yaml:15:\d+: expected a whole number of percent",
        ),
        ("  config.yaml: |\n\n{}\n  other: x", r"scheduler.yaml:16:\d+: expected a whole"),
        ("  config.yaml: &text |\n{}", r"scheduler.yaml:15:\d+: expected a whole"),
    ],
)
def test_a_mistake_in_a_config_map_has_its_place_in_the_file(held: str, message: str) -> None:
    inner = indent(configuration(KOORDINATOR.replace("cpu: 60", "cpu: 0.6")), "    ")
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: scheduler}\ndata:\n"
    with pytest.raises(InvalidFileError, match=message) as raised:
        imported(head + held.format(inner))
    assert "cpu: 0.6" in str(raised.value)


def test_a_config_map_that_is_json_has_the_places_of_its_one_line() -> None:
    inner = configuration(KOORDINATOR.replace("cpu: 60", "cpu: 0.6"))
    text = json.dumps({"kind": "ConfigMap", "data": {"config.yaml": inner}})
    column = text.index("0.6") + 1
    with pytest.raises(InvalidFileError, match=f"scheduler.yaml:1:{column}: expected a whole"):
        imported(text)


def test_what_is_no_yaml_in_a_config_map_has_its_place_in_the_file() -> None:
    inner = "    kind: KubeSchedulerConfiguration\n    a: [1, 2\n    b: 3\n"
    text = f"kind: ConfigMap\ndata:\n  config.yaml: |\n{inner}"
    with pytest.raises(InvalidFileError, match=r"scheduler.yaml:6:6: not YAML.* on line 5"):
        imported(text)


PACKING = """
- plugins:
    score:
      disabled: [{name: NodeResourcesLeastAllocated}]
      enabled:
      - {name: NodeResourcesMostAllocated, weight: 5}
      - {name: RequestedToCapacityRatio, weight: 2}
  pluginConfig:
  - name: NodeResourcesMostAllocated
    args: {resources: [{name: cpu, weight: 3}]}
  - name: RequestedToCapacityRatio
    args: {shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]}
  - name: NodeResourcesFit
    args: {ignoredResources: [x.com/y]}
"""


@pytest.mark.parametrize("version", ["v1beta1", "v1"])  # the latter by whoever only renamed it
def test_a_packing_profile_of_v1beta1_packs(version: str) -> None:
    text, (policy,) = imported(configuration(PACKING).replace("/v1\n", f"/{version}\n"))
    # The weights of v1beta1: 1 each; NodeResourcesFit was no score, LeastAllocated is disabled.
    assert rules(policy)[1] == {
        "NodeResourcesMostAllocated": 5,
        "RequestedToCapacityRatio": 2,
        "TaintToleration": 1,
        "NodeAffinity": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 1,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert "type: MostAllocated" in text
    assert "{name: cpu, weight: 3}" in text


@pytest.mark.parametrize(
    ("version", "fit", "taints", "affinity", "pods"),
    [
        ("v1beta1", "NodeResourcesLeastAllocated", 1, 1, 1),
        ("v1beta2", "NodeResourcesFit", 1, 1, 1),
        ("v1beta3", "NodeResourcesFit", 3, 2, 2),
        ("v1", "NodeResourcesFit", 3, 2, 2),
    ],
)
def test_a_profile_has_the_defaults_of_its_version(
    version: str, fit: str, taints: int, affinity: int, pods: int
) -> None:
    _, (policy,) = imported(f"apiVersion: {GROUP}/{version}\nprofiles: [{{}}]\n")
    assert rules(policy)[1] == {
        fit: 1,
        "TaintToleration": taints,
        "NodeAffinity": affinity,
        "InterPodAffinity": pods,
        "PodTopologySpread": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


def test_a_mistake_in_args_of_an_old_name_has_its_place() -> None:
    wrong = PACKING.replace("weight: 3", "weight: 101")
    made = imported_policies(configuration(wrong).encode(), "scheduler.yaml")
    (problem,) = made.problems
    assert str(problem).startswith("scheduler.yaml:12:46: ")
    assert "not in valid range (0, 100]" in str(problem)


@pytest.mark.parametrize(
    ("profile", "name", "message"),
    [
        # Peaks has no model: upstream reads one from a file that its environment names.
        (
            TRIMARAN.replace("{name: TargetLoadPacking, weight: 400}", "{name: Peaks}"),
            "Peaks",
            r"scheduler.yaml:11:30: missing key `nodePowerModel`",
        ),
        (
            TRIMARAN.replace("targetUtilization", "targetUtilisation"),
            "TargetLoadPacking",
            r"scheduler.yaml:7:\d+: unknown key `targetUtilisation`",
        ),
    ],
)
def test_a_plugin_whose_args_have_mistakes_is_left_out_alone(
    profile: str, name: str, message: str
) -> None:
    made = imported_policies(configuration(profile).encode(), "scheduler.yaml")
    assert re.match(message, str(made.problems[0]))
    assert f"# - `{name}`: its args have mistakes" in made.text
    (policy,) = load_policies((), {"made.yaml": made.text.encode()})
    assert {"NodeAffinity", "NodeResourcesFit"} <= rules(policy)[1].keys()
    assert name not in rules(policy)[1]


def test_nothing_of_a_file_ends_a_comment() -> None:
    hostile = (
        '{plugins: {permit: {enabled: [{name: "x\\nspec: 1"}]}}, schedulerName: "a\\nkind: b"}'
    )
    text, (policy,) = imported(hostile)
    assert policy.name == "a-kind-b"
    assert "\nspec: 1" not in text
    assert "\nkind: b" not in text


def test_what_is_called_unused_is_an_arg() -> None:
    for name, args in UNUSED_ARGS.items():
        known = {field.alias for field in PLUGINS[name].args.model_fields.values()}
        assert set(args) <= known
