from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import PatchError
from engine.model.decision import Verdict
from engine.model.placement_options import DynamicFilters, PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement import (
    ADVICE_ANNOTATION,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    Advice,
    Patch,
    encode,
)
from tests.engine.placement.cluster import (
    Json,
    Labels,
    admits,
    decided,
    named,
    preference,
    preferred,
    request_of,
    required,
    view_of,
    with_affinity,
)

ZONE, POOL = "topology.kubernetes.io/zone", "pool"
REQUIRED_OPTIONS = PlacementOptions(dynamic_filters=DynamicFilters.REQUIRED)
VIEW = view_of(named("good", "bad", "hot"))
DECISION = decided(VIEW, {"good": 9, "bad": 1}, rejected=["hot"])
BINDING = replace(DECISION, placement=REQUIRED_OPTIONS)

PREFER_GOOD = {"key": HOSTNAME_LABEL, "operator": "In", "values": ["h-good"]}
NOT_HOT = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-hot"]}
OUR_TERM = {"weight": 100, "preference": {"matchExpressions": [PREFER_GOOD]}}
OUR_ANNOTATIONS = {
    ADVICE_ANNOTATION: '{"policies":["spread-load"],"nodes":["good"],"candidates":2,"terms":1}',
    REASON_ANNOTATION: "placed",
}


def patched(pod: Json, patch: Patch) -> Json:
    after: Json = jsonpatch.apply_patch(pod, list(patch.operations))
    return after


def test_a_bare_pod_gets_the_lowest_missing_objects_whole() -> None:
    patch = encode(BINDING, request_of(), VIEW)
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [NOT_HOT]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [OUR_TERM],
    }
    assert patch.operations == (
        {"op": "add", "path": "/metadata/annotations", "value": OUR_ANNOTATIONS},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": node_affinity}},
    )
    assert patch.advice == Advice(("spread-load",), ("good",), 2, terms=1)
    assert patch.warnings == ()


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": "p", "annotations": None}, "spec": {"affinity": None}},
        {"metadata": {"name": "p", "annotations": {}}, "spec": {"affinity": {}}},
        {"metadata": {"name": "p"}, "spec": {"affinity": {"nodeAffinity": None}}},
        with_affinity({}),
        with_affinity({"requiredDuringSchedulingIgnoredDuringExecution": None}),
        with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": None}),
        with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": []}),
        {"metadata": {"annotations": {"team": "a"}}, "spec": {"affinity": {"podAffinity": {}}}},
        {},
    ],
)
def test_whichever_parent_is_missing_the_pod_comes_out_the_same(pod: Json) -> None:
    after = patched(pod, encode(BINDING, request_of(pod), VIEW))
    assert OUR_ANNOTATIONS.items() <= after["metadata"]["annotations"].items()
    assert preferred(after) == [OUR_TERM]
    selector = after["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert selector == {"nodeSelectorTerms": [{"matchExpressions": [NOT_HOT]}]}


def test_rejected_nodes_are_excluded_only_if_the_policy_requires_it() -> None:
    after = patched({"metadata": {}, "spec": {}}, encode(DECISION, request_of(), VIEW))
    assert admits(after, "hot", {HOSTNAME_LABEL: "h-hot"})
    assert preferred(after) == [OUR_TERM]


def test_a_pod_with_nothing_to_prefer_still_carries_its_estimate() -> None:
    decision = replace(decided(VIEW, {"good": 1, "bad": 1, "hot": 1}), estimate={"cpu": 500})
    (operation,) = encode(decision, request_of(), VIEW).operations
    assert operation["path"] == "/metadata/annotations"
    assert operation["value"][ESTIMATED_USAGE_ANNOTATION] == '{"cpu":"500m"}'


@pytest.mark.parametrize("verdict", [Verdict.ABSTAIN, Verdict.DENY])
def test_only_a_decision_to_place_is_written(verdict: Verdict) -> None:
    assert encode(replace(DECISION, verdict=verdict), request_of(), VIEW) == Patch()


@pytest.mark.parametrize("key", [ADVICE_ANNOTATION, ESTIMATED_USAGE_ANNOTATION, REASON_ANNOTATION])
def test_a_pod_with_an_annotation_of_ours_was_placed_before(key: str) -> None:
    request = request_of({"metadata": {"annotations": {key: ""}}, "spec": {}})
    assert encode(DECISION, request, VIEW) == Patch()


def test_warnings_fit_the_length_that_a_client_shows() -> None:
    view = view_of({**named("good", "bad"), "bare": {}, "hot-and-bare": {}})
    scores = {"good": 9, "bare": 9, "bad": 1}
    decision = decided(view, scores, rejected=["hot-and-bare"], placement=REQUIRED_OPTIONS)
    warnings = encode(decision, request_of(), view).warnings
    assert [text.split(": ")[0] for text in warnings] == [
        "1 rejected node is not excluded",
        "1 node is not preferred as it should be",
    ]
    assert all(len(text) <= 120 for text in warnings)


def test_a_decision_made_on_another_view_is_refused() -> None:
    with pytest.raises(PatchError, match="another version"):
        encode(replace(DECISION, view_version=-1), request_of(), VIEW)


# Properties, over small clusters with odd labels and pods with odd affinities.

HOSTNAMES = st.sampled_from(["own", "own", "own", "shared", None])
VALUES = st.sampled_from(["a", "b", "c", None])


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Labels]:
    nodes: dict[str, Labels] = {}
    for index in range(draw(st.integers(1, 10))):
        name = f"n{index}"
        hostname = draw(HOSTNAMES)
        labels = {
            HOSTNAME_LABEL: f"h-{name}" if hostname == "own" else hostname,
            ZONE: draw(VALUES),
            POOL: draw(VALUES),
        }
        nodes[name] = {key: value for key, value in labels.items() if value is not None}
    return nodes


