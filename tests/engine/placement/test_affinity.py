from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import jsonpatch
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.errors import InvalidFileError
from engine.model import api
from engine.model.decision import Decision, PlacementRequest, Verdict
from engine.model.label_condition import Exactness
from engine.model.node import Node
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.placement import Patch, encode
from engine.placement.affinity import (
    MAX_VALUES,
    MOST_TERMS,
    Groups,
    Hostnames,
    Rejections,
    affinity_tree,
    and_into_required,
    exclusion_of,
    graft,
    required_labels,
)
from engine.policy import PolicySet
from engine.view import BoolColumn, ClusterState, ClusterView
from tests.engine.placement.cluster import (
    GIB,
    Json,
    Labels,
    admits,
    decided,
    named,
    node,
    preferred,
    request_of,
    required,
    view_of,
    with_affinity,
)
from tests.engine.policy.label_filters import label_filters, labels, mixed_filters
from tests.engine.policy.worlds import NOW, policy


def test_a_hostname_is_listable_only_if_unique() -> None:
    nodes = {
        "plain": {HOSTNAME_LABEL: "plain"},
        "renamed": {HOSTNAME_LABEL: "host-7"},
        "bare": {},
        "twin-1": {HOSTNAME_LABEL: "twin"},
        "twin-2": {HOSTNAME_LABEL: "twin"},
    }
    view = view_of(nodes)
    rows = np.array([view.rows[name] for name in nodes])
    hostnames = Hostnames(view)
    assert hostnames.listable(rows).tolist() == [True, True, False, False, False]
    assert hostnames.of(rows) == ["plain", "host-7", None, None, None]


def test_the_only_node_without_a_hostname_is_not_listable() -> None:
    view = view_of({"bare": {}, "other": {HOSTNAME_LABEL: "o"}})
    assert Hostnames(view).of(np.array([view.rows["bare"]])) == [None]


ZONE, POOL, SPOT = "topology.kubernetes.io/zone", "pool", "spot"
NODES = {
    "a1": {ZONE: "a", POOL: "x"},
    "a2": {ZONE: "a", POOL: "y"},
    "b1": {ZONE: "b", POOL: "x", SPOT: ""},
    "c1": {ZONE: "c"},
    "c2": {ZONE: "c"},
}


def described(
    view: ClusterView, *names: str, labels: tuple[str, ...], unreachable: tuple[str, ...] = ()
) -> Json | None:
    """Return what is said of some nodes that are ranked before all others."""
    scores = {name: int(name in names) for name in view.names if name}
    decision = decided(view, scores, unfit=unreachable)
    groups = Groups(view, labels, decision.ranking, Rejections(decision))
    requirement = groups.describe(0, len(names))
    return None if requirement is None else dict(requirement)


def test_a_label_stands_for_all_the_nodes_that_have_a_value() -> None:
    expected = {"key": ZONE, "operator": "In", "values": ["a", "b"]}
    assert described(view_of(NODES), "b1", "a2", "a1", labels=(ZONE,)) == expected


@pytest.mark.parametrize(
    "names",
    [("a1",), ("a1", "b1"), ("c1", "a1", "a2"), ("a1", "a2", "c1")],
)
def test_a_label_does_not_stand_for_a_part_of_the_nodes_that_have_a_value(
    names: tuple[str, ...],
) -> None:
    assert described(view_of(NODES), *names, labels=(ZONE,)) is None


@pytest.mark.parametrize("names", [("a1", "c1", "c2"), ("c1", "c2"), ("b1", "a1", "c1")])
def test_nodes_without_the_label_are_no_group(names: tuple[str, ...]) -> None:
    assert described(view_of(NODES), *names, labels=(POOL,)) is None


def test_a_lone_node_without_the_label_is_no_group() -> None:
    assert described(view_of({"n": {}}), "n", labels=(POOL,)) is None


def test_a_node_that_the_scheduler_rejects_does_not_spoil_its_group() -> None:
    expected = {"key": ZONE, "operator": "In", "values": ["a"]}
    view = view_of(NODES)
    assert described(view, "a1", labels=(ZONE,)) is None
    assert described(view, "a1", labels=(ZONE,), unreachable=("a2", "c1")) == expected


def test_an_empty_value_is_a_value_and_not_a_missing_label() -> None:
    expected = {"key": SPOT, "operator": "In", "values": [""]}
    assert described(view_of(NODES), "b1", labels=(SPOT,)) == expected
    assert described(view_of(NODES), "b1", "a1", labels=(SPOT,)) is None


def test_the_first_label_that_fits_is_taken() -> None:
    requirement = described(view_of(NODES), "a1", "b1", labels=("unknown", ZONE, POOL))
    assert requirement == {"key": POOL, "operator": "In", "values": ["x"]}


