from __future__ import annotations

from typing import Any

import jsonpatch
from msgspec.structs import replace

from engine.model.label_condition import on_label
from engine.model.label_states import LabelStates
from engine.model.placement_options import DynamicFilters, PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement import (
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    ReleasePatch,
    encode_release,
)
from tests.engine.explainers import FixedReasons
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    required,
    view_of,
    with_affinity,
)

VIEW = view_of(named("good", "hot"))
DECISION = decided(VIEW, {"good": 9}, rejected=["hot"])
BINDING = replace(DECISION, placement=PlacementOptions(dynamic_filters=DynamicFilters.REQUIRED))
NOT_HOT = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-hot"]}
IN_POOL = {"key": "pool", "operator": "In", "values": ["main"]}
POOLS = {"key": "pool", "operator": "In", "values": ["a", "b"]}


def encoded(decision: Any = DECISION, pod: Json | None = None) -> ReleasePatch:  # noqa: ANN401
    request = request_of(pod)
    return encode_release(decision, request, VIEW, estimate={"cpu": 850}, message="2 nodes fit")


def patched(pod: Json, patch: ReleasePatch) -> Json:
    after: Json = jsonpatch.apply_patch(pod, list(patch.operations))
    return after


def test_a_nominated_pod_is_annotated_and_prefers_nothing() -> None:
    patch = encoded()
    assert patch.operations == ()
    assert patch.annotations == {
        ESTIMATED_USAGE_ANNOTATION: '{"cpu":"850m"}',
        REASON_ANNOTATION: "2 nodes fit",
    }


def test_binding_filters_exclude_nodes_for_when_the_nominated_one_is_taken() -> None:
    pod = with_affinity(None)
    after = patched(pod, encoded(BINDING, pod))
    terms = {"nodeSelectorTerms": [{"matchExpressions": [NOT_HOT]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    assert after["spec"]["affinity"]["nodeAffinity"] == affinity
    assert preferred(after) == []


def test_a_gated_pod_keeps_the_number_of_its_terms() -> None:
    own = [{"matchExpressions": [IN_POOL]}, {"matchExpressions": [POOLS]}]
    pod = with_affinity(required(*own))
    after = patched(pod, encoded(BINDING, pod))
    (rules,) = after["spec"]["affinity"]["nodeAffinity"].values()
    assert rules["nodeSelectorTerms"] == [
        {"matchExpressions": [IN_POOL, NOT_HOT]},
        {"matchExpressions": [POOLS, NOT_HOT]},
    ]


def test_nodes_are_excluded_beside_promises_that_the_pod_has_from_its_creation() -> None:
    in_pool = on_label("pool", LabelStates(listed=frozenset({"main"})))
    promising = replace(DECISION.filters[0], policy="p", explainer=FixedReasons({}, in_pool))
    decision = replace(BINDING, filters=(*DECISION.filters, promising))
    pod = with_affinity(required({"matchExpressions": [IN_POOL]}))
    (rules,) = patched(pod, encoded(decision, pod))["spec"]["affinity"]["nodeAffinity"].values()
    assert rules["nodeSelectorTerms"] == [{"matchExpressions": [IN_POOL, NOT_HOT]}]


def test_a_long_message_is_cut() -> None:
    request = request_of(None)
    patch = encode_release(DECISION, request, VIEW, estimate={}, message="x" * 1_000)
    assert len(patch.annotations[REASON_ANNOTATION]) == 256
