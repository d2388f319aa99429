from __future__ import annotations

from typing import Any

import jsonpatch
import msgspec
import pytest
from msgspec.structs import replace

from engine.model.advice import advice_in
from engine.model.placement_options import PlacementOptions
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement import Patch, PatchTemplate, SharedPatch, encode
from tests.engine.placement.cluster import (
    Json,
    decided,
    named,
    preferred,
    request_of,
    view_of,
    with_affinity,
)

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