def test_a_handful_of_values_at_most() -> None:
    view = view_of({f"n{i}": {POOL: f"p{i}"} for i in range(9)})
    assert described(view, *(f"n{i}" for i in range(8)), labels=(POOL,)) is not None
    assert described(view, *(f"n{i}" for i in range(9)), labels=(POOL,)) is None


FATES = ("placed",) * 6 + ("rejected", "unfit")
CLUSTERS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([*"0123456789", None]),
        st.sampled_from(FATES),
    ),
    min_size=1,
    max_size=12,
)
REPEATED = st.sampled_from([1, 7, 25])  # few nodes are all in a sample, of many only some


def labels_of(zone: str | None, pool: str | None) -> Labels:
    return {key: value for key, value in [(ZONE, zone), (POOL, pool)] if value is not None}


def described_one_by_one(
    nodes: dict[str, Labels], part: set[str], reachable: set[str], labels: tuple[str, ...]
) -> Json | None:
    """Return what `describe` does, by looking at every label of every node."""
    for key in labels:
        values = {nodes[name].get(key) for name in part}
        like_them = {name for name in reachable if nodes[name].get(key) in values}
        if None not in values and len(values) <= MAX_VALUES and like_them == part:
            return {"key": key, "operator": "In", "values": sorted(map(str, values))}
    return None


@given(
    CLUSTERS,
    REPEATED,
    st.sampled_from([ZONE, POOL]),
    st.permutations([ZONE, POOL, SPOT]),
    st.data(),
)
def test_every_part_of_a_ranking_is_described_just_as_by_a_look_at_each_node(
    some: list[tuple[str | None, str | None, str]],
    repeated: int,
    by: str,
    keys: list[str],
    data: st.DataObject,
) -> None:
    drawn = some * repeated
    nodes = {f"n{i}": labels_of(zone, pool) for i, (zone, pool, _) in enumerate(drawn)}
    fates = {f"n{i}": fate for i, (*_, fate) in enumerate(drawn)}
    # Ranked by a label, so that there are groups, and one node somewhere, which may spoil one.
    scores = {name: ord(own.get(by, "-")) for name, own in nodes.items()}
    scores[data.draw(st.sampled_from(sorted(nodes)))] = data.draw(st.integers(40, 100))
    view = view_of(nodes)
    rejected, unfit = (
        {name for name, one in fates.items() if one == fate} for fate in ("rejected", "unfit")
    )
    decision = decided(view, scores, rejected=rejected, unfit=unfit)
    groups = Groups(view, keys, decision.ranking, Rejections(decision))
    ranked = [view.names[row] for row in decision.candidates]
    ends = [i for i, pair in enumerate(pairwise(decision.totals.tolist()), 1) if pair[0] != pair[1]]
    for start in (0, *ends):
        for end in (*ends, len(ranked)):
            if start < end:
                expected = described_one_by_one(
                    nodes, set(ranked[start:end]), nodes.keys() - unfit, tuple(keys)
                )
                assert groups.describe(start, end) == expected


def marked(view: ClusterView, *names: str) -> BoolColumn:
    mask = np.zeros(len(view), np.bool_)
    mask[[view.rows[name] for name in names]] = True
    return mask


def pod_on(node_name: str, cpu: str, memory: str) -> api.Pod:
    requests: api.ResourceList = {"cpu": cpu, "memory": memory}
    container = api.Container(resources=api.ResourceRequirements(requests=requests))
    return api.Pod(
        metadata=api.ObjectMeta(name=f"on-{node_name}", namespace="d"),
        spec=api.PodSpec(node_name=node_name, containers=[container]),
    )


def test_rejected_are_the_nodes_that_the_scheduler_would_take_and_a_policy_does_not() -> None:
    view = view_of(named("good", "hot", "full", "full-and-hot"))
    decision = decided(
        view, {"good": 1}, rejected=("hot", "full-and-hot"), unfit=("full", "full-and-hot")
    )
    rejections = Rejections(decision)
    assert rejections.unreachable.tolist() == marked(view, "full", "full-and-hot").tolist()
    assert rejections.rejected.tolist() == marked(view, "hot").tolist()


def test_a_filter_that_the_pod_demands_is_one_of_the_scheduler() -> None:
    view = view_of(named("good", "hot", "full"))
    decision = decided(view, {"good": 1}, rejected=("hot",), unfit=("full",))
    rejections = Rejections(decision, decision.filters[1:])
    assert rejections.unreachable.tolist() == marked(view, "hot", "full").tolist()
    assert not rejections.rejected.any()


def test_rejected_nodes_are_excluded_by_hostname() -> None:
    view = view_of(named("a", "b", "c"))
    exclusion = exclusion_of(marked(view, "a", "c"), view, Hostnames(view), 64)
    expected = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-a", "h-c"]}
    assert exclusion.requirements == (expected,)
    assert exclusion.left_out == 0


