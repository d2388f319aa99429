from __future__ import annotations

import pytest

from engine.plugins.base import PASS, Cycle
from engine.plugins.node_unschedulable import PLUGIN
from tests.conformance.cluster import NOW, cluster_of, incoming

_NODES = {
    "nodes": [
        {"metadata": {"name": "open"}},
        {"metadata": {"name": "cordoned"}, "spec": {"unschedulable": True}},
    ]
}


@pytest.mark.parametrize(
    ("toleration", "reason"),
    [
        ({"key": "other", "operator": "Exists"}, "node(s) were unschedulable"),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, None),
        ({"operator": "Exists"}, None),
        (
            {"operator": "Exists", "effect": "NoExecute"},
            "node(s) were unschedulable",
        ),
    ],
)
def test_only_pods_that_tolerate_the_cordon_pass_it(
    toleration: dict[str, str], reason: str | None
) -> None:
    rule = PLUGIN.default_filter()
    view = cluster_of(_NODES)
    pod = incoming({"pod": {"spec": {"tolerations": [toleration]}}})
    first, second = rule.filter(Cycle(pod, view, NOW)).codes.tolist()
    assert first == PASS
    assert (second == PASS) == (reason is None)
    if reason is not None:
        assert rule.reasons(second, Cycle(pod, view, NOW)) == (reason,)
