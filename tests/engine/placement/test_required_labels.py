from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.errors import InvalidFileError
from engine.model.decision import Decision, Verdict
from engine.model.label_condition import Exactness
from engine.model.node import Node
from engine.model.request import PlacementRequest
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.placement import Patch, encode
from engine.placement.required_labels import MOST_TERMS, required_labels
from engine.policy import PolicySet
from engine.view import ClusterState, ClusterView
from tests.engine.placement.cluster import (
    GIB,
    Json,
    Labels,
    admits,
    named,
    preferred,
    request_of,
    required,
    with_affinity,
)
from tests.engine.policy.label_analysis.label_filters import label_filters, labels, mixed_filters
from tests.engine.policy.worlds import NOW, policy

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE_A: Json = {"key": "zone", "operator": "In", "values": ["a"]}
NO_GPU: Json = {"key": "gpu", "operator": "DoesNotExist"}
BARE: Json = {"metadata": {"name": "p"}, "spec": {}}
GUARD = "!('gpu' in node.labels)"
EITHER = "'x' in node.labels || 'y' in node.labels"
X, Y = ({"key": key, "operator": "Exists"} for key in "xy")


def view_of(nodes: Mapping[str, Labels]) -> ClusterView:
    """Return a view of nodes with room for any pod."""
    state = ClusterState()
    room = {"cpu": 4000, "memory": 8 * GIB, "pods": 110}
    for name, own in nodes.items():
        state.set_node(Node(name=name, labels=own, allocatable=room))
    return state.view()


VIEW = view_of({"plain": {"x": ""}, "gpu": {"gpu": "a100", "x": "", "y": ""}})


def policies(*filters: str, variables: Mapping[str, str] | None = None, **spec: Any) -> PolicySet:  # noqa: ANN401 - YAML
    """Return one policy with filters by expression, called `f0` and so on."""
    rules = [{"name": f"f{i}", "expression": source} for i, source in enumerate(filters)]
    computed = [{"name": name, "expression": one} for name, one in (variables or {}).items()]
    return PolicySet([policy(json.dumps({"filters": rules, "variables": computed, **spec}))])


def placed(
    rules: PolicySet, pod: Json = BARE, view: ClusterView = VIEW
) -> tuple[Json, Patch, Decision]:
    """Return a pod as it comes out, the patch, and the decision."""
    request = request_of(pod)
    decision = decide(request, rules, view, NOW)
    patch = encode(decision, request, view)
    return jsonpatch.apply_patch(pod, list(patch.operations)), patch, decision


def terms(pod: Json) -> list[Json]:
    """Return the required terms of a pod."""
    found: list[Json] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


def test_a_filter_on_labels_is_required_of_every_node() -> None:
    after, patch, _ = placed(policies(GUARD))
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]
    assert patch.warnings == ()


def test_filters_are_required_together() -> None:
    after, _, _ = placed(policies(GUARD, "node.labels[?'z'].orValue('a') != 'b'"))
    not_b = {"key": "z", "operator": "NotIn", "values": ["b"]}
    assert terms(after) == [{"matchExpressions": [NO_GPU, not_b]}]


def test_alternatives_are_terms_of_their_own() -> None:
    after, _, _ = placed(policies(EITHER))
    assert terms(after) == [{"matchExpressions": [X]}, {"matchExpressions": [Y]}]


def test_alternatives_are_multiplied_into_the_terms_of_the_user() -> None:
    name = {"key": "metadata.name", "operator": "NotIn", "values": ["other"]}
    pod = with_affinity(required({"matchExpressions": [NO_GPU]}, {}, {"matchFields": [name]}))
    after, _, _ = placed(policies(EITHER), pod)
    assert terms(after) == [
        {"matchExpressions": [NO_GPU, X]},
        {},
        {"matchFields": [name], "matchExpressions": [X]},
        {"matchExpressions": [NO_GPU, Y]},
        {"matchFields": [name], "matchExpressions": [Y]},
    ]


def test_numbers_are_written_as_texts() -> None:
    view = view_of({"new": {"gen": "5"}, "old": {"gen": "2"}})
    after, _, _ = placed(policies("int(node.labels.gen) in [4, 5]"), view=view)
    assert terms(after) == [
        {
            "matchExpressions": [
                {"key": "gen", "operator": "Gt", "values": ["3"]},
                {"key": "gen", "operator": "Lt", "values": ["6"]},
            ]
        }
    ]


