"""Random pods, and random events of random clusters, for plugins that read the same objects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, TypeAlias

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from engine.model import api
from engine.model.decision import Advice
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import THROUGHPUT_ANNOTATION, NodeDisks, NodeZones
from engine.model.usage import AggregatedUsage, PodUsage
from engine.plugins.limit_aware import LIMIT_TO_ALLOCATABLE
from engine.plugins.load_aware.estimation import RAW_ALLOCATABLE
from engine.plugins.load_aware.plugin import USAGE_THRESHOLDS
from engine.view import ClusterState
from tests.builders import node_from
from tests.engine import measured_cluster, topology_cluster
from tests.engine.measured_cluster import GI, NOW, report, seconds_ago
from tests.engine.topology_cluster import app_group, disks, network, zones

Event: TypeAlias = Callable[[ClusterState], object]
"""A call of a method of the state."""

GPU = "x.com/gpu"
P95 = {"usageThresholds": {"cpu": 40}, "usageAggregationType": "p95"}


@dataclass(frozen=True)
class RandomCluster:
    """A cluster of the nodes n0 to n2 at first.

    Attributes:
        start: its objects.
        incoming: pods to place.
        events: changes of it, also of a node n3.
    """

    start: tuple[Event, ...]
    incoming: SearchStrategy[Pod]
    events: SearchStrategy[list[Event]]

    def state(self) -> ClusterState:
        """Return the cluster as it is at first."""
        state = ClusterState()
        for event in self.start:
            event(state)
        return state


def _calls(method: str, *args: SearchStrategy[Any], **keywords: Any) -> SearchStrategy[Event]:  # noqa: ANN401 (of any method)
    """Return calls of a method of the state."""
    return st.builds(lambda *drawn: methodcaller(method, *drawn, **keywords), *args)


def _optional(**values: list[Any]) -> SearchStrategy[dict[str, Any]]:
    sampled = {name: st.sampled_from(choices) for name, choices in values.items()}
    return st.fixed_dictionaries({}, optional=sampled)


_nodes = st.integers(0, 3).map("n{}".format)
_pods = st.integers(0, 4).map("p{}".format)
_no_node = _calls("delete_node", _nodes)
_no_pod = _calls("delete_pod", _pods.map("default/{}".format))
_amounts = _optional(
    cpu=["1", "1500m", "0", "4"], memory=["1Gi", "300Mi"], **{GPU: ["0", "1", "2"]}
)


# Nodes with labels, taints and images, and pods that ask for them.

_IMAGES = [
    {"names": names, "sizeBytes": mib << 20}
    for names, mib in [
        (["a:latest", "a@sha256:1"], 500),
        (["a:latest"], 700),
        (["b:v1"], 900),
        (["b:v1", "b:v1"], 20),
        (None, 5),
    ]
]
_TAINT = _optional(
    key=["gpu", "drain"],
    value=["", "yes", "ü"],
    effect=["NoSchedule", "NoExecute", "PreferNoSchedule"],
)


def _labelled_node(
    metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any]
) -> object:
    return node_from({"metadata": metadata, "spec": spec, "status": status})


_labelled_nodes = st.builds(
    _labelled_node,
    st.fixed_dictionaries(
        {
            "name": _nodes,
            "labels": _optional(
                zone=["a", "c", "3", ""],
                gen=["a", "c", "3", ""],
                cost=["1", "2.7", "-3e2", "1e300", "x", ""],
            ),
            "annotations": _optional(born=["2023-01-02T03:04:05Z", "2031-01-01T00:00:00+02:00"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "unschedulable": st.booleans(),
            "taints": st.lists(
                _TAINT.map(lambda taint: {"key": "gpu", "effect": "NoSchedule", **taint}),
                max_size=2,
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "allocatable": st.builds(
                lambda pods, amounts: {**amounts, "pods": pods}, st.integers(0, 3), _amounts
            ),
            "images": st.lists(st.sampled_from(_IMAGES), max_size=3),
        }
    ),
)
_terms = st.builds(
    lambda key, operator, names: {
        "matchExpressions": [
            {"key": key, "operator": operator, "values": ["a"] if "In" in operator else ["1"]}
        ],
        "matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [name]} for name in names
        ],
    },
    st.sampled_from(["zone", "gen"]),
    st.sampled_from(["In", "NotIn", "Gt", "Exists"]),
    st.lists(st.sampled_from(["n1", "n2"]), max_size=1),
)
_affinities = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(_terms, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.fixed_dictionaries({"weight": st.integers(0, 100), "preference": _terms}),
            max_size=2,
        ),
    },
)
_containers = st.lists(
    st.builds(
        lambda image, requests, ports: {
            "image": image,
            "resources": {"requests": requests},
            "ports": [{"hostPort": port} for port in ports],
        },
        st.sampled_from(["a", "a@sha256:1", "b:v1", "c", ""]),
        _amounts,
        st.lists(st.integers(80, 81), max_size=1),
    ),
    max_size=3,
)
_of_pods = {
    "topologyKey": st.sampled_from(["zone", "gen", "absent"]),
    "labelSelector": st.sampled_from(
        [{}, {"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}]
    ),
}
_pod_terms = st.builds(
    lambda required, preferred: {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1 + i, "podAffinityTerm": term} for i, term in enumerate(preferred)
        ],
    },
    st.lists(st.fixed_dictionaries(_of_pods), max_size=1),
    st.lists(st.fixed_dictionaries(_of_pods), max_size=2),
)
_constraints = st.lists(
    st.fixed_dictionaries(
        {
            **_of_pods,
            "maxSkew": st.integers(1, 2),
            "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        }
    ),
    max_size=1,
)
_apps = st.sampled_from(["a", "b", "c"])
_tolerations = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["gpu", ""]),
            "operator": st.just("Exists"),
            "effect": st.sampled_from(["", "NoSchedule"]),
        }
    ),
    max_size=1,
)


def _labelled_pod(
    name: str, spec: dict[str, Any], app: str, nominated: str = "", *, deleting: bool = False
) -> Pod:
    wire = {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
    made = pod_of(msgspec.convert(wire, api.Pod), namespace="default")
    return msgspec.structs.replace(made, deleting=deleting, nominated_node_name=nominated)


LABELLED = RandomCluster(
    tuple(
        methodcaller(
            "set_node",
            _labelled_node(
                {
                    "name": f"n{i}",
                    "labels": {"zone": "a", "gen": str(i), "cost": str(i)},
                    "annotations": {"born": f"2026-01-0{i + 1}T00:00:00Z"},
                },
                {},
                {
                    "allocatable": {"cpu": str(2 + i), "memory": "2Gi", GPU: "2", "pods": "3"},
                    "images": _IMAGES[i:],
                },
            ),
        )
        for i in range(3)
    ),
    st.builds(
        _labelled_pod,
        st.just("incoming"),
        st.fixed_dictionaries(
            {
                "containers": _containers,
                "nodeSelector": _optional(zone=["a", "c"], gen=["a", "3"]),
                "affinity": st.fixed_dictionaries(
                    {
                        "nodeAffinity": _affinities,
                        "podAffinity": _pod_terms,
                        "podAntiAffinity": _pod_terms,
                    }
                ),
                "tolerations": _tolerations,
                "topologySpreadConstraints": _constraints,
            }
        ),
        _apps,
        st.just("") | _nodes,
    ),
    st.lists(
        _calls("set_node", _labelled_nodes)
        | _no_node
        | _calls(
            "set_pod",
            st.builds(
                _labelled_pod,
                _pods,
                st.fixed_dictionaries(
                    {
                        "nodeName": st.just("") | _nodes,
                        "containers": _containers,
                        "affinity": st.fixed_dictionaries({"podAntiAffinity": _pod_terms}),
                    }
                ),
                _apps,
                st.just("") | _nodes,
                deleting=st.booleans(),
            ),
            seen_at=NOW,
        )
        | _no_pod,
        min_size=1,
        max_size=12,
    ),
)


# Nodes with usage reports and annotations, and pods with limits.

_measured_annotations = _optional(
    **{
        LIMIT_TO_ALLOCATABLE: ["{}", "{", '{"cpu":"90%"}', f'{{"{GPU}":"?"}}'],
        RAW_ALLOCATABLE: ["{", '{"cpu":"2"}'],
        USAGE_THRESHOLDS: [
            "{",
            '{"usageThresholds":{"cpu":10}}',
            '{"prodUsageThresholds":{"memory":20}}',
            json.dumps({"aggregatedUsage": P95 | {"usageAggregatedDuration": "5m"}}),
        ],
    }
)
_priorities = st.sampled_from([{}, {"koordinator.sh/priority-class": "koord-batch"}])
_reports = st.builds(
    lambda on, cpu, age, usage, prod, windows, history: report(
        on,
        None if cpu is None else {"cpu": cpu, "memory": GI},
        age=age,
        pods={"p0": PodUsage({"cpu": usage}, prod)},
        aggregated=windows,
        system_usage={"cpu": 100},
        average=history,
        deviation={name: amount // 8 for name, amount in history.items()},
    ),
    _nodes,
    st.none() | st.integers(0, 5000),
    st.none() | st.integers(0, 200),
    st.integers(0, 2000),
    st.booleans(),
    st.sampled_from([(), (AggregatedUsage(300 * 10**9, {"p95": {"cpu": 900}}),)]),
    st.sampled_from([{}, {"cpu": 3000, "memory": 5 * GI}, {"memory": GI}]),
)

MEASURED = RandomCluster(
    tuple(
        methodcaller(
            "set_node", measured_cluster.node(f"n{i}", cpu="4", memory="8Gi", **{GPU: "2"})
        )
        for i in range(3)
    ),
    st.builds(
        lambda requests, limits, labels: measured_cluster.pod(
            requests=requests, limits=limits, metadata={"labels": labels}
        ),
        _amounts,
        _amounts,
        _priorities,
    ),
    st.lists(
        _calls(
            "set_node",
            st.builds(
                lambda name, annotations, amounts: measured_cluster.node(
                    name, annotations, **amounts
                ),
                _nodes,
                _measured_annotations,
                _amounts,
            ),
        )
        | _no_node
        | _calls(
            "set_pod",
            st.builds(
                lambda name, on, limits, labels: measured_cluster.pod(
                    name, on, limits=limits, metadata={"labels": labels}
                ),
                _pods,
                _nodes,
                _amounts,
                _priorities,
            ),
            seen_at=seconds_ago(100),
        )
        | _calls("set_usage", _reports),
        min_size=1,
        max_size=10,
    ),
)


# Nodes with zones, disks and a place in the network.

_zone_amounts = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["1", "3", "1500m"]), "memory": st.sampled_from(["1Gi", "300Mi"])},
    optional={GPU: st.sampled_from(["0", "1"])},
)
_workloads = st.sampled_from(["", "front", "cart"])
_topology_pods = st.builds(
    lambda containers, init, workload, guaranteed, annotations: topology_cluster.pod(
        *containers,
        init=init,
        workload=workload,
        is_guaranteed=guaranteed,
        annotations=annotations,
    ),
    st.lists(_zone_amounts, min_size=1, max_size=2),
    st.lists(_zone_amounts, max_size=1),
    _workloads,
    st.booleans(),
    st.sampled_from(
        [{}, {THROUGHPUT_ANNOTATION: '{"rbps":"30","wbps":"20"}'}, {THROUGHPUT_ANNOTATION: "?"}]
    ),
)
_extras = st.one_of(
    st.builds(
        lambda name, parts, scope, policy: zones(name, *parts, scope=scope, policy=policy),
        _nodes,
        st.lists(_zone_amounts, max_size=3),
        st.sampled_from(["pod", "container"]),
        st.sampled_from(["single-numa-node", "none"]),
    ),
    st.builds(
        lambda name, left: disks(name, *left),
        _nodes,
        st.lists(st.tuples(*[st.sampled_from([0, 40, 100])] * 3), max_size=3),
    ),
    st.builds(lambda most: app_group("shop", front={"cart": most}), st.integers(0, 50)),
    st.builds(
        lambda far, near: network({("west", "east"): far}, {("1", "2"): near}),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
)

TOPOLOGY = RandomCluster(
    (
        *(
            methodcaller(
                "set_node",
                topology_cluster.node(f"n{i}", region="west", zone=str(i), **{GPU: "2"}),
            )
            for i in range(3)
        ),
        *(
            methodcaller("set_extra", extra)
            for extra in (
                app_group("shop", front={"cart": 10}),
                network({("west", "east"): 20}, {("1", "2"): 5}),
                zones("n0", {"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi", GPU: "1"}),
                disks("n1", (100, 50, 50)),
            )
        ),
    ),
    _topology_pods,
    st.lists(
        _calls(
            "set_node",
            st.builds(
                lambda name, region, zone: topology_cluster.node(
                    name, region=region, zone=zone, **{GPU: "2"}
                ),
                _nodes,
                st.sampled_from(["", "west", "east"]),
                st.sampled_from(["", "1", "2"]),
            ),
        )
        | _no_node
        | _calls("set_extra", _extras)
        | _calls("delete_extra", st.sampled_from([NodeZones, NodeDisks]), _nodes)
        | _calls(
            "set_pod",
            st.builds(
                lambda name, on, workload: topology_cluster.pod(
                    name=name, on=on, workload=workload
                ),
                _pods,
                _nodes,
                _workloads,
            ),
            seen_at=NOW,
        )
        | _no_pod
        | _calls(
            "assume",
            _topology_pods,
            _nodes.map(lambda name: Advice(nodes=(name,), id=name)),
            at=NOW,
        ),
        min_size=1,
        max_size=10,
    ),
)
