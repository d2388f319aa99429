from __future__ import annotations

from typing import Any

import jsonpatch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.errors import InvalidFileError
from engine.pipeline import decide
from engine.placement import Patch, encode_promises
from engine.policy import PolicySet
from engine.view import ClusterView
from tests.engine.placement.cluster import (
    Json,
    admits,
    request_of,
    required,
    with_affinity,
)
from tests.engine.placement.test_required_labels import (
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
    view_of,
)
from tests.engine.policy.label_analysis.label_filters import label_filters, labels
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
    assert terms_of(patched(BARE, promised(BARE, policies(GUARD), view_of({})))) == [_of(NO_GPU)]


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
    view = view_of({f"n{i}": own for i, own in enumerate(nodes)})
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