def test_of_a_filter_about_changing_state_the_labels_are_required() -> None:
    after, _, _ = placed(policies(f"{GUARD} && node.podCount < 10"))
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]


def test_a_filter_that_asks_for_nothing_leaves_the_pod_free() -> None:
    after, _, _ = placed(policies("pod.name == 'p' || 'y' in node.labels"))
    assert "affinity" not in after["spec"]


def test_the_widest_filter_is_left_out_where_there_is_no_room() -> None:
    # Six terms leave room for 16 / 6 = 2 alternatives: `EITHER` fits, four labels do not.
    user: list[Json] = [{"matchExpressions": [{**ZONE_A, "values": [zone]}]} for zone in "abcdef"]
    four = " || ".join(f"'{key}' in node.labels" for key in "stuv")
    view = view_of({"n": {"zone": "a", "x": "", "s": ""}})
    after, patch, _ = placed(policies(four, EITHER), with_affinity(required(*user)), view)
    assert len(terms(after)) == 12 <= MOST_TERMS
    assert patch.warnings == ("filter f0 is not required of nodes: it takes too many terms",)


def test_an_annotation_of_ours_is_no_way_around_what_filters_say_of_labels() -> None:
    forged = {"metadata": {"name": "p", "annotations": {"stowplan.dev/advice": ""}}, "spec": {}}
    after, patch, _ = placed(policies(GUARD), forged)
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]
    assert not preferred(after)
    assert after["metadata"] == forged["metadata"]
    assert not patch.advice.nodes


def test_patching_twice_equals_once() -> None:
    once, _, _ = placed(policies(EITHER))
    twice, patch, _ = placed(policies(EITHER), once)
    assert twice == once
    assert patch.operations == ()


def test_a_policy_in_audit_mode_requires_nothing() -> None:
    after, patch, decision = placed(policies(GUARD, mode="Audit"))
    assert decision.audit is not None
    assert after == BARE
    assert patch == Patch()


def test_a_pod_without_a_node_waits_for_the_right_one() -> None:
    """Or an autoscaler would add any node, and the filter would be broken there."""
    view = view_of({"gpu": {"gpu": "a100"}})
    after, _, decision = placed(policies(GUARD), view=view)
    assert decision.verdict is Verdict.ABSTAIN
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]
    assert preferred(after) == []


def test_a_pod_that_no_node_has_room_for_waits_for_the_right_one() -> None:
    after, _, decision = placed(policies(GUARD), view=ClusterState().view())
    assert decision.verdict is Verdict.ABSTAIN
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]


def test_a_pod_that_is_denied_gets_nothing() -> None:
    view = view_of({"gpu": {"gpu": "a100"}})
    rules = policies(GUARD, placement={"whenNoneFits": "Deny"})
    after, _, decision = placed(rules, view=view)
    assert decision.verdict is Verdict.DENY
    assert after == BARE


def test_what_no_node_can_ever_meet_is_not_required() -> None:
    after, _, decision = placed(policies("node.labels.zone == 'not a value!'"))
    assert decision.verdict is Verdict.ABSTAIN
    assert after == BARE


def test_nodes_that_labels_shut_out_are_not_excluded_by_name() -> None:
    labels = named("good", "gpu", "busy")
    view = view_of({**labels, "gpu": {**labels["gpu"], "gpu": "a100"}})
    rules = policies(GUARD, "node.name != 'busy'", placement={"dynamicFilters": "Required"})
    after, _, _ = placed(rules, view=view)
    not_busy = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-busy"]}
    assert terms(after) == [{"matchExpressions": [NO_GPU, not_busy]}]


def test_nothing_is_preferred_over_nodes_that_labels_shut_out() -> None:
    after, _, _ = placed(policies(GUARD), view=view_of(named("one", "two")))
    assert preferred(after) == []


