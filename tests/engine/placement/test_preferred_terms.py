from __future__ import annotations

from typing import Any

import jsonpatch
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.model.decision import Decision, RankedTotals, advice_in
from engine.model.policy_resource import PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement import Patch, PatchTemplate, SharedPatch, encode
from engine.placement.affinity import Hostnames, Rejections
from engine.placement.preferred_terms import (
    PreferredTerms,
    WeightTier,
    candidate_cuts,
    named_positions,
    named_tiers,
    names_needed,
    nodes_to_find,
    preferred_terms,
    score_tiers,
    weight_budget,
)
from engine.view import ClusterView, IntColumn
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)


@pytest.mark.parametrize(
    ("nodes", "percentage", "enough"),
    [
        (99, 0, 99),  # all of fewer than 100
        (200, 0, 100),  # 50 - 200 / 125 = 49 %, which is 98, but at least 100
        (1_000, 0, 420),  # 50 - 8 = 42 %
        (5_000, 0, 500),  # 50 - 40 = 10 %
        (6_000, 0, 300),  # 50 - 48 = 2 %, but at least 5 %
        (1_000, 70, 700),
        (1_000, 100, 1_000),
    ],
)
def test_the_number_of_feasible_nodes_the_scheduler_samples(
    nodes: int, percentage: int, enough: int
) -> None:
    assert nodes_to_find(nodes, percentage) == enough


@pytest.mark.parametrize(
    ("nodes", "feasible", "percentage", "names"),
    [
        (50, 50, 0, 8),  # all are looked at: the least that are named
        (200, 200, 0, 10),  # half: of 9, fewer than two in 195 of 10,000 samples; of 10, in 107
        (1_000, 1_000, 0, 13),
        (5_000, 5_000, 0, 64),  # a tenth
        (5_000, 500, 0, 8),  # a pool of nodes, of which all are found
        (5_000, 5_000, 100, 8),
        (50_000, 50_000, 0, 64),  # a twentieth: more would be needed
    ],
)
def test_how_many_names_put_two_nodes_in_the_sample(
    nodes: int, feasible: int, percentage: int, names: int
) -> None:
    assert names_needed(nodes, feasible, percentage) == names


@given(st.integers(100, 4_000), st.data())
def test_two_of_the_names_are_in_nearly_all_samples(nodes: int, data: st.DataObject) -> None:
    feasible = data.draw(st.integers(100, nodes))
    names = names_needed(nodes, feasible)
    draws = np.random.default_rng(nodes).hypergeometric(
        names, feasible - names, min(nodes_to_find(nodes), feasible), 20_000
    )
    assert np.mean(draws >= 2) >= 0.986  # five standard deviations below 0.99, where it is that


TOTALS = st.lists(st.integers(0, 50) | st.integers(0, 2000), min_size=1, max_size=40)


def in_order(*totals: int) -> IntColumn:
    return np.array(sorted(totals, reverse=True), np.int64)


def ranking(*totals: int) -> RankedTotals:
    return RankedTotals(np.array(totals, np.int64))


@pytest.mark.parametrize(
    ("user_weights", "ours"), [(0, 100), (1, 1), (100, 100), (150, 150), (300, 300), (5000, 300)]
)
def test_we_say_as_much_as_the_user_within_what_three_terms_can_say(
    user_weights: int, ours: int
) -> None:
    assert weight_budget(user_weights) == ours


def test_the_bottom_of_the_ranking_is_what_is_not_advised() -> None:
    assert list(candidate_cuts(ranking(9, 5, 1, 1), 64, lambda: False)) == [2]


def test_equal_nodes_are_all_or_none_preferred_by_whether_others_were_rejected() -> None:
    equal = ranking(7, 7, 7)
    assert list(candidate_cuts(equal, 64, lambda: False)) == []
    assert list(candidate_cuts(equal, 64, lambda: True)) == [3]


def test_no_candidate_is_nothing_to_prefer() -> None:
    assert list(candidate_cuts(ranking(), 64, lambda: True)) == []


def test_whole_score_groups_are_tried_before_a_group_is_cut() -> None:
    # All above the bottom: 6. The second best is a 9 like the two after it: 4.
    assert list(candidate_cuts(ranking(10, 9, 9, 9, 5, 4, 1), 2, lambda: False)) == [6, 4]


def test_a_cut_between_score_groups_is_tried_too() -> None:
    assert list(candidate_cuts(ranking(10, 9, 5, 4, 1), 2, lambda: False)) == [4, 2]


