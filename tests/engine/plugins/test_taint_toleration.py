from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.model import api
from engine.plugins.base import PASS, Cycle
from engine.plugins.taint_toleration import PLUGIN, _code
from engine.view import ClusterState
from tests.conformance.cluster import NOW, cluster_of, incoming
from tests.counted_calls import counted_calls
from tests.engine.measured_cluster import node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.view import ClusterView


def _taint(key: str, effect: str, value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def _nodes(**taints: list[dict[str, str]]) -> ClusterView:
    return cluster_of(
        {
            "nodes": [
                {"metadata": {"name": name}, "spec": {"taints": its}}
                for name, its in taints.items()
            ]
        }
    )


def _pod(*tolerations: dict[str, Any]) -> Pod:
    return incoming({"pod": {"spec": {"tolerations": list(tolerations)}}})


def _rejections(pod: Pod, view: ClusterView) -> list[tuple[str, ...]]:
    rule = PLUGIN.default_filter()
    codes = rule.filter(Cycle(pod, view, NOW)).codes.tolist()
    return [() if code == PASS else rule.reasons(code, Cycle(pod, view, NOW)) for code in codes]


def test_the_first_taint_that_repels_the_pod_is_the_reason() -> None:
    view = _nodes(
        clean=[],
        soft=[_taint("slow", "PreferNoSchedule")],
        gpu=[_taint("gpu", "NoSchedule", "yes")],
        both=[_taint("gpu", "NoSchedule", "yes"), _taint("drain", "NoExecute")],
    )
    gpu = {"key": "gpu", "operator": "Exists"}
    assert _rejections(_pod(), view) == [
        (),
        (),
        ("node(s) had untolerated taint {gpu: yes}",),
        ("node(s) had untolerated taint {gpu: yes}",),
    ]
    assert _rejections(_pod(gpu), view)[2:] == [
        (),
        ("node(s) had untolerated taint {drain: }",),
    ]


def test_nodes_with_the_same_reason_share_its_code() -> None:
    view = _nodes(
        a=[_taint("x", "NoSchedule")], b=[_taint("x", "NoExecute"), _taint("y", "NoSchedule")]
    )
    first, second = PLUGIN.default_filter().filter(Cycle(_pod(), view, NOW)).codes
    assert first == second > PASS


def test_untolerated_soft_taints_are_counted() -> None:
    view = _nodes(
        none=[_taint("x", "NoSchedule")],
        one=[_taint("a", "PreferNoSchedule")],
        two=[_taint("a", "PreferNoSchedule"), _taint("b", "PreferNoSchedule", "v")],
    )
    rule = PLUGIN.default_score()
    assert rule.score(Cycle(_pod(), view, NOW)).values.tolist() == [0, 1, 2]
    soft = {"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"}
    assert rule.score(Cycle(_pod(soft), view, NOW)).values.tolist() == [0, 0, 1]
    # A toleration of another effect does not help.
    hard = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    assert rule.score(Cycle(_pod(hard), view, NOW)).values.tolist() == [0, 1, 2]


def test_fewer_taints_score_higher() -> None:
    normalize = PLUGIN.default_score().normalize
    # 100 - 1 * 100 / 3 = 100 - 33
    assert normalize(np.array([0, 1, 3])).tolist() == [100, 67, 0]
    assert normalize(np.array([0, 0])).tolist() == [100, 100]


def test_the_texts_of_taints_are_made_once_while_no_node_changes() -> None:
    state = ClusterState()
    for row in range(3):
        taint = api.Taint(key="own", value=str(row), effect="NoSchedule")
        state.set_node(replace(node(f"n{row}"), taints=(taint,)))
    rule = PLUGIN.default_filter()
    view = state.view()
    code = int(rule.filter(Cycle(_pod(), view, NOW)).codes[1])
    before = rule.reasons(code, Cycle(_pod(), view, NOW))
    state.set_pod(pod("p", "n1"), seen_at=NOW)
    with counted_calls(_code) as calls:
        assert rule.reasons(code, Cycle(_pod(), state.view(), NOW)) == before
    assert not calls.count
    assert before == ("node(s) had untolerated taint {own: 1}",)
