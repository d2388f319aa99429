"""What each formula is told to have been given, on one node that has something of everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.kinds import AuxObject
from engine.model.node import node_of
from engine.model.pod import Pod
from engine.model.rule_outcomes import RuleInput, RuleInputs, Unit
from engine.model.scheduler_plugins import THROUGHPUT_ANNOTATION
from engine.plugins import PLUGINS, Cycle, Plugin
from engine.view import ClusterState, ClusterView
from tests.engine import topology_cluster
from tests.engine.explainers import described
from tests.engine.measured_cluster import GI, NOW, cluster, node, pod, report
from tests.engine.plugins.plugin_args import args_of
from tests.engine.topology_cluster import app_group, disks, network, zones

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
SPREAD = {
    "topologyKey": "zone",
    "maxSkew": 2,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    "nodeAffinityPolicy": "Ignore",
}
INCOMING = pod(
    limits={"cpu": "2"},
    requests={"cpu": "1", "memory": "1Gi"},
    nodeSelector=SELECTOR,
    topologySpreadConstraints=[SPREAD],
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
    (
        "PodTopologySpread",
        {},
        "filter",
        {"pods in zone=z1": "2 of 3, 1 of it this pod", "fewest in a domain": "1"},
    ),
    ("NodeMetadata", METADATA, "score", {"label cost": "3"}),
    ("ImageLocality", {}, "score", {"shop:v1": "512 MiB, on 50% of nodes"}),
    ("NodeResourcesAllocatable", {}, "score", {"cpu": "8 cores", "memory": "16 GiB"}),
    ("NodeResourcesFit", {}, "filter", {"pods requests": "2 of 110", **CPU_REQUESTS}),
    ("NodeResourcesFit", {}, "score", CPU_REQUESTS),
    ("NodeResourcesBalancedAllocation", {}, "score", CPU_REQUESTS),
]


def inputs_of(name: str, args: Mapping[str, Any], side: str) -> RuleInputs:
    """Return what one side of a plugin was given for the node."""
    plugin = PLUGINS[name]
    read = plugin.args.model_validate(args)
    build = plugin.filter if side == "filter" else plugin.score
    assert build is not None
    view = _view(plugin.sum_profiles(read))
    return build(read).inputs(Cycle(INCOMING, view, NOW), view.rows["a"])


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


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_can_say_what_it_was_given(name: str) -> None:
    for side in ("filter", "score"):
        if getattr(PLUGINS[name], side) is not None:
            inputs = inputs_of(name, args_of(name), side)
            assert all(value.name and value.describe() for value in inputs)
            assert msgspec.json.decode(msgspec.json.encode(inputs), type=RuleInputs) == inputs


# Inputs from zones, networks and disks.


def _inputs(
    plugin: Plugin, incoming: Pod, *extras: AuxObject
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the inputs of the filter and of the score on a node with these objects."""
    assert plugin.filter
    assert plugin.score
    args = plugin.args()
    state = ClusterState()
    state.track_sums(tuple(plugin.sum_profiles(args)))
    state.set_node(topology_cluster.node("n0", region="west"))
    for extra in extras:
        state.set_extra(extra)
    peer = topology_cluster.pod(name="peer", on="n0", workload="cart")
    state.set_pod(peer, seen_at=NOW)
    view = state.view()
    return (
        described(plugin.filter(args).inputs(Cycle(incoming, view, NOW), 0)),
        described(plugin.score(args).inputs(Cycle(incoming, view, NOW), 0)),
    )


def test_zones_explain_themselves_to_pods_that_they_concern() -> None:
    plugin = PLUGINS["NodeResourceTopologyMatch"]
    known = zones("n0", {"cpu": "4", "memory": "8Gi", topology_cluster.GPU: "1"}, {"cpu": "1500m"})
    words = {
        "topology manager": "single-numa-node, scope container",
        "asked for": "cpu 2 cores, memory 1 GiB; cpu 1 core",
        "zone 0 has left": "cpu 4 cores, memory 8 GiB",
        "zone 1 has left": "cpu 1.5 cores",
    }
    incoming = topology_cluster.pod(
        {"cpu": "2", "memory": "1Gi"}, {"cpu": "1"}, is_guaranteed=False
    )
    assert _inputs(plugin, incoming, known) == (words, {})
    assert _inputs(plugin, topology_cluster.pod({}), known) == ({}, {})
    guaranteed = topology_cluster.pod({"cpu": "2", "memory": "1Gi"})
    assert _inputs(plugin, guaranteed) == ({"zones": "not known"}, {"zones": "not known"})
    in_all = _inputs(plugin, guaranteed, zones("n0", {}, scope="pod"))[0]
    assert in_all["zone 0 has left"] == "none"


def test_a_network_explains_itself_to_pods_of_an_app_group() -> None:
    plugin, known = PLUGINS["NetworkOverhead"], (app_group("shop", front={"cart": 1}), network())
    place = {"region": "west", "zone": "none"}
    assert _inputs(plugin, topology_cluster.pod(workload="front"), *known) == (
        place | {"satisfied": "1", "violated": "0"},
        place | {"cost": "0"},
    )
    assert _inputs(plugin, topology_cluster.pod(), *known) == ({}, {})


def test_disks_explain_themselves_to_pods_that_use_them() -> None:
    plugin = PLUGINS["DiskIOAware"]
    asked = {"asked for": "total 3 KiB/s, read 1 KiB/s, write 2 KiB/s"}
    incoming = topology_cluster.pod(
        annotations={THROUGHPUT_ANNOTATION: '{"rbps":"1Ki","wbps":"2Ki"}'}
    )
    left = {"disk 0": "total 8 KiB/s, read 4 KiB/s, write 5 KiB/s"}
    known = disks("n0", (8192, 4096, 5120))
    assert _inputs(plugin, incoming, known) == (asked | left, asked | left)
    assert _inputs(plugin, incoming) == (
        asked | {"disks": "not known"},
        asked | {"disks": "not known"},
    )
    assert _inputs(plugin, topology_cluster.pod(), known) == ({}, {})
