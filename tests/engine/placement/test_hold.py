from __future__ import annotations

import jsonpatch
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION, RELEASE_BY_ANNOTATION
from engine.model.time import SECOND, Micros
from engine.placement import hold_patch
from tests.engine.placement.cluster import Json, request_of

NOON = Micros(1_767_614_400 * SECOND)  # 2026-01-05T12:00:00Z
OURS = {HOLD_REASONS_ANNOTATION: "placement", RELEASE_BY_ANNOTATION: "2026-01-05T12:01:00Z"}
GATES = [{"name": HOLD_GATE}]


def held(pod: Json, now: Micros = NOON) -> Json:
    request = request_of(pod)
    operations = hold_patch(request.pod, request.raw, reasons="placement", now=now, seconds=60)
    assert all(operation["op"] == "add" for operation in operations)
    after: Json = jsonpatch.apply_patch(pod, list(operations))
    return after


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": {}, "spec": {}},
        {"metadata": {"annotations": None}, "spec": {"schedulingGates": None}},
        {"metadata": {"annotations": {}}, "spec": {"schedulingGates": []}},
    ],
)
def test_a_held_pod_has_our_gate_the_reason_and_the_bound(pod: Json) -> None:
    assert held(pod) == {"metadata": {"annotations": OURS}, "spec": {"schedulingGates": GATES}}


def test_what_the_pod_has_stays() -> None:
    pod = {
        "metadata": {"annotations": {"team": "a"}},
        "spec": {"schedulingGates": [{"name": "example.org/theirs"}], "affinity": {}},
    }
    assert held(pod) == {
        "metadata": {"annotations": {"team": "a", **OURS}},
        "spec": {"schedulingGates": [{"name": "example.org/theirs"}, *GATES], "affinity": {}},
    }


@pytest.mark.parametrize("later", [0, 59])
def test_a_pod_that_is_held_already_is_left_alone(later: int) -> None:
    once = held({"metadata": {"name": "p"}, "spec": {}})
    assert held(once, Micros(NOON + later * SECOND)) == once


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {HOLD_REASONS_ANNOTATION: "placement"},
        {**OURS, HOLD_REASONS_ANNOTATION: "quota,placement"},
        {**OURS, RELEASE_BY_ANNOTATION: "2126-01-05T12:00:00Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "2026-01-05T12:01:01Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "2026-01-05T12:00:00Z"},  # in the past
        {**OURS, RELEASE_BY_ANNOTATION: "0000-99-99T99:99:99Z"},
        {**OURS, RELEASE_BY_ANNOTATION: "9" * 100_000},
        {**OURS, RELEASE_BY_ANNOTATION: ""},
    ],
)
@pytest.mark.parametrize("gates", [[], GATES])
def test_a_copied_manifest_gains_nothing(forged: Json, gates: list[Json]) -> None:
    pod = {"metadata": {"annotations": forged}, "spec": {"schedulingGates": gates}}
    assert held(pod) == {"metadata": {"annotations": OURS}, "spec": {"schedulingGates": GATES}}


def test_annotations_without_the_gate_do_not_count_as_a_hold() -> None:
    pod = {"metadata": {"annotations": OURS}, "spec": {}}
    later = held(pod, Micros(NOON + 30 * SECOND))
    assert later["metadata"]["annotations"][RELEASE_BY_ANNOTATION] == "2026-01-05T12:01:30Z"


_texts = st.text(max_size=5)
_annotations = st.none() | st.dictionaries(
    _texts | st.sampled_from(list(OURS)), _texts | st.sampled_from(list(OURS.values())), max_size=4
)
_gates = st.none() | st.lists(
    st.fixed_dictionaries({"name": _texts | st.just(HOLD_GATE)}), max_size=3
)
_others = st.dictionaries(_texts, st.recursive(_texts | st.none(), st.lists), max_size=2)
_pods = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"annotations": _annotations}),
        "spec": st.fixed_dictionaries({"x": _others}, optional={"schedulingGates": _gates}),
    },
)


@given(_pods, st.integers(0, 59))
def test_a_hold_of_any_pod_applies_takes_nothing_away_and_is_made_once(
    pod: Json, later: int
) -> None:
    before = msgspec.json.decode(msgspec.json.encode(pod))
    after = held(pod)
    assert pod == before
    assert _without_ours(after) == _without_ours(pod)
    names = [gate["name"] for gate in after["spec"]["schedulingGates"]]
    assert HOLD_GATE in names
    assert after["metadata"]["annotations"].keys() >= OURS.keys()
    assert held(after, Micros(NOON + later * SECOND)) == after


def _without_ours(pod: Json) -> Json:
    """Return what a hold may not change, with nothing where there is null or an empty object."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    gates = spec.get("schedulingGates") or []
    return {
        "annotations": {key: each for key, each in annotations.items() if key not in OURS},
        "gates": [gate for gate in gates if gate != GATES[0]],
        "spec": {key: each for key, each in spec.items() if key != "schedulingGates"},
    }
