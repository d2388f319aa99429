"""Random events in a small cluster: few nodes, few names, many coincidences."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.model import api
from engine.model.node import Node, NodeCondition
from engine.model.pod import Pod
from engine.model.time import SECOND, Micros
from engine.model.usage import NodeUsage
from engine.view import ClusterState
from tests.engine.policy.worlds import NOW, node, request_of

_TAINTS = st.lists(st.builds(api.Taint, key=st.sampled_from("ab")), max_size=2).map(tuple)
_AMOUNT = st.integers(0, 5000)
_TIMES = st.one_of(st.none(), st.integers(-100, 900).map(lambda age: Micros(NOW - age * SECOND)))
_CONDITIONS = st.lists(
    st.builds(
        NodeCondition,
        type=st.sampled_from(["Ready", "DiskPressure"]),  # twice of a type, too
        status=st.sampled_from(["True", "False"]),
        reason=st.sampled_from(["", "KubeletReady"]),
        since=_TIMES,
    ),
    max_size=3,
).map(tuple)
_NODE = st.builds(
    node,
    st.sampled_from("abcd"),
    labels=st.dictionaries(st.just("zone"), st.sampled_from("xy")),
    annotations=st.dictionaries(st.just("note"), st.sampled_from("xy")),
    taints=_TAINTS,
    ready=st.booleans(),
    unschedulable=st.booleans(),
    allocatable=st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), _AMOUNT),
    created=_TIMES,
    conditions=_CONDITIONS,
)
_USAGE = st.builds(
    NodeUsage,
    node_name=st.sampled_from("abcd"),
    update_time=st.one_of(
        st.none(), st.integers(0, 400).map(lambda age: Micros(NOW - age * SECOND))
    ),
    usage=st.one_of(st.none(), st.dictionaries(st.sampled_from(["cpu", "memory"]), _AMOUNT)),
)


def _pod(name: str, on: str, cpu: int, gpus: int) -> Pod:
    resources = {"requests": {"cpu": f"{cpu}m", "nvidia.com/gpu": gpus}, "limits": {"cpu": "1"}}
    spec = {"nodeName": on, "containers": [{"resources": resources}]}
    return request_of(spec, name=name).pod


_POD = st.builds(_pod, st.sampled_from("pqr"), st.sampled_from("abcd"), _AMOUNT, st.integers(0, 2))
EVENTS = st.lists(st.one_of(_NODE, _USAGE, _POD), max_size=12)


def apply(state: ClusterState, event: Node | NodeUsage | Pod) -> None:
    """Let an event happen to a cluster."""
    if isinstance(event, Node):
        state.set_node(event)
    elif isinstance(event, NodeUsage):
        state.set_usage(event)
    else:
        state.set_pod(event, seen_at=NOW)