def test_thirds_of_the_score_range_weigh_three_two_one() -> None:
    # Between 0, the best that is not listed, and 90: from 60 the upper third, from 30 the middle.
    totals = ranking(90, 60, 59, 30, 29, 0)
    assert score_tiers(totals, 5, 100) == [
        WeightTier(0, 2, 100),
        WeightTier(2, 4, 66),
        WeightTier(4, 5, 33),
    ]


def test_an_empty_third_vanishes_and_the_others_keep_their_distance() -> None:
    assert score_tiers(ranking(90, 10, 0), 2, 100) == [WeightTier(0, 1, 100), WeightTier(1, 2, 33)]


def test_scores_bunched_at_the_top_are_stretched_down_to_the_best_that_is_not_listed() -> None:
    # Listed 100..97 over 97, not over 0: thirds from 99 and 98.
    totals = ranking(100, 99, 98, 97, 97, 0)
    assert score_tiers(totals, 4, 100) == [
        WeightTier(0, 2, 100),
        WeightTier(2, 3, 66),
        WeightTier(3, 4, 33),
    ]


def test_equal_scores_are_one_tier() -> None:
    assert score_tiers(ranking(5, 5, 5), 2, 100) == [WeightTier(0, 2, 100)]


def test_more_than_a_term_may_weigh_is_reached_by_nested_tiers() -> None:
    # 200: the levels are 200, 133, 66, so the steps add 67, 67 and 66.
    totals = ranking(90, 40, 10, 0)
    assert score_tiers(totals, 3, 200) == [
        WeightTier(0, 1, 67),
        WeightTier(0, 2, 67),
        WeightTier(0, 3, 66),
    ]


def test_nested_tiers_over_the_same_nodes_are_one_while_a_term_can_weigh_it() -> None:
    # 120: 40 each; two of them make 80, three would make 120.
    assert score_tiers(ranking(90, 0), 1, 120) == [WeightTier(0, 1, 80), WeightTier(0, 1, 40)]
    assert score_tiers(ranking(90, 0), 1, 300) == [WeightTier(0, 1, 100)] * 3


@given(scores=TOTALS, max_nodes=st.integers(1, 40), some_rejected=st.booleans())
def test_each_cut_is_narrower_and_between_two_scores(
    *, scores: list[int], max_nodes: int, some_rejected: bool
) -> None:
    totals = ranking(*scores)
    widths = list(candidate_cuts(totals, max_nodes, lambda: some_rejected))
    assert widths == sorted(set(widths), reverse=True)
    assert all(1 <= width <= len(scores) for width in widths)
    assert all(totals.at(width - 1) > totals.at(width) for width in widths if width < totals.size)


def named_nodes(cut: int, names: int) -> list[int]:
    positions, count = named_positions(cut, names)
    return [*map(int, positions[:count])]


def test_the_best_are_named_and_some_below_them_down_to_the_cut() -> None:
    # Of 64: 10, and every 7th of the 54 below them, for that makes 8.
    below = [10, 17, 24, 31, 38, 45, 52, 59]
    assert named_nodes(64, 10) == [*range(10), *below]
    assert named_nodes(12, 10) == [*range(12)]
    assert named_nodes(6, 10) == [*range(6)]


def test_pods_that_share_a_decision_name_the_best_32() -> None:
    positions, count = named_positions(64, 10)
    assert positions[count:].tolist() == [n for n in range(32) if n not in named_nodes(64, 10)]
    assert named_positions(64, 64).positions.tolist() == [*range(64)]


@given(cut=st.integers(1, 256), names=st.integers(1, 64))
def test_the_best_node_is_named_and_none_twice_or_beyond_the_cut(*, cut: int, names: int) -> None:
    chosen = named_nodes(cut, names)
    assert chosen[0] == 0
    assert chosen == sorted(set(chosen))
    assert chosen[-1] < cut
    assert len(chosen) <= names + 8


def test_a_quarter_of_the_names_is_the_first_tier_and_those_below_are_the_last() -> None:
    totals = in_order(*range(90, 100), 50, 40)
    assert named_tiers(totals, 10, 100) == [
        WeightTier(0, 3, 100),
        WeightTier(3, 10, 66),
        WeightTier(10, 12, 33),
    ]


def test_names_with_equal_scores_are_in_one_tier() -> None:
    # 9 is the score of the second, and so of the first tier; 5 that of the fifth, and so of all.
    assert named_tiers(in_order(9, 9, 9, 5, 5, 5, 5), 5, 100) == [
        WeightTier(0, 3, 100),
        WeightTier(3, 7, 66),
    ]


