"""Random clusters, policies of every rule that pods change, and pods of a few templates."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import asdict

from engine.batch import BatchOutcome
from engine.model import api
from engine.model.decision import PlacementRequest
from engine.model.hold import HOLD_GATE
from engine.model.kinds import AuxObject
from engine.model.node import Node, node_of
from engine.model.pod import Pod, pod_of
from engine.model.scheduler_plugins import APP_GROUP_LABEL, THROUGHPUT_ANNOTATION, WORKLOAD_LABEL
from engine.model.usage import NodeUsage, PodUsage
from engine.model.well_known import HOSTNAME_LABEL, ZONE_LABEL
from engine.pipeline import Scope, policies_for
from engine.plugins import PLUGINS
from engine.plugins.limit_aware import LIMIT_TO_ALLOCATABLE
from engine.policy import SCHEDULER_POLICY, PolicySet
from engine.policy.schema import Mode
from engine.view import ClusterState
from tests.engine.measured_cluster import GI, NOW, report
from tests.engine.plugins.plugin_args import ARGS
from tests.engine.policy.worlds import Json, policy
from tests.engine.topology_cluster import app_group, disks, network, zones

EXAMPLES = int(os.environ.get("STOWPLAN_TEST_EXAMPLES", "150"))
GPU = "x.com/gpu"


def _of_plugins(side: str) -> list[str]:
    """Return rules of every plugin that has a filter, or a score."""
    return [
        json.dumps({"plugin": name, "args": args})
        for name, plugin in PLUGINS.items()
        for args in ARGS.get(name, [{}])
        if getattr(plugin, side)
    ]


_RULES = {
    "filters": [
        *_of_plugins("filter"),
        "{name: room, expression: node.requested.cpu + pod.requests.cpu < 3.5}",
        "{name: few, expression: node.podCount < 3, onError: IgnoreRule}",
        "{name: load, expression: node.usage.cpu < 2.0, onError: IgnoreRule}",
        "{name: zone, expression: node.labels.zone != 'c'}",
    ],
    "scores": [
        *_of_plugins("score"),
        "{name: few, expression: -node.podCount}",
        "{name: full, expression: 'node.requested.cpu / node.allocatable.cpu'}",
        "{name: idle, expression: 'node.usage.cpu / node.allocatable.cpu', onError: IgnoreRule}",
        f"{{name: gpus, expression: 'node.requested[\"{GPU}\"]', onError: ZeroScore}}",
        "{name: even, expression: 'nodes.map(n, n.podCount).mean() > 1.0 ? -node.podCount : 0'}",
        "{name: own, expression: 'object.metadata.name == \"p1\" ? node.podCount : 0'}",
    ],
}
_MATCHES = (
    "",
    "match: {objectSelector: {matchLabels: {tier: web}}}\n",
    "match: {matchConditions: [{name: c, expression: pod.requests.cpu > 0.0}]}\n",
)
_POLICIES = [
    policy(f"{match}{kind}: [{rule}]\n", f"p{i}-{j}-{k}")
    for i, kind in enumerate(_RULES)
    for j, rule in enumerate(_RULES[kind])
    for k, match in enumerate(_MATCHES)
]


@dataclass(frozen=True)
class BatchWorld:
    """Something to decide a batch on.

    Attributes:
        policies: a set of them.
        objects: nodes, reports, and objects that some rules read.
        pods: that run already.
        requests: to be decided, in order.
    """

    policies: PolicySet
    objects: Sequence[Node | NodeUsage | AuxObject]
    pods: Sequence[Pod]
    requests: Sequence[PlacementRequest]

    def state(self) -> ClusterState:
        """Return the cluster, in which all pods to be decided are held."""
        state = ClusterState()
        state.track_sums(self.policies.sum_profiles)
        for each in self.objects:
            if isinstance(each, Node):
                state.set_node(each)
            elif isinstance(each, NodeUsage):
                state.set_usage(each)
            else:
                state.set_extra(each)
        for pod in (*self.pods, *(request.pod for request in self.requests)):
            state.set_pod(pod, seen_at=NOW)
        return state


ALL_PODS = Scope(scheduler_names=("default-scheduler", "other"))


def policies_of(request: PlacementRequest, world: BatchWorld) -> PolicySet:
    """Return the policies that decide for a pod, those of the scheduler where none does."""
    chosen = policies_for(request, world.policies, NOW, scope=Scope())
    return PolicySet(chosen or [SCHEDULER_POLICY])


def plain(outcomes: Sequence[BatchOutcome]) -> list[dict[str, object]]:
    """Return outcomes without the decisions, of which pods of a template share one."""
    return [asdict(outcome) | {"decision": None} for outcome in outcomes]


def _optional(**values: Sequence[Any]) -> st.SearchStrategy[dict[str, Any]]:
    sampled = {name: st.sampled_from(choices) for name, choices in values.items()}
    return st.fixed_dictionaries({}, optional=sampled)


_amounts = _optional(cpu=["500m", "1", "100m", "3"], memory=["1Gi", "300Mi"], **{GPU: ["1", "2"]})


def _node(name: str, labels: Json, annotations: Json, spec: Json, amounts: Json) -> Node:
    wire = {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "5", **amounts},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "5", **amounts},
            "images": [{"names": ["a:latest"], "sizeBytes": 700 << 20}] if amounts else [],
        },
    }
    return node_of(msgspec.convert(wire, api.Node))


_nodes = st.builds(
    _node,
    st.just(""),
    _optional(zone=["a", "b", "c"], cost=["1", "2.7", "x"], **{ZONE_LABEL: ["1", "2"]}),
    st.just({}) | _optional(**{LIMIT_TO_ALLOCATABLE: ["{}", '{"cpu":"90%"}', "{"]}),
    st.just({})
    | st.fixed_dictionaries(
        {
            "unschedulable": st.booleans(),
            "taints": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": st.just("gpu"),
                        "effect": st.sampled_from(["NoSchedule", "PreferNoSchedule"]),
                    }
                ),
                max_size=1,
            ),
        }
    ),
    _optional(cpu=["1", "8"], pods=["1", "2", "9"], **{GPU: ["2", "4"]}),
)
_reports = st.builds(
    lambda cpu, age, known, deviation: report(
        "",
        {"cpu": cpu, "memory": GI},
        age=age,
        pods=dict.fromkeys(known, PodUsage({"cpu": 400}, is_prod=True)),
        deviation=deviation,
    ),
    st.integers(0, 4000),
    st.sampled_from([0, 30, 200, None]),
    st.sampled_from([(), (), ("p0",), ("r0",)]),
    st.sampled_from([{}, {"cpu": 300}]),
)
_extras = st.one_of(
    st.builds(
        lambda amount: lambda name: zones(name, {"cpu": amount, "memory": "4Gi"}, {"cpu": "1"}),
        st.sampled_from(["1", "3"]),
    ),
    st.builds(lambda left: lambda name: disks(name, (left, left, left)), st.integers(0, 200)),
)


@st.composite
def _clusters(draw: st.DrawFn) -> list[Node | NodeUsage | AuxObject]:
    kinds = draw(st.lists(_nodes, min_size=1, max_size=4))
    count = draw(st.sampled_from([1, 3, 6, 30]))
    objects: list[Node | NodeUsage | AuxObject] = []
    for i in range(count):
        name = f"n{i}"
        kind = kinds[i % len(kinds)]
        objects.append(replace(kind, name=name, labels={**kind.labels, HOSTNAME_LABEL: name}))
    few = st.integers(0, min(count, 6) - 1).map("n{}".format)
    for name, usage in draw(st.dictionaries(few, _reports, max_size=5)).items():
        objects.append(replace(usage, node_name=name))
    for name, extra in draw(st.dictionaries(few, _extras, max_size=3)).items():
        objects.append(extra(name))
    if draw(st.booleans()):
        objects += [
            app_group("shop", front={"cart": 10}, cart={"front": 3}),
            network({}, {("1", "2"): draw(st.integers(0, 20))}),
        ]
    return objects


_labels = st.builds(
    lambda labels, workload: (
        labels | ({APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: workload} if workload else {})
    ),
    _optional(tier=["web", "db"], **{"koordinator.sh/priority-class": ["koord-batch"]}),
    st.sampled_from(["", "", "front", "cart"]),
)
_SPREAD = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"tier": "web"}},
}


def _near(key: str, value: str) -> Json:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {key: value}}}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _apart(key: str, value: str) -> Json:
    return {"podAntiAffinity": _near(key, value)}


def _rather(weight: int, value: str) -> Json:
    """Return preferred terms of an affinity to pods, by a label that differs from pod to pod."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"half": value}}}
    weighted = {"weight": weight, "podAffinityTerm": term}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