def test_nothing_rejected_is_no_requirement() -> None:
    view = view_of(named("a"))
    exclusion = exclusion_of(marked(view), view, Hostnames(view), 64)
    assert (exclusion.requirements, exclusion.left_out) == ((), 0)


def test_a_node_without_a_unique_hostname_is_not_excluded() -> None:
    twins = {"a": {HOSTNAME_LABEL: "t"}, "b": {HOSTNAME_LABEL: "t"}, "bare": {}}
    view = view_of(twins)
    exclusion = exclusion_of(marked(view, "a", "bare"), view, Hostnames(view), 64)
    assert (exclusion.requirements, exclusion.left_out) == ((), 2)


def test_of_too_many_those_are_excluded_that_the_scheduler_likes_best() -> None:
    # Requested of 4 cores and 8 GiB: a 25 % + 50 %, b 50 % + 12.5 %, c 75 % + 25 %, d nothing; e
    # has nothing to offer.
    state = ClusterState()
    for name in "abcd":
        state.set_node(node(name, {HOSTNAME_LABEL: name}))
    state.set_node(Node(name="e", labels={HOSTNAME_LABEL: "e"}, allocatable={}))
    for name, cpu, memory in [("a", "1", "4Gi"), ("b", "2", "1Gi"), ("c", "3", "2Gi")]:
        state.set_pod(pod_of(pod_on(name, cpu, memory)), seen_at=Micros(0))
    view = state.view()
    everything = marked(view, *"abcde")
    (requirement,) = exclusion_of(everything, view, Hostnames(view), 3).requirements
    assert requirement["values"] == ["a", "b", "d"]
    assert exclusion_of(everything, view, Hostnames(view), 3).left_out == 2


@settings(max_examples=50)
@given(order=st.permutations("abcdefgh"), max_nodes=st.integers(1, 8))
def test_the_order_in_which_nodes_became_known_does_not_matter(
    order: list[str], max_nodes: int
) -> None:
    # They are all as empty, so nothing but their names can tell which are left out of too many.
    one, other = view_of(named(*"abcdefgh")), view_of(named(*order))
    first, second = (
        exclusion_of(marked(view, *"abcdefgh"), view, Hostnames(view), max_nodes)
        for view in (one, other)
    )
    assert first == second


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE_A: Json = {"key": "zone", "operator": "In", "values": ["a"]}
NO_GPU: Json = {"key": "gpu", "operator": "DoesNotExist"}
BARE: Json = {"metadata": {"name": "p"}, "spec": {}}
GUARD = "!('gpu' in node.labels)"
EITHER = "'x' in node.labels || 'y' in node.labels"
X, Y = ({"key": key, "operator": "Exists"} for key in "xy")


def required_labels_view_of(nodes: Mapping[str, Labels]) -> ClusterView:
    """Return a view of nodes with room for any pod."""
    state = ClusterState()
    room = {"cpu": 4000, "memory": 8 * GIB, "pods": 110}
    for name, own in nodes.items():
        state.set_node(Node(name=name, labels=own, allocatable=room))
    return state.view()


VIEW = required_labels_view_of({"plain": {"x": ""}, "gpu": {"gpu": "a100", "x": "", "y": ""}})


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
    view = required_labels_view_of({"new": {"gen": "5"}, "old": {"gen": "2"}})
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
    view = required_labels_view_of({"n": {"zone": "a", "x": "", "s": ""}})
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
    view = required_labels_view_of({"gpu": {"gpu": "a100"}})
    after, _, decision = placed(policies(GUARD), view=view)
    assert decision.verdict is Verdict.ABSTAIN
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]
    assert preferred(after) == []


def test_a_pod_that_no_node_has_room_for_waits_for_the_right_one() -> None:
    after, _, decision = placed(policies(GUARD), view=ClusterState().view())
    assert decision.verdict is Verdict.ABSTAIN
    assert terms(after) == [{"matchExpressions": [NO_GPU]}]


def test_a_pod_that_is_denied_gets_nothing() -> None:
    view = required_labels_view_of({"gpu": {"gpu": "a100"}})
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
    view = required_labels_view_of({**labels, "gpu": {**labels["gpu"], "gpu": "a100"}})
    rules = policies(GUARD, "node.name != 'busy'", placement={"dynamicFilters": "Required"})
    after, _, _ = placed(rules, view=view)
    not_busy = {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["h-busy"]}
    assert terms(after) == [{"matchExpressions": [NO_GPU, not_busy]}]


def test_nothing_is_preferred_over_nodes_that_labels_shut_out() -> None:
    after, _, _ = placed(policies(GUARD), view=required_labels_view_of(named("one", "two")))
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
    view = required_labels_view_of({f"n{i}": node for i, node in enumerate(nodes)})
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
    view = required_labels_view_of({f"n{i}": {} for i in range(6)})
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