@given(TOTALS, st.data(), st.integers(100, 300))
def test_a_better_named_node_never_gets_less(
    scores: list[int], data: st.DataObject, total_weight: int
) -> None:
    names = data.draw(st.integers(1, 64))
    totals = in_order(*scores)[named_nodes(len(scores), names)]
    gained = _gained(named_tiers(totals, names, total_weight), totals.size)
    assert gained[0] == total_weight
    assert gained == sorted(gained, reverse=True)
    assert len(set(zip(totals.tolist(), gained, strict=True))) == len(set(totals.tolist()))


@given(TOTALS, st.data(), st.integers(100, 300))
def test_a_better_score_never_gets_less_and_equal_scores_get_the_same(
    scores: list[int], data: st.DataObject, total_weight: int
) -> None:
    totals = ranking(*scores)
    listed = data.draw(st.integers(1, len(scores)))
    chosen = score_tiers(totals, listed, total_weight)
    gained = _gained(chosen, listed)
    assert len(chosen) <= 3
    assert gained[0] == total_weight
    assert gained == sorted(gained, reverse=True)
    best = in_order(*scores)[:listed].tolist()
    assert len(set(zip(best, gained, strict=True))) == len(set(best))


def _gained(tiers: list[WeightTier], positions: int) -> list[int]:
    return [
        sum(tier.weight for tier in tiers if tier.start <= position < tier.end)
        for position in range(positions)
    ]


NODES = [f"n{number:02}" for number in range(40)]
VIEW = view_of(named(*NODES))
SCORES = {name: 100 - number for number, name in enumerate(NODES)}
# Of 39 nodes above the worst the 8 best are named, and every 4th of the 31 below them.
BELOW = [f"h-{name}" for name in NODES[8:39:4]]


def encoded(pod: Json | None = None, **options: Any) -> Patch:  # noqa: ANN401 - options of policies
    decision = decided(VIEW, SCORES, placement=PlacementOptions(**options))
    return encode(decision, request_of(pod or {"metadata": {}, "spec": {}}), VIEW)


def shared(patch: Patch, number: int, review_uid: str = "u") -> SharedPatch:
    return PatchTemplate(patch).filled(number, review_uid)


def listed(patch: Patch | SharedPatch, pod: Json | None = None) -> list[list[str]]:
    """Return the hostnames in each preferred term of ours."""
    after = jsonpatch.apply_patch(pod or {"metadata": {}, "spec": {}}, operations_of(patch))
    return [
        term["preference"]["matchExpressions"][0]["values"]
        for term in preferred(after)[-patch.advice.terms :]
    ]


def operations_of(patch: Patch | SharedPatch) -> list[Json]:
    if isinstance(patch, SharedPatch):
        operations: list[Json] = msgspec.json.decode(patch.document)
        return operations
    return list(patch.operations)


def hosts(*numbers: int) -> list[str]:
    return [f"h-{NODES[number]}" for number in numbers]


def test_each_turn_prefers_the_next_of_the_best_nodes() -> None:
    # The ring: 0 to 7, then those up to 31 that are not named below them.
    patch = encoded()
    assert listed(patch) == [hosts(0, 1), hosts(2, 3, 4, 5, 6, 7), BELOW]
    assert listed(shared(patch, 1)) == [hosts(2, 3), hosts(4, 5, 6, 7, 9, 10), BELOW]
    assert listed(shared(patch, 3)) == [hosts(6, 7), hosts(9, 10, 11, 13, 14, 15), BELOW]
    assert listed(shared(patch, 12)) == [hosts(30, 31), hosts(0, 1, 2, 3, 4, 5), BELOW]
    assert listed(shared(patch, 13)) == listed(patch)
    assert listed(patch) == [hosts(0, 1), hosts(2, 3, 4, 5, 6, 7), BELOW]


def test_each_turn_counts_on_its_own_best_node() -> None:
    patch = encoded()
    best = [shared(patch, number).advice.nodes for number in (0, 1, 12, 13, 14)]
    assert best == [
        ("n00", "n01"),
        ("n02", "n03"),
        ("n30", "n31"),
        ("n01", "n00"),  # when all had their turn, the next of each
        ("n03", "n02"),
    ]


def test_the_annotation_of_a_turn_is_its_advice() -> None:
    patch = shared(encoded(), 2, "a-review")
    after = jsonpatch.apply_patch({"metadata": {}, "spec": {}}, operations_of(patch))
    assert advice_in(after["metadata"]["annotations"]) == patch.advice
    assert patch.advice.id != encoded().advice.id