_SOFT = _SPREAD | {"topologyKey": HOSTNAME_LABEL, "whenUnsatisfiable": "ScheduleAnyway"}
_PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    ]
}
_OWNERS = [{"kind": "ReplicaSet", "name": "r", "uid": "u"}]


_templates = st.builds(
    lambda requests, limits, labels, spec, annotations, owners: {
        "metadata": {
            "namespace": "default",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owners,
        },
        "spec": {
            "containers": [
                {"name": "c", "image": "a", "resources": {"requests": requests, "limits": limits}}
            ],
            "schedulingGates": [{"name": HOLD_GATE}],
            **spec,
        },
    },
    _amounts,
    _amounts,
    _labels,
    st.sampled_from(
        [
            {},
            {},
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
            {"nodeSelector": {"zone": "a"}},
            {"schedulerName": "other"},
            {"affinity": _apart("half", "1")},
            {"affinity": _apart("tier", "web")},
            {"affinity": {"podAffinity": _near("half", "1")}},
            {"topologySpreadConstraints": [_SPREAD]},
            {"topologySpreadConstraints": [_SPREAD | {"matchLabelKeys": ["half"]}]},
            {"topologySpreadConstraints": [_SPREAD], "affinity": _apart("half", "1")},
            {"topologySpreadConstraints": [_SOFT]},
            {"topologySpreadConstraints": [_SPREAD, _SOFT]},
            {"affinity": {"podAffinity": _rather(5, "0")}},
            {"affinity": {"podAntiAffinity": _rather(7, "1"), "nodeAffinity": _PREFERRED}},
        ]
    ),
    st.sampled_from([{}, {}, {THROUGHPUT_ANNOTATION: '{"rbps":"30","wbps":"20"}'}]),
    st.sampled_from([[], _OWNERS]),
)


