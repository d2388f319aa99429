from __future__ import annotations

import jsonpatch
import msgspec
import pytest

from engine.placement import ANNOTATIONS, as_submitted, encode
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)

VIEW = view_of(named("good", "bad"))
DECISION = decided(VIEW, {"good": 9, "bad": 1})
OWN_TERM = {
    "weight": 1,
    "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
}


@pytest.mark.parametrize(
    "own",
    [
        {"metadata": {"name": "p", "annotations": {"team": "a"}}, "spec": {"priority": 3}},
        with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]}),
    ],
)
def test_advice_node_and_status_are_taken_off_a_pod_again(own: Json) -> None:
    advised: Json = jsonpatch.apply_patch(
        own, list(encode(DECISION, request_of(own), VIEW).operations)
    )
    assert len(preferred(advised)) > len(preferred(own))
    bound = {
        **advised,
        "spec": {**advised["spec"], "nodeName": "good"},
        "status": {"phase": "Running"},
    }
    again = msgspec.json.decode(as_submitted(msgspec.json.encode(bound)))
    assert "nodeName" not in again["spec"]
    assert again["status"] == {}
    own_terms = [OWN_TERM] if own["spec"].get("affinity") else []
    assert preferred(again) == own_terms
    assert not set(ANNOTATIONS) & again["metadata"]["annotations"].keys()
    assert again["metadata"]["annotations"] == (own["metadata"].get("annotations") or {})


def test_a_pod_that_was_never_advised_keeps_its_preferences() -> None:
    own = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]})
    assert preferred(msgspec.json.decode(as_submitted(msgspec.json.encode(own)))) == [OWN_TERM]


def test_an_invented_number_of_terms_only_takes_the_own_terms_of_its_pod() -> None:
    own = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [OWN_TERM]})
    own["metadata"] = {"annotations": {"stowplan.dev/advice": '{"terms":99}'}}
    assert preferred(msgspec.json.decode(as_submitted(msgspec.json.encode(own)))) == []