EXPRESSIONS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([ZONE, POOL, HOSTNAME_LABEL]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["a", "b", "h-n0", "h-n1"]), min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries(
        {"key": st.just(POOL), "operator": st.sampled_from(["Exists", "DoesNotExist"])}
    ),
)
FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.sampled_from([["n0"], ["n1"]]),
    }
)


def perhaps(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Return objects of which any member may be missing or null."""
    nullable = {key: st.none() | value for key, value in members.items()}
    return st.fixed_dictionaries({}, optional={**nullable, "unknown": st.just({"kept": True})})


TERMS = perhaps(
    matchExpressions=st.lists(EXPRESSIONS, max_size=2), matchFields=st.lists(FIELDS, max_size=1)
)
USER_TERMS = st.lists(
    st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": TERMS}), max_size=4
)
NODE_AFFINITIES = perhaps(
    requiredDuringSchedulingIgnoredDuringExecution=perhaps(
        nodeSelectorTerms=st.lists(TERMS, max_size=3)
    ),
    preferredDuringSchedulingIgnoredDuringExecution=USER_TERMS,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": perhaps(
            annotations=st.dictionaries(st.sampled_from(["a/b", "c~d"]), st.text())
        ),
        "spec": perhaps(affinity=perhaps(nodeAffinity=NODE_AFFINITIES, podAffinity=st.just({}))),
    }
)
OPTIONS = st.builds(
    PlacementOptions,
    dynamic_filters=st.sampled_from(DynamicFilters),
    max_nodes=st.integers(1, 6),
    group_labels=st.sampled_from([(), (ZONE,), (POOL, ZONE)]),
)


@given(st.data(), clusters(), PODS, OPTIONS)
def test_a_patch_adds_what_was_decided_and_changes_nothing_else(
    data: st.DataObject, nodes: dict[str, Labels], pod: Json, options: PlacementOptions
) -> None:
    view = view_of(nodes)
    some_nodes = st.sets(st.sampled_from(sorted(nodes)), max_size=3)
    rejected, unfit = data.draw(some_nodes), data.draw(some_nodes)
    scores = {name: data.draw(st.sampled_from([0, 10, 40, 70, 99, 100])) for name in nodes}
    decision = decided(view, scores, rejected=rejected, unfit=unfit, placement=options)

    patch = encode(decision, request_of(pod), view)
    after = patched(pod, patch)

    assert_only_adds(pod, patch)
    assert_required_is_neither_wider_nor_weaker(pod, after, nodes, rejected - unfit)
    ours = assert_user_terms_stay_in_front(pod, after)
    candidates = {name for name in nodes if name not in rejected | unfit}
    assert_terms_say_the_ranking(ours, scores, nodes, candidates, patch)
    # A label may also stand for nodes that the scheduler rejects, never for what a policy does.
    assert not any(preference(ours, name, nodes[name]) for name in rejected - unfit)
    assert len({value for term in ours for value in listed_names(term)}) <= options.max_nodes
    if patch.operations:
        assert encode(decision, request_of(after), view) == Patch()
    else:
        assert not candidates


def assert_only_adds(pod: Json, patch: Patch) -> None:
    for operation in patch.operations:
        assert operation["op"] == "add"
        there = jsonpointer.resolve_pointer(pod, operation["path"], None)
        assert there is None or isinstance(there, jsonpointer.EndOfList)


def assert_required_is_neither_wider_nor_weaker(
    pod: Json, after: Json, nodes: dict[str, Labels], rejected: set[str]
) -> None:
    for name, labels in nodes.items():
        if admits(after, name, labels):
            assert admits(pod, name, labels)
        else:
            assert name in rejected or not admits(pod, name, labels)


def assert_user_terms_stay_in_front(pod: Json, after: Json) -> list[Json]:
    """Return our terms, those after the user's own."""
    users = preferred(pod)
    assert preferred(after)[: len(users)] == users
    return preferred(after)[len(users) :]


def assert_terms_say_the_ranking(
    ours: list[Json],
    scores: dict[str, int],
    nodes: dict[str, Labels],
    candidates: set[str],
    patch: Patch,
) -> None:
    assert len(ours) <= 3
    assert all(1 <= term["weight"] <= 100 for term in ours)
    gains = {name: preference(ours, name, labels) for name, labels in nodes.items()}
    worst = min((scores[name] for name in candidates), default=0)
    all_written = not any("not preferred" in warning for warning in patch.warnings)
    for better in candidates:
        for worse in candidates:
            if scores[better] > scores[worse] and (gains[better] or all_written):
                assert gains[better] >= gains[worse]
                assert gains[worse] == 0 or scores[worse] > worst
    assert {gains[name] for name in patch.advice.nodes} <= {max(gains.values())}


def listed_names(term: Json) -> list[str]:
    """Return the nodes that a term of ours lists one by one."""
    (requirement,) = next(iter(term["preference"].values()))
    return requirement["values"] if requirement["key"] in (HOSTNAME_LABEL, "metadata.name") else []


@given(clusters(), st.sets(st.sampled_from([f"n{i}" for i in range(10)])), PODS)
def test_binding_filters_keep_the_pod_off_every_rejected_node_that_has_a_hostname(
    nodes: dict[str, Labels], chosen: set[str], pod: Json
) -> None:
    view = view_of(nodes)
    rejected = chosen & nodes.keys()
    decision = decided(view, dict.fromkeys(nodes, 1), rejected=rejected, placement=REQUIRED_OPTIONS)
    if rejected == nodes.keys():
        return
    after = patched(pod, encode(decision, request_of(pod), view))
    for name in rejected:
        if nodes[name].get(HOSTNAME_LABEL) == f"h-{name}":
            assert not admits(after, name, nodes[name])


@given(st.data(), clusters(), OPTIONS)
def test_replicas_that_know_the_nodes_in_another_order_write_the_same(
    data: st.DataObject, nodes: dict[str, Labels], options: PlacementOptions
) -> None:
    names = sorted(nodes)
    rejected = data.draw(st.sets(st.sampled_from(names)))
    scores = {name: data.draw(st.sampled_from([0, 40, 70, 100])) for name in names}
    written = []
    for order in (names, data.draw(st.permutations(names))):
        view = view_of({name: nodes[name] for name in order})
        decision = decided(view, scores, rejected=rejected, placement=options)
        written.append(encode(decision, request_of(), view))
    assert written[0] == written[1]


def test_patches_are_plain_json() -> None:
    patch = encode(BINDING, request_of(with_affinity(required({"matchFields": []}))), VIEW)
    assert msgspec.json.decode(msgspec.json.encode(patch.operations)) == list(patch.operations)
