"""What each formula is told to have been given, on one node that has something of everything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.node import node_of
from engine.model.rule_input import RuleInput, RuleInputs, Unit
from engine.plugins import PLUGINS
from engine.view import ClusterView
from tests.engine.explainers import described
from tests.engine.measured_cluster import GI, NOW, cluster, node, pod, report

NODE = node_of(
    msgspec.convert(
        {
            "metadata": {"name": "a", "labels": {"zone": "z1", "cost": "3"}},
            "spec": {
                "unschedulable": True,
                "taints": [
                    {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
                    {"key": "old", "effect": "PreferNoSchedule"},
                ],
            },
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "capacity": {"cpu": "8", "memory": "16Gi"},
                "images": [{"names": ["shop:v1"], "sizeBytes": GI // 2}],
            },
        },
        api.Node,
    )
)
SELECTOR = {"zone": "z1", "rack": "r1"}
INCOMING = pod(
    limits={"cpu": "2"},
    requests={"cpu": "1", "memory": "1Gi"},
    nodeSelector=SELECTOR,
    containers=[
        {
            "image": "shop:v1",
            "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        }
    ],
)
METADATA = {
    "metadataKey": "cost",
    "metadataSource": "Label",
    "metadataType": "Number",
    "scoringStrategy": "Lowest",
}
POWER = {"nodePowerModel": {"a": {"k0": 100, "k1": 0.5, "k2": 0.01}}}
CPU_REQUESTS = {"cpu requests": "4 of 8 cores", "memory requests": "3 of 16 GiB"}
REPORT = {"report": "20 s old"}
SENTENCES: list[tuple[str, dict[str, Any], str, dict[str, str]]] = [
    # The pods of the node have limits of 8 cores, the pod 2; their ratio of 150 % allows 12.
    (
        "LimitAware",
        {"defaultLimitToAllocatableRatio": {"cpu": "150%"}},
        "filter",
        {"cpu limits": "10 of 12 cores"},
    ),
    (
        "ResourceLimitAware",
        {"resources": [{"name": "cpu"}]},
        "score",
        {"cpu limits": "10 of 8 cores"},
    ),
    # Measured are 4 cores and 4 GiB. The report does not know the other pod:
    # 85 % of its limit, 6.8 cores, and 70 % of its request, 1.4 GiB, are added. Of the incoming one
    # that is 1.7 cores and 0.7 GiB.
    (
        "LoadAware",
        {},
        "filter",
        {
            "cpu usage": "12.5 of 8 cores, 1.7 cores of it this pod, 65 % allowed",
            "memory usage": "6.1 of 16 GiB, 716.8 MiB of it this pod, 95 % allowed",
            **REPORT,
        },
    ),
    (
        "LoadVariationRiskBalancing",
        {},
        "score",
        {
            "cpu load": "4 of 8 cores, deviation 0.5 cores",
            "memory load": "4 of 16 GiB",
            **REPORT,
            "cpu of this pod": "1 core",
            "memory of this pod": "1 GiB",
        },
    ),
    (
        "LowRiskOverCommitment",
        {},
        "score",
        {
            **CPU_REQUESTS,
            "cpu limits": "10 of 8 cores",
            "memory limits": "3 of 16 GiB",
            "cpu load": "4 of 8 cores, deviation 0.5 cores",
            "memory load": "4 of 16 GiB",
            **REPORT,
        },
    ),
    (
        "TargetLoadPacking",
        {},
        "score",
        {
            "cpu measured": "4 of 8 cores",
            "new pods": "0 cores",
            "this pod": "2 cores",
            "target": "40 %",
            **REPORT,
        },
    ),
    (
        "Peaks",
        POWER,
        "score",
        {
            "cpu measured": "4 of 8 cores",
            "this pod": "1 core",
            "power": "100 + 0.5 * e^(0.01 * x)",
            **REPORT,
        },
    ),
    ("NodeUnschedulable", {}, "filter", {"cordoned": "yes"}),
    ("TaintToleration", {}, "filter", {"taints": "gpu=yes:NoSchedule"}),
    ("TaintToleration", {}, "score", {"taints": "old=:PreferNoSchedule"}),
    ("NodeAffinity", {}, "filter", {"label rack": "absent", "label zone": "z1"}),
    ("PodState", {}, "score", {"pods that leave": "0", "pods to come": "0"}),
    ("NodeMetadata", METADATA, "score", {"label cost": "3"}),
    ("ImageLocality", {}, "score", {"shop:v1": "512 MiB, on 50% of nodes"}),
    ("NodeResourcesAllocatable", {}, "score", {"cpu": "8 cores", "memory": "16 GiB"}),
    ("NodeResourcesFit", {}, "filter", {"pods requests": "2 of 110", **CPU_REQUESTS}),
    ("NodeResourcesFit", {}, "score", CPU_REQUESTS),
    ("NodeResourcesBalancedAllocation", {}, "score", CPU_REQUESTS),
]


def inputs_of(name: str, args: dict[str, Any], side: str) -> RuleInputs:
    """Return what one side of a plugin was given for the node."""
    plugin = PLUGINS[name]
    read = plugin.args.model_validate(args)
    build = plugin.filter if side == "filter" else plugin.score
    assert build is not None
    view = _view(plugin.load_profiles(read))
    return build(read).inputs(INCOMING, view, view.rows["a"], NOW)


def _view(profiles: Any) -> ClusterView:  # noqa: ANN401 - as a plugin names them
    other = pod("other", "a", limits={"cpu": "8"}, requests={"cpu": "3", "memory": "2Gi"})
    load = report(
        "a",
        {"cpu": 4000, "memory": 4 * GI},
        age=20,
        average={"cpu": 4000, "memory": 4 * GI},
        deviation={"cpu": 500},
    )
    # A node before it, so that a row is not what it is in a view of one.
    return cluster([node("0", cpu="1"), NODE], [other], [load], profiles)


@pytest.mark.parametrize(("name", "args", "side", "inputs"), SENTENCES)
def test_a_formula_is_told_with_what_it_was_given(
    name: str, args: dict[str, Any], side: str, inputs: dict[str, str]
) -> None:
    assert described(inputs_of(name, args, side)) == inputs


def test_the_inputs_of_load_aware_are_numbers_in_base_units() -> None:
    cpu, memory, age = inputs_of("LoadAware", {}, "filter")
    assert cpu == RuleInput(
        "cpu usage", 12_500, Unit.MILLICORES, capacity=8000, pod=1700, allowed_percent=65
    )
    assert (memory.unit, memory.capacity, memory.allowed_percent) == (Unit.BYTES, 16 * GI, 95)
    assert age == RuleInput("report", 20, Unit.SECONDS)


NEEDED: dict[str, dict[str, Any]] = {"NodeMetadata": METADATA, "Peaks": POWER}


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_can_say_what_it_was_given(name: str) -> None:
    for side in ("filter", "score"):
        if getattr(PLUGINS[name], side) is not None:
            inputs = inputs_of(name, NEEDED.get(name, {}), side)
            assert all(value.name and value.describe() for value in inputs)
            assert msgspec.json.decode(msgspec.json.encode(inputs), type=RuleInputs) == inputs
