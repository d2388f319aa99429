from __future__ import annotations

import pytest

from engine.model import api
from engine.model.decision import PlacementRequest
from engine.policy_lint import Check, KnownCluster, policy_warnings
from engine.policy_lint.on_cluster import cluster_findings
from tests.builders import request_from
from tests.engine.policy.worlds import GIB, NOW, Json, node, policy, view_of

_TAINT = api.Taint(key="dedicated", value="batch", effect="NoSchedule")
_NODES = (
    node(
        "n1",
        labels={"pool": "general", "zone": "a", "kubernetes.io/arch": "amd64"},
        allocatable={"cpu": 4000, "memory": GIB, "pods": 110},
    ),
    node(
        "n2",
        labels={"pool": "batch", "zone": "b"},
        allocatable={"cpu": 8000, "memory": GIB, "pods": 110, "amd.com/gpu": 2},
        taints=(_TAINT,),
    ),
)


_ALL = "2 nodes of the recording"


def _pod(name: str, image: str, **spec: object) -> PlacementRequest:
    wire: Json = {
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": image}], **spec},
    }
    return request_from(wire, namespace_labels={"team": "web"})


_CLUSTER = KnownCluster(
    view=view_of(*_NODES),
    now=NOW,
    pods=(_pod("cart", "registry.example/cart:1"), _pod("web", "nginx", priorityClassName="gold")),
)


def _findings(spec: str) -> list[str]:
    return [str(found) for found in cluster_findings(policy(spec), _CLUSTER)]


@pytest.mark.parametrize(
    ("expression", "finding"),
    [
        ("node.labels[?'pol'].orValue('') == 'x'", "no node has a label `pol` in the recording"),
        ("node.labels['pool'] == 'bach'", "is `bach`; did you mean `batch`?"),
        ("node.labels['zone'] in ['a', 'c']", "no `node.labels.zone` of the recording is `c`"),
        ("!node.taints.exists(t, t.key == 'gpu')", "`node.taints[].key` of the recording is `gpu`"),
        (
            "node.labels[?'kubernetes.io/arch'].orValue('') == 'arm64'",
            "is `arm64`; there are `amd64`",
        ),
        ("pod.namespace == 'shp' && node.podCount < 9", "is `shp`; did you mean `shop`?"),
        ("pod.priorityClassName == 'silver'", "`pod.priorityClassName` of the recording is"),
        ("'nvidia.com/gpu' in node.allocatable", "no node has a resource `nvidia.com/gpu`"),
        (
            "object.spec.containers.exists(c, c.image.startsWith('quay.io/')) || node.podCount < 9",
            "`startsWith` `quay.io/`; there are `nginx`, `registry.example/cart:1`",
        ),
        ("pod.labels[?'ap'].orValue('') == 'web'", "no pod has a label `ap` in the recording"),
    ],
)
def test_a_word_that_nothing_in_the_recording_has_is_named(expression: str, finding: str) -> None:
    (found,) = _findings(f'filters: [{{name: r, expression: "{expression}"}}]')
    assert finding in found


@pytest.mark.parametrize(
    "expression",
    [
        "node.labels['pool'] == 'general'",
        "!node.taints.exists(t, t.key == 'dedicated' && t.value == 'batch')",
        "pod.namespace == 'shop' && node.allocatable.cpu > 4.0",
        "pod.priorityClassName in ['gold', 'system-node-critical'] || node.labels.zone == 'a'",
    ],
)
def test_words_that_are_there_are_none(expression: str) -> None:
    assert _findings(f'filters: [{{name: r, expression: "{expression}"}}]') == []


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        (
            "filters: [{name: r, expression: node.allocatable.cpu > 100}]",
            "r: it rejects all 2 nodes of the recording, for each pod",
        ),
        (
            "filters: [{name: r, expression: node.allocatable.cpu > 1}]",
            "r: it keeps all 2 nodes of the recording, for each pod: it has no effect there",
        ),
        (
            "scores: [{name: r, expression: node.podCount}]",
            "r: it gives all 2 nodes of the recording the same, 0: it has no effect there",
        ),
        (
            "filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 400}}}]",
            f"LimitAware: it keeps all {_ALL}, for each pod: it has no effect there",
        ),
        (
            """
            filters:
            - {name: a, expression: node.labels.zone == 'a'}
            - {name: b, expression: node.allocatable.cpu > 5}
            """,
            f"b: the filters together reject all {_ALL}, for each pod, though each keeps some",
        ),
        (
            """
            placement: {at: Binding, minGain: 60}
            scores:
            - {name: a, expression: node.allocatable.cpu}
            - {name: b, expression: 'node.labels.zone == "a" ? 1 : 0'}
            """,
            f"of the {_ALL} none is better than another by more than 0 points: no pod is moved",
        ),
    ],
)
def test_a_rule_that_decides_nothing_there_is_named(spec: str, finding: str) -> None:
    assert _findings(spec) == [finding]