_LITERALS: Mapping[str, Sequence[str]] = {
    "yes": ("true", "false", "null"),
    "n": ("3", "-1", "4u", "2.5", "'x'"),
    "text": ("'x'", "'03'", "''", "'no value!'", "3"),
    "key": ("'a'", "'gen'", "'no key'", "3"),
    "list": ("[]", "['x', 'a']", "['3', 'gen', 'no value!']", "[3, '']"),
    "absent": ("[][0]",),
}
_variables = st.fixed_dictionaries(
    {name: st.sampled_from(ones) for name, ones in _LITERALS.items()}
)
_USER_TERMS: list[Json] = [
    {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["x"]}]},
    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
    {},
]
_user_terms = st.lists(st.sampled_from(_USER_TERMS), min_size=1, max_size=3)
_affinities = st.none() | _user_terms.map(lambda terms: required(*terms))


@settings(max_examples=100)
@given(
    filters=st.lists(label_filters | mixed_filters.map(str), min_size=1, max_size=2),
    variables=_variables,
    affinity=_affinities,
    nodes=st.lists(labels, min_size=6, max_size=6),
)
def test_a_patched_pod_goes_where_it_would_and_where_the_filters_let_it(
    filters: list[str], variables: Mapping[str, str], affinity: Json | None, nodes: list[Labels]
) -> None:
    view = view_of({f"n{i}": node for i, node in enumerate(nodes)})
    pod = with_affinity(affinity) if affinity else BARE
    try:
        rules = policies(*filters, variables=variables)
    except InvalidFileError:  # types are known here, and some expressions make no sense with them
        assume(condition=False)
        raise
    after, patch, decision = placed(rules, pod, view)
    ensure_kept(pod, after, patch, decision, view)
    assert placed(rules, after, view)[0] == after


def test_terms_that_only_several_alternatives_cover_together_are_not_demanded_twice() -> None:
    # A node without `b` is admitted by the first filter whether it has `a` or not.
    rules = policies(
        "node.labels[?'a'].optFlatMap(m, node.labels.?b).orValue('x') == 'x'",
        "['x', 'y'].exists(z, node.labels.a == z || (node.labels[?'b'].optMap(m, int(m) != -1)"
        ".orValue('gen' in node.labels)))",
    )
    view = view_of({f"n{i}": {} for i in range(6)})
    after, _, _ = placed(rules, BARE, view)
    assert after != BARE
    assert placed(rules, after, view)[0] == after


def ensure_kept(
    before: Json, after: Json, patch: Patch, decision: Decision, view: ClusterView
) -> None:
    ours = [outcome for outcome in decision.filters if outcome.policy == "p"]
    exact = all(outcome.labels.exactness is Exactness.EXACT for outcome in ours)
    for name, row in view.rows.items():
        node = view.nodes[row]
        assert node is not None
        passes = not any(outcome.rejects[row] for outcome in ours)
        expected = admits(before, name, node.labels) and passes
        allowed = admits(after, name, node.labels)
        assert allowed or not expected
        if exact and patch.operations and not patch.warnings:
            assert allowed == expected


def test_pods_with_the_same_required_labels_keep_filters_of_their_own_decision() -> None:
    rules = policies(GUARD, EITHER)
    first, second = (decide(request_of(BARE), rules, VIEW, NOW) for _ in range(2))
    one, two = required_labels(first.filters, 0), required_labels(second.filters, 0)
    assert one.required == two.required
    assert {outcome.rule for outcome in two.enforced} == {"f0", "f1"}
    assert set(two.enforced) <= set(second.filters)
    assert not set(two.enforced) & set(one.enforced)


def test_the_number_of_required_terms_depends_on_the_terms_of_each_pod() -> None:
    decision = decide(request_of(BARE), policies(EITHER), VIEW, NOW)
    assert [required_labels(decision.filters, terms).left_out for terms in (1, MOST_TERMS, 1)] == [
        (),
        ("f0",),
        (),
    ]


def test_the_request_is_left_as_it_was() -> None:
    request: PlacementRequest = request_of(BARE)
    encode(decide(request, policies(EITHER), VIEW, NOW), request, VIEW)
    assert json.loads(request.raw) == BARE


@pytest.mark.parametrize("term", [{"matchExpressions": None, "matchFields": None}, {}])
def test_terms_that_match_nothing_take_no_room(term: Json) -> None:
    pod = with_affinity({REQUIRED: {"nodeSelectorTerms": [term] * 20}})
    request = request_of(pod)
    patch = encode(decide(request, policies(EITHER), VIEW, NOW), request, VIEW)
    assert patch.warnings == ()