@pytest.mark.parametrize(
    "pod",
    [
        {},
        with_affinity({}),
        with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": []}),
        with_affinity(
            {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 3,
                        "preference": {
                            "matchExpressions": [
                                {"key": HOSTNAME_LABEL, "operator": "In", "values": ["h-n00"]}
                            ]
                        },
                    }
                ]
            }
        ),
    ],
)
def test_terms_are_dealt_wherever_the_patch_has_put_them(pod: Json) -> None:
    patch = shared(encoded(pod), 1)
    assert listed(patch, pod)[0] == hosts(2, 3)


def test_the_only_term_is_dealt_too() -> None:
    # Beside a weight of 1 ours is 1, which no second tier can be a part of. The ring: 0 to 31, and
    # those below them that would be named without turns.
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    term = {"weight": 1, "preference": preference}
    pod = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [term]})
    patch = encoded(pod)
    assert listed(patch, pod) == [hosts(0, 1)]
    turns = [shared(patch, number) for number in range(17)]
    assert [listed(turn, pod) for turn in turns[:5]] == [
        [hosts(number, number + 1)] for number in (0, 2, 4, 6, 8)
    ]
    assert [turn.advice.nodes for turn in turns[4:17:12]] == [("n08", "n09"), ("n32", "n36")]


@pytest.mark.parametrize(
    ("in_b", "first"),
    [
        ((0, 1, 10, 11, 13, 14), [hosts(0, 1), hosts(10, 11), hosts(13, 14), hosts(0, 1)]),
        ((0, 1, 10), [hosts(0, 1), hosts(10, 0), hosts(0, 1)]),
        ((0, 1), None),  # all have the same terms
    ],
)
@pytest.mark.parametrize("weight", [1, 2, 100])
def test_no_turn_leads_away_from_nodes_that_the_user_prefers(
    weight: int, in_b: tuple[int, ...], first: list[list[str]] | None
) -> None:
    zones = {name: "b" if number in in_b else "a" for number, name in enumerate(NODES)}
    view = view_of({name: {HOSTNAME_LABEL: f"h-{name}", "zone": zones[name]} for name in NODES})
    decision = replace(decided(view, SCORES), placement=PlacementOptions(group_labels=()))
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    term = {"weight": weight, "preference": preference}
    pod = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [term]})
    request = request_of(pod)
    patch = encode(replace(decision, pod=request.pod), request, view)
    assert (patch.turns is None) is (first is None)
    if first is not None:
        turns = [listed(shared(patch, number), pod)[0] for number in range(len(first))]
        assert turns == first


def test_all_pods_get_the_same_terms_where_there_are_as_few_as_may_be_named() -> None:
    patch = encoded(max_nodes=1)
    assert patch.turns is None
    assert listed(shared(patch, 1)) == listed(patch) == [hosts(0)]


def test_nested_terms_are_the_same_for_all() -> None:
    weights = {"weight": 80, "preference": {"matchExpressions": []}}
    pod = with_affinity({"preferredDuringSchedulingIgnoredDuringExecution": [weights, weights]})
    assert encoded(pod).turns is None


def test_nodes_without_hostname_are_dealt_neither() -> None:
    view = view_of({**named(*NODES), "n02": {}})
    decision = decided(view, SCORES)
    patch = encode(replace(decision, view_version=view.version), request_of({}), view)
    assert patch.turns is not None
    nodes = {name for turn in range(patch.turns.count) for name in patch.turns.nodes(turn)}
    assert nodes == {"n00", "n01", *NODES[3:32]} - set(NODES[8:37:4])
    assert listed(shared(patch, 1))[0] == hosts(3, 4)


SPOT = "karpenter.sh/capacity-type"


def preferred_by(decision: Decision, view: ClusterView, total_weight: int = 100) -> PreferredTerms:
    return preferred_terms(decision, view, Hostnames(view), Rejections(decision), total_weight)


def term(weight: int, *values: str, key: str = HOSTNAME_LABEL) -> Json:
    requirement = {"key": key, "operator": "In", "values": [*values]}
    return {"weight": weight, "preference": {"matchExpressions": [requirement]}}


def test_tiers_are_listed_by_hostname_best_first() -> None:
    # Stretched over 0..100: from 67 the upper third, from 34 the middle one.
    view = view_of(named(*"abcde"))
    result = preferred_by(decided(view, {"a": 0, "b": 30, "c": 60, "d": 100, "e": 90}), view)
    assert result.terms == [term(100, "h-d", "h-e"), term(66, "h-c"), term(33, "h-b")]
    assert [view.names[row] for row in result.best_tier] == ["d", "e"]