def test_a_policy_that_applies_to_no_pod_says_which_word_is_at_fault() -> None:
    spec = """
    match: {namespaceSelector: {matchLabels: {team: wbe}}, objectSelector: {matchLabels: {a: b}}}
    filters: [{name: r, expression: node.allocatable.cpu > 5}]
    placement: {groupLabels: [zone, rack]}
    """
    assert _findings(spec) == [
        "no namespace has a label `team` in the recording",
        "no pod has a label `a` in the recording",
        "no node has a label `rack` in the recording",
        "it applies to none of the 2 pods of the recording",
    ]


def test_a_policy_for_pods_that_are_left_alone_says_why() -> None:
    proxy = request_from({"metadata": {"namespace": "kube-system", "name": "proxy"}, "spec": {}})
    cluster = KnownCluster(view=_CLUSTER.view, now=NOW, pods=(*_CLUSTER.pods, proxy))
    compiled = policy("""
    match: {matchConditions: [{name: m, expression: pod.name == 'proxy'}]}
    filters: [{name: r, expression: node.allocatable.cpu > 5}]
    """)
    (found,) = cluster_findings(compiled, cluster)
    assert found.message == (
        "it applies to no pod that is placed: namespace kube-system is excluded"
    )


_FIT = """
scores:
- plugin: NodeResourcesFit
  args:
    scoringStrategy:
      type: MostAllocated
      resources: [{name: cpu}, {name: amd.com/gpus, weight: 1}]
"""
_MODELS = """
scores:
- plugin: Peaks
  args:
    nodePowerModel:
      n1: {k0: 90, k1: 3, k2: 0.04}
      node-3: {k0: 90, k1: 3, k2: 0.04}
      node-4: {k0: 90, k1: 3, k2: 0.04}
"""


@pytest.mark.parametrize(
    ("spec", "finding", "at"),
    [
        (
            _FIT,
            (
                "NodeResourcesFit: no node has a resource `amd.com/gpus` in the recording;"
                " did you mean `amd.com/gpu`?"
            ),
            "amd.com/gpus, weight",
        ),
        (
            (
                "filters:\n- plugin: LimitAware\n  args:\n"
                "    defaultLimitToAllocatableRatio: {amd.com/gpus: 400}"
            ),
            (
                "LimitAware: no node has a resource `amd.com/gpus` in the recording;"
                " did you mean `amd.com/gpu`?"
            ),
            "amd.com/gpus: 400",
        ),
        (
            _MODELS,
            (
                "Peaks: no node of the recording is called `node-3`, `node-4`:"
                " 1 of 2 nodes has no `nodePowerModel`; there are `n1`, `n2`"
            ),
            "node-3",
        ),
        (
            _MODELS.replace("n1", "n-1"),
            (
                "Peaks: no node of the recording is called `n-1`, `node-3`, `node-4`:"
                " 2 of 2 nodes have no `nodePowerModel`; did you mean `n1`?"
            ),
            "n-1",
        ),
    ],
)
def test_an_arg_that_names_what_is_not_there_is_named_alone(
    spec: str, finding: str, at: str
) -> None:
    (warning,) = policy_warnings(policy(spec), cluster=_CLUSTER)
    assert (warning.check, str(warning)) == (Check.CLUSTER, finding)
    assert warning.place.source[warning.place.column - 1 :].startswith(at)


def test_it_is_compared_with_a_cluster_only_where_one_is_given() -> None:
    compiled = policy("filters: [{name: r, expression: node.allocatable.cpu > 100}]")
    assert policy_warnings(compiled) == ()
    (warning,) = policy_warnings(compiled, cluster=_CLUSTER)
    assert (warning.check, warning.part) == (Check.CLUSTER, "r")