def request(template: Mapping[str, Any], name: str, **status: str) -> PlacementRequest:
    """Return the request of a pod of a template; one label differs, as that of an index."""
    written = template["metadata"]
    labels = {**written.get("labels", {}), "half": str(int(name[1:]) % 2)}
    metadata = {**written, "labels": labels, "name": name, "uid": f"uid-{name}"}
    wire = {**template, "metadata": metadata, "status": status}
    raw = json.dumps(wire).encode()
    return PlacementRequest(pod=pod_of(msgspec.json.decode(raw, type=api.Pod)), raw=raw)


@st.composite
def worlds(draw: st.DrawFn) -> BatchWorld:
    """Return random worlds."""
    chosen = draw(st.lists(st.sampled_from(_POLICIES), max_size=6, unique_by=lambda p: p.name))
    modes = st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.AUDIT])
    policies = [
        replace(
            each,
            mode=draw(modes),
            priority=draw(st.integers(0, 2)),
            scores=tuple(replace(rule, weight=draw(st.integers(1, 3))) for rule in each.scores),
        )
        for each in chosen
    ]
    objects = draw(_clusters())
    templates = draw(st.lists(_templates, min_size=1, max_size=6))
    order = draw(
        st.lists(st.sampled_from(range(len(templates))), min_size=1, max_size=25)
        | st.integers(1, 30).map(lambda pods: [i % len(templates) for i in range(pods)])
    )
    running = draw(st.lists(st.tuples(_templates, st.integers(0, 5)), max_size=6))
    return BatchWorld(
        PolicySet(policies),
        objects,
        [
            msgspec.structs.replace(
                request(template, f"r{i}").pod, node_name=f"n{at}", scheduling_gates=()
            )
            for i, (template, at) in enumerate(running)
        ],
        [request(templates[which], f"p{i}") for i, which in enumerate(order)],
    )