def test_a_group_label_stands_for_a_tier_of_more_nodes_than_may_be_named() -> None:
    nodes = {
        f"n{i}": {HOSTNAME_LABEL: f"n{i}", SPOT: "spot" if i < 6 else "on-demand"} for i in range(9)
    }
    view = view_of(nodes)
    scores = {name: 100 if nodes[name][SPOT] == "spot" else int(name[1:]) for name in nodes}
    result = preferred_by(decided(view, scores, placement=PlacementOptions(max_nodes=2)), view)
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
    result = preferred_by(decided(view, scores, placement=PlacementOptions(max_nodes=1)), view)
    assert result.terms == [term(100, "spot", key=SPOT)]


def test_what_no_label_describes_is_cut_to_the_best() -> None:
    view = view_of(named(*"abcdef"))
    scores = {"a": 9, "b": 9, "c": 9, "d": 2, "e": 1, "f": 0}
    result = preferred_by(decided(view, scores, placement=PlacementOptions(max_nodes=2)), view)
    assert result.terms == [term(100, "h-a", "h-b")]


def test_a_node_without_hostname_is_named_where_it_is_a_tier_by_itself() -> None:
    view = view_of({"bare": {}, **named("a", "b")})
    result = preferred_by(decided(view, {"bare": 100, "a": 1, "b": 0}), view)
    name = {"key": "metadata.name", "operator": "In", "values": ["bare"]}
    assert result.terms == [{"weight": 100, "preference": {"matchFields": [name]}}, term(33, "h-a")]
    assert result.left_out == 0


def test_a_node_without_hostname_is_left_out_of_a_tier_of_several() -> None:
    view = view_of({"bare": {}, **named("a", "b")})
    result = preferred_by(decided(view, {"bare": 100, "a": 100, "b": 0}), view)
    assert result.terms == [term(100, "h-a")]
    assert [view.names[row] for row in result.best_tier] == ["a"]
    assert result.left_out == 1


def test_nothing_is_preferred_below_a_tier_of_nodes_that_share_a_hostname() -> None:
    # Stretched over 0..100: c is the upper third, t1 and t2 the middle one, a the lower one. Named
    # without them, it would be preferred to better nodes.
    twins = {"t1": {HOSTNAME_LABEL: "t"}, "t2": {HOSTNAME_LABEL: "t"}}
    view = view_of({**twins, **named("a", "b", "c")})
    scores = {"c": 100, "t1": 60, "t2": 60, "a": 20, "b": 0}
    result = preferred_by(decided(view, scores), view)
    assert result.terms == [term(100, "h-c")]
    assert result.left_out == 2
    del scores["c"]  # now they are the best
    result = preferred_by(decided(view, scores), view)
    assert (result.terms, result.best_tier.size, result.left_out) == ([], 0, 2)


def test_more_weight_than_a_term_has_is_written_as_nested_terms() -> None:
    view = view_of(named(*"abcd"))
    result = preferred_by(decided(view, {"a": 100, "b": 50, "c": 10, "d": 0}), view, 300)
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
        result = preferred_by(replace(decision, placement=options), view, 300)
        assert len(result.terms[-1]["preference"]["matchExpressions"][0]["values"]) == written


def test_nodes_without_hostname_between_others_leave_the_names_in_their_places() -> None:
    # Stretched over 0..100: a and b above 67, bare-1 and c above 34, d, bare-2 and e below.
    view = view_of({**named(*"abcdef"), "bare-1": {}, "bare-2": {}})
    scores = {"a": 100, "b": 90, "bare-1": 60, "c": 50, "d": 30, "bare-2": 20, "e": 10, "f": 0}
    result = preferred_by(decided(view, scores), view)
    assert result.terms == [term(100, "h-a", "h-b"), term(66, "h-c"), term(33, "h-d", "h-e")]
    assert result.left_out == 2


def test_nested_terms_need_a_hostname_of_every_node() -> None:
    # Nested, `bare` would be in the first term alone, and the other two in two terms.
    view = view_of({"bare": {}, **named("a", "b", "c")})
    result = preferred_by(decided(view, {"bare": 100, "a": 50, "b": 10, "c": 0}), view, 300)
    assert [each["weight"] for each in result.terms] == [100, 66, 33]


def test_nothing_to_prefer_is_no_term() -> None:
    view = view_of(named("a", "b"))
    result = preferred_by(decided(view, {"a": 5, "b": 5}), view)
    assert (result.terms, result.best_tier.size, result.left_out) == ([], 0, 0)