AFFINITY_ZONE: dict[str, Any] = {"key": "zone", "operator": "In", "values": ["a"]}
NOT_H1: dict[str, Any] = {"key": "host", "operator": "NotIn", "values": ["h1"]}
EXISTS: dict[str, Any] = {"key": "gpu", "operator": "DoesNotExist", "values": []}
NAME: dict[str, Any] = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
PREFER: dict[str, Any] = {"weight": 5, "preference": {"matchExpressions": [AFFINITY_ZONE]}}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

AffinityJson = dict[str, Any]


def grafted(document: AffinityJson, tree: AffinityJson) -> tuple[AffinityJson, list[str]]:
    """Return the document with the tree in it, and the paths of the operations that did it."""
    operations = list(graft(document, tree, ""))
    return jsonpatch.apply_patch(document, operations), [each["path"] for each in operations]


def terms_after(terms: list[Any] | None, *requirements: AffinityJson) -> list[Any]:
    """Return required terms after requirements were added to them."""
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    operations = list(and_into_required(affinity, [requirements]))
    pod = jsonpatch.apply_patch({"spec": {"affinity": affinity}}, operations)
    after: list[Any] = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return after


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({}, "/a"),
        ({"a": None}, "/a"),
        ({"a": {}}, "/a/b"),
        ({"a": {"b": None, "other": 1}}, "/a/b"),
        ({"a": {"b": {}}}, "/a/b/c"),
        ({"a": {"b": {"c": None}}}, "/a/b/c"),
        ({"a": {"b": {"c": []}}}, "/a/b/c/-"),
    ],
)
def test_the_lowest_missing_parent_is_added_whole(document: AffinityJson, path: str) -> None:
    after, paths = grafted(document, {"a": {"b": {"c": [1]}}})
    assert after["a"]["b"]["c"] == [1]
    assert paths == [path]


def test_lists_are_appended_to_in_order() -> None:
    after, paths = grafted({"a": [1]}, {"a": [2, 3]})
    assert after == {"a": [1, 2, 3]}
    assert paths == ["/a/-", "/a/-"]


def test_slashes_and_tildes_of_a_key_are_escaped() -> None:
    after, paths = grafted({"a": {}}, {"a": {"stowplan.dev/x~y": "1"}})
    assert after == {"a": {"stowplan.dev/x~y": "1"}}
    assert paths == ["/a/stowplan.dev~1x~0y"]


def test_every_term_that_is_not_empty_gets_every_requirement() -> None:
    terms = [
        {"matchExpressions": [AFFINITY_ZONE]},
        {"matchExpressions": [EXISTS], "matchFields": [NAME]},
    ]
    assert terms_after(terms, NOT_H1, EXISTS) == [
        {"matchExpressions": [AFFINITY_ZONE, NOT_H1, EXISTS]},
        {"matchExpressions": [EXISTS, NOT_H1, EXISTS], "matchFields": [NAME]},
    ]


@pytest.mark.parametrize("missing", [{}, {"matchExpressions": None}, {"matchExpressions": []}])
def test_a_term_with_fields_alone_gets_expressions(missing: AffinityJson) -> None:
    term = {"matchFields": [NAME], **missing}
    assert terms_after([term], NOT_H1) == [{"matchFields": [NAME], "matchExpressions": [NOT_H1]}]


@pytest.mark.parametrize(
    "empty", [None, {}, {"matchExpressions": None}, {"matchExpressions": [], "matchFields": []}]
)
def test_an_empty_term_matches_nothing_and_stays_so(empty: AffinityJson | None) -> None:
    assert terms_after([empty, {"matchFields": [NAME]}], NOT_H1)[0] == empty


@pytest.mark.parametrize("terms", [None, []])
def test_a_selector_without_terms_matches_nothing_and_stays_so(terms: list[Any] | None) -> None:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    assert list(and_into_required(affinity, [[NOT_H1]])) == []
    assert affinity_tree(affinity, [[NOT_H1]], []) == {}


@pytest.mark.parametrize(
    "affinity", [None, {}, {"nodeAffinity": None}, {"nodeAffinity": {REQUIRED: None}}]
)
def test_without_required_affinity_there_is_one_new_term(affinity: AffinityJson | None) -> None:
    new = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NOT_H1]}]}}
    assert affinity_tree(affinity, [[NOT_H1]], []) == {"nodeAffinity": new}
    assert list(and_into_required(affinity, [[NOT_H1]])) == []


def test_nothing_to_add_is_no_empty_object() -> None:
    assert affinity_tree(None, [], []) == {}


def test_preferred_terms_need_no_required_ones() -> None:
    assert affinity_tree(None, [], [PREFER]) == {"nodeAffinity": {PREFERRED: [PREFER]}}
