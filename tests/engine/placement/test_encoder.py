from __future__ import annotations

from typing import Any

import jsonpatch
import jsonpointer
import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.errors import InvalidFileError, PatchError
from engine.model.decision import Verdict
from engine.model.policy_resource import DynamicFilters, PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.placement import (
    ADVICE_ANNOTATION,
    ESTIMATED_USAGE_ANNOTATION,
    REASON_ANNOTATION,
    Advice,
    Patch,
    encode,
    encode_promises,
)
from engine.policy import PolicySet
from engine.view import ClusterView
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
from tests.engine.placement.test_affinity import (
    BARE,
    EITHER,
    GUARD,
    NO_GPU,
    REQUIRED,
    VIEW,
    ZONE_A,
    X,
    Y,
    policies,
    required_labels_view_of,
)
from tests.engine.policy.label_filters import label_filters, labels
from tests.engine.policy.worlds import NOW


def promised(pod: Json, rules: PolicySet, view: ClusterView = VIEW) -> Patch:
    return encode_promises(rules.policies, request_of(pod), view, NOW)


def patched(pod: Json, patch: Any) -> Json:  # noqa: ANN401 (of a creation or a release)
    after: Json = jsonpatch.apply_patch(pod, list(patch.operations))
    return after


def terms_of(pod: Json) -> list[Json]:
    terms: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


def test_filters_on_labels_are_required_and_nothing_else_is_written() -> None:
    after = patched(BARE, promised(BARE, policies(GUARD, "node.name != 'plain'")))
    assert after == {**BARE, "spec": {"affinity": {"nodeAffinity": required(_of(NO_GPU))}}}


def test_promises_are_written_where_no_node_is_known() -> None:
    assert terms_of(
        patched(BARE, promised(BARE, policies(GUARD), required_labels_view_of({})))
    ) == [_of(NO_GPU)]


def test_alternatives_are_written_beside_terms_of_the_pod_s_own() -> None:
    pod = with_affinity(required(_of(ZONE_A)))
    assert terms_of(patched(pod, promised(pod, policies(EITHER)))) == [
        _of(ZONE_A, X),
        _of(ZONE_A, Y),
    ]


def test_a_filter_that_takes_too_many_terms_is_left_out_with_a_warning() -> None:
    pod = with_affinity(required(*[_of({**ZONE_A, "key": f"zone-{i}"}) for i in range(16)]))
    patch = promised(pod, policies(EITHER))
    assert patch.operations == ()
    assert patch.warnings == ("filter f0 is not required of nodes: it takes too many terms",)


def test_without_a_filter_on_labels_nothing_is_written() -> None:
    for rules in (policies(), policies("node.name != 'plain'"), PolicySet()):
        assert promised(BARE, rules) == Patch()


@given(label_filters.map(str), label_filters.map(str), st.lists(labels, max_size=3))
@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
def test_writing_twice_equals_once(first: str, second: str, nodes: list[dict[str, str]]) -> None:
    view = required_labels_view_of({f"n{i}": own for i, own in enumerate(nodes)})
    try:
        rules = policies(first, second)
    except InvalidFileError:  # of variables that are not defined here
        assume(condition=False)
        raise
    once = patched(BARE, promised(BARE, rules, view))
    assert promised(once, rules, view).operations == ()
    for name, row in view.rows.items():  # and no node that passes is turned away
        node = view.nodes[row]
        assert node is not None
        decision = decide(request_of(BARE), rules, view, NOW)
        passes = not any(outcome.rejects[row] for outcome in decision.filters)
        assert admits(once, name, node.labels) or not passes


def _of(*requirements: Json) -> Json:
    return {"matchExpressions": [*requirements]}


ZONE, POOL = "topology.kubernetes.io/zone", "pool"
REQUIRED_OPTIONS = PlacementOptions(dynamic_filters=DynamicFilters.REQUIRED)
ENCODER_VIEW = view_of(named("good", "bad", "hot"))
DECISION = decided(ENCODER_VIEW, {"good": 9, "bad": 1}, rejected=["hot"])
BINDING = replace(DECISION, placement=REQUIRED_OPTIONS)

PREFER_GOOD = {"key": HOSTNAME_LABEL, "operator": "In", "values": ["h-good"]}
NOT_HOT = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-hot"]}
OUR_TERM = {"weight": 100, "preference": {"matchExpressions": [PREFER_GOOD]}}
OUR_ANNOTATIONS = {
    ADVICE_ANNOTATION: '{"policies":["spread-load"],"nodes":["good"],"candidates":2,"terms":1}',
    REASON_ANNOTATION: "placed",
}


def patched_by(pod: Json, patch: Patch) -> Json:
    after: Json = jsonpatch.apply_patch(pod, list(patch.operations))
    return after


def test_a_bare_pod_gets_the_lowest_missing_objects_whole() -> None:
    patch = encode(BINDING, request_of(), ENCODER_VIEW)
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
    after = patched_by(pod, encode(BINDING, request_of(pod), ENCODER_VIEW))
    assert OUR_ANNOTATIONS.items() <= after["metadata"]["annotations"].items()
    assert preferred(after) == [OUR_TERM]
    selector = after["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert selector == {"nodeSelectorTerms": [{"matchExpressions": [NOT_HOT]}]}


def test_rejected_nodes_are_excluded_only_if_the_policy_requires_it() -> None:
    after = patched_by({"metadata": {}, "spec": {}}, encode(DECISION, request_of(), ENCODER_VIEW))
    assert admits(after, "hot", {HOSTNAME_LABEL: "h-hot"})
    assert preferred(after) == [OUR_TERM]


def test_a_pod_with_nothing_to_prefer_still_carries_its_estimate() -> None:
    decision = replace(
        decided(ENCODER_VIEW, {"good": 1, "bad": 1, "hot": 1}), estimate={"cpu": 500}
    )
    (operation,) = encode(decision, request_of(), ENCODER_VIEW).operations
    assert operation["path"] == "/metadata/annotations"
    assert operation["value"][ESTIMATED_USAGE_ANNOTATION] == '{"cpu":"500m"}'


@pytest.mark.parametrize("verdict", [Verdict.ABSTAIN, Verdict.DENY])
def test_only_a_decision_to_place_is_written(verdict: Verdict) -> None:
    assert encode(replace(DECISION, verdict=verdict), request_of(), ENCODER_VIEW) == Patch()


@pytest.mark.parametrize("key", [ADVICE_ANNOTATION, ESTIMATED_USAGE_ANNOTATION, REASON_ANNOTATION])
def test_a_pod_with_an_annotation_of_ours_was_placed_before(key: str) -> None:
    request = request_of({"metadata": {"annotations": {key: ""}}, "spec": {}})
    assert encode(DECISION, request, ENCODER_VIEW) == Patch()


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
        encode(replace(DECISION, view_version=-1), request_of(), ENCODER_VIEW)


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
    after = patched_by(pod, patch)

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
    for name, of_node in nodes.items():
        if admits(after, name, of_node):
            assert admits(pod, name, of_node)
        else:
            assert name in rejected or not admits(pod, name, of_node)


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
    after = patched_by(pod, encode(decision, request_of(pod), view))
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
    patch = encode(BINDING, request_of(with_affinity(required({"matchFields": []}))), ENCODER_VIEW)
    assert msgspec.json.decode(msgspec.json.encode(patch.operations)) == list(patch.operations)
