"""A decision as it is written on a Binding."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from engine.binding import (
    BINDING_REASON_ANNOTATION,
    NO_LIMITS,
    SCHEDULER_NODE_ANNOTATION,
    BindingDecision,
    decide_binding,
    decide_unseen,
    encode_binding,
)
from engine.binding.decision import denied
from engine.errors import PatchError
from engine.pipeline import Scope
from engine.placement import ESTIMATED_USAGE_ANNOTATION, REASON_ANNOTATION
from engine.policy import PolicySet
from tests.engine.binding.worlds import AT_BINDING, NOW, by_rank, cluster, node, request

LOAD_AWARE = "filters: [{plugin: LoadAware}]"


def _moved(by: PolicySet | None = None) -> BindingDecision:
    by = by or by_rank()
    state = cluster(node("a", 0), node("b", 100))
    state.track_sums(by.sum_profiles)
    return decide_binding(request(), "a", by, state.view(), NOW, scope=Scope())


def _binding(**metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": "a"}}


def _patched(decision: BindingDecision, binding: dict[str, Any]) -> dict[str, Any]:
    patched: dict[str, Any] = jsonpatch.apply_patch(binding, [*encode_binding(decision, binding)])
    return patched


@pytest.mark.parametrize(
    "binding",
    [_binding(), _binding(annotations=None), _binding(annotations={"mine": "x"})],
)
def test_a_moved_pod_gets_the_other_node_and_what_explains_it(binding: dict[str, Any]) -> None:
    patched = _patched(_moved(), binding)
    assert patched["target"] == {"kind": "Node", "name": "b"}
    annotations = patched["metadata"]["annotations"]
    assert annotations[SCHEDULER_NODE_ANNOTATION] == "a"
    assert annotations[BINDING_REASON_ANNOTATION] == "BetterNode"
    assert annotations[REASON_ANNOTATION].startswith("moved from a to b")
    assert annotations.get("mine") == ((binding["metadata"].get("annotations") or {}).get("mine"))


def test_a_moved_pod_loses_the_topology_labels_of_the_scheduler_s_node_and_no_others() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    labels = {zone: "zone-of-a", region: "here", "mine": "x"}
    moved = _patched(_moved(), _binding(labels=labels))
    assert moved["metadata"]["labels"] == {"mine": "x"}
    assert _patched(_moved(), moved) == moved
    assert _patched(_moved(), _binding(labels={zone: "z"}))["metadata"]["labels"] == {}
    # One that stays keeps them: a binding to b is already where it is decided to go.
    there = {**_binding(labels=labels), "target": {"kind": "Node", "name": "b"}}
    assert _patched(_moved(), there)["metadata"]["labels"] == labels


def test_the_estimate_is_written_as_advice_writes_it() -> None:
    patched = _patched(_moved(by_rank(LOAD_AWARE, AT_BINDING)), _binding())
    assert '"cpu":' in patched["metadata"]["annotations"][ESTIMATED_USAGE_ANNOTATION]


def test_patching_twice_equals_once() -> None:
    decision = _moved()
    once = _patched(decision, _binding())
    assert encode_binding(decision, once) == ()


def test_annotations_that_are_there_stay() -> None:
    there = {SCHEDULER_NODE_ANNOTATION: "mine", REASON_ANNOTATION: "mine", "other": "x"}
    patched = _patched(_moved(), _binding(annotations=there))
    annotations = patched["metadata"]["annotations"]
    assert {key: annotations[key] for key in there} == there


def test_nothing_is_written_where_no_policy_decided() -> None:
    assert encode_binding(decide_unseen("a", NO_LIMITS), _binding()) == ()
    audited = _moved(by_rank("mode: Audit", AT_BINDING))
    assert encode_binding(audited, _binding()) == ()


def test_a_denial_or_the_binding_to_another_node_is_no_patch() -> None:
    with pytest.raises(PatchError):
        encode_binding(denied("a", "full"), _binding())
    with pytest.raises(PatchError):
        encode_binding(_moved(), {**_binding(), "target": {"kind": "Node", "name": "c"}})
