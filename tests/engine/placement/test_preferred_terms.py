from __future__ import annotations

from msgspec.structs import replace

from engine.model.decision import Decision
from engine.model.placement_options import PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.exclusion import Rejections
from engine.placement.hostnames import Hostnames
from engine.placement.preferred_terms import PreferredTerms, preferred_terms
from engine.view import ClusterView
from tests.engine.placement.cluster import Json, decided, named, view_of

SPOT = "karpenter.sh/capacity-type"


def preferred(decision: Decision, view: ClusterView, total_weight: int = 100) -> PreferredTerms:
    return preferred_terms(decision, view, Hostnames(view), Rejections(decision), total_weight)


def term(weight: int, *values: str, key: str = HOSTNAME_LABEL) -> Json:
    requirement = {"key": key, "operator": "In", "values": [*values]}
    return {"weight": weight, "preference": {"matchExpressions": [requirement]}}


def test_tiers_are_listed_by_hostname_best_first() -> None:
    # Stretched over 0..100: from 67 the upper third, from 34 the middle one.
    view = view_of(named(*"abcde"))
    result = preferred(decided(view, {"a": 0, "b": 30, "c": 60, "d": 100, "e": 90}), view)
    assert result.terms == [term(100, "h-d", "h-e"), term(66, "h-c"), term(33, "h-b")]
    assert [view.names[row] for row in result.best_tier] == ["d", "e"]


def test_a_group_label_stands_for_a_tier_of_more_nodes_than_may_be_named() -> None:
    nodes = {
        f"n{i}": {HOSTNAME_LABEL: f"n{i}", SPOT: "spot" if i < 6 else "on-demand"} for i in range(9)
    }
    view = view_of(nodes)
    scores = {name: 100 if nodes[name][SPOT] == "spot" else int(name[1:]) for name in nodes}
    result = preferred(decided(view, scores, placement=PlacementOptions(max_nodes=2)), view)
    # Above the bottom, which is n6 with 6: the six spot nodes, n7 and n8. The last two are the
    # lowest third, may be named, and are written as well.
    assert result.terms == [term(100, "spot", key=SPOT), term(33, "n8", "n7")]
    assert result.left_out == 0


def test_a_whole_score_group_is_described_where_the_rest_would_be_too_many_names() -> None:
    nodes = {
        f"n{i}": {HOSTNAME_LABEL: f"n{i}", SPOT: "spot" if i < 6 else "on-demand"} for i in range(9)
    }
    view = view_of(nodes)
    scores = {name: 100 if nodes[name][SPOT] == "spot" else int(name[1:]) for name in nodes}
    result = preferred(decided(view, scores, placement=PlacementOptions(max_nodes=1)), view)
    assert result.terms == [term(100, "spot", key=SPOT)]


def test_what_no_label_describes_is_cut_to_the_best() -> None:
    view = view_of(named(*"abcdef"))
    scores = {"a": 9, "b": 9, "c": 9, "d": 2, "e": 1, "f": 0}
    result = preferred(decided(view, scores, placement=PlacementOptions(max_nodes=2)), view)
    assert result.terms == [term(100, "h-a", "h-b")]


def test_a_node_without_hostname_is_named_where_it_is_a_tier_by_itself() -> None:
    view = view_of({"bare": {}, **named("a", "b")})
    result = preferred(decided(view, {"bare": 100, "a": 1, "b": 0}), view)
    name = {"key": "metadata.name", "operator": "In", "values": ["bare"]}
    assert result.terms == [{"weight": 100, "preference": {"matchFields": [name]}}, term(33, "h-a")]
    assert result.left_out == 0


def test_a_node_without_hostname_is_left_out_of_a_tier_of_several() -> None:
    view = view_of({"bare": {}, **named("a", "b")})
    result = preferred(decided(view, {"bare": 100, "a": 100, "b": 0}), view)
    assert result.terms == [term(100, "h-a")]
    assert [view.names[row] for row in result.best_tier] == ["a"]
    assert result.left_out == 1


def test_nothing_is_preferred_below_a_tier_of_nodes_that_share_a_hostname() -> None:
    # Stretched over 0..100: c is the upper third, t1 and t2 the middle one, a the lower one. Named
    # without them, it would be preferred to better nodes.
    twins = {"t1": {HOSTNAME_LABEL: "t"}, "t2": {HOSTNAME_LABEL: "t"}}
    view = view_of({**twins, **named("a", "b", "c")})
    scores = {"c": 100, "t1": 60, "t2": 60, "a": 20, "b": 0}
    result = preferred(decided(view, scores), view)
    assert result.terms == [term(100, "h-c")]
    assert result.left_out == 2
    del scores["c"]  # now they are the best
    result = preferred(decided(view, scores), view)
    assert (result.terms, result.best_tier.size, result.left_out) == ([], 0, 2)


def test_more_weight_than_a_term_has_is_written_as_nested_terms() -> None:
    view = view_of(named(*"abcd"))
    result = preferred(decided(view, {"a": 100, "b": 50, "c": 10, "d": 0}), view, 300)
    assert result.terms == [
        term(100, "h-a"),
        term(100, "h-a", "h-b"),
        term(100, "h-a", "h-b", "h-c"),
    ]


def test_a_name_in_several_nested_terms_counts_once() -> None:
    view = view_of(named(*"abcd"))
    decision = decided(view, {"a": 100, "b": 50, "c": 10, "d": 0})
    for most, written in [(3, 3), (2, 2)]:
        options = PlacementOptions(max_nodes=most)
        result = preferred(replace(decision, placement=options), view, 300)
        assert len(result.terms[-1]["preference"]["matchExpressions"][0]["values"]) == written


def test_nodes_without_hostname_between_others_leave_the_names_in_their_places() -> None:
    # Stretched over 0..100: a and b above 67, bare-1 and c above 34, d, bare-2 and e below.
    view = view_of({**named(*"abcdef"), "bare-1": {}, "bare-2": {}})
    scores = {"a": 100, "b": 90, "bare-1": 60, "c": 50, "d": 30, "bare-2": 20, "e": 10, "f": 0}
    result = preferred(decided(view, scores), view)
    assert result.terms == [term(100, "h-a", "h-b"), term(66, "h-c"), term(33, "h-d", "h-e")]
    assert result.left_out == 2


def test_nested_terms_need_a_hostname_of_every_node() -> None:
    # Nested, `bare` would be in the first term alone, and the other two in two terms.
    view = view_of({"bare": {}, **named("a", "b", "c")})
    result = preferred(decided(view, {"bare": 100, "a": 50, "b": 10, "c": 0}), view, 300)
    assert [each["weight"] for each in result.terms] == [100, 66, 33]


def test_nothing_to_prefer_is_no_term() -> None:
    view = view_of(named("a", "b"))
    result = preferred(decided(view, {"a": 5, "b": 5}), view)
    assert (result.terms, result.best_tier.size, result.left_out) == ([], 0, 0)
