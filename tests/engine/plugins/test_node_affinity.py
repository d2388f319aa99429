from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.model.selectors import Operator, parse_node_selector, parse_preferred_terms
from engine.plugins.base import FAULT, PASS, Cycle
from engine.plugins.node_affinity import PLUGIN, NodeAffinityArgs
from tests.conformance.cluster import NOW, cluster_of, incoming

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.plugins.base import Scores
    from engine.view import ClusterView

_OWN = "node(s) didn't match Pod's node affinity/selector"
_ADDED = "node(s) didn't match scheduler-enforced node affinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _nodes(**labels: dict[str, str]) -> ClusterView:
    return cluster_of(
        {"nodes": [{"metadata": {"name": name, "labels": its}} for name, its in labels.items()]}
    )


def _pod(
    *required: dict[str, Any],
    preferred: list[dict[str, Any]] | None = None,
    selector: dict[str, str] | None = None,
) -> Pod:
    affinity: dict[str, Any] = {_PREFERRED: preferred}
    if required:
        affinity[_REQUIRED] = {"nodeSelectorTerms": list(required)}
    spec = {"nodeSelector": selector, "affinity": {"nodeAffinity": affinity}}
    return incoming({"pod": {"spec": spec}})


def _label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def _name(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def _prefer(weight: int, term: dict[str, Any]) -> dict[str, Any]:
    return {"weight": weight, "preference": term}


def _args(**added: Any) -> NodeAffinityArgs:  # noqa: ANN401 (JSON)
    return NodeAffinityArgs.model_validate({"addedAffinity": added} if added else {})


def _rejections(
    pod: Pod, view: ClusterView, args: NodeAffinityArgs | None = None
) -> dict[str, str | None]:
    """Return each node's reason, None where it passes."""
    assert PLUGIN.filter
    rule = PLUGIN.filter(args or _args())
    codes = rule.filter(Cycle(pod, view, NOW)).codes.tolist()
    texts = [
        None if code == PASS else "; ".join(rule.reasons(code, Cycle(pod, view, NOW)))
        for code in codes
    ]
    return dict(zip(view.names, texts, strict=True))


def _scores(pod: Pod, view: ClusterView, args: NodeAffinityArgs | None = None) -> Scores:
    assert PLUGIN.score
    return PLUGIN.score(args or _args()).score(Cycle(pod, view, NOW))


def test_a_pod_that_asks_for_nothing_fits_everywhere() -> None:
    assert _rejections(_pod(), _nodes(a={}, b={})) == {"a": None, "b": None}


def test_every_pair_of_the_node_selector_must_be_there() -> None:
    view = _nodes(a={"zone": "1", "disk": "ssd"}, b={"zone": "1"}, c={"zone": "2", "disk": "ssd"})
    pod = _pod(selector={"zone": "1", "disk": "ssd"})
    assert _rejections(pod, view) == {"a": None, "b": _OWN, "c": _OWN}


def test_the_node_selector_and_one_required_term_must_both_match() -> None:
    view = _nodes(a={"zone": "1", "gen": "4"}, b={"zone": "1", "gen": "3"}, c={"gen": "9"})
    pod = _pod(
        _label("gen", "Gt", "3"), _label("arch", "In", "arm64", "amd64"), selector={"zone": "1"}
    )
    assert _rejections(pod, view) == {"a": None, "b": _OWN, "c": _OWN}


def test_terms_can_name_nodes() -> None:
    view = _nodes(a={"zone": "1"}, b={"zone": "2"}, c={})
    named_and_labelled = _name("In", "b") | _label("zone", "In", "1")
    assert _rejections(_pod(_name("In", "a"), named_and_labelled), view) == {
        "a": None,
        "b": _OWN,
        "c": _OWN,
    }
    assert _rejections(_pod(_name("NotIn", "a") | _label("zone", "Exists")), view) == {
        "a": _OWN,
        "b": None,
        "c": _OWN,
    }


def test_the_added_affinity_must_match_too_and_is_named_first() -> None:
    view = _nodes(a={"zone": "1"}, b={"zone": "2"}, c={"zone": "1", "gen": "1"}, d={})
    added = _args(**{_REQUIRED: {"nodeSelectorTerms": [_label("zone", "In", "1")]}})
    assert _rejections(_pod(_label("gen", "DoesNotExist")), view, added) == {
        "a": None,
        "b": _ADDED,
        "c": _OWN,
        "d": _ADDED,
    }


def test_matching_preferred_terms_add_their_weights() -> None:
    view = _nodes(a={"zone": "1", "gen": "7"}, b={"zone": "1"}, c={})
    added = _args(**{_PREFERRED: [_prefer(50, _name("In", "c"))]})
    pod = _pod(
        preferred=[
            _prefer(10, _label("zone", "In", "1")),
            _prefer(7, _label("gen", "Gt", "6")),
            _prefer(7, _label("gen", "Gt", "6")),
        ]
    )
    # a: 10 + 7 + 7, b: 10, c: 50 from the added term
    assert _scores(pod, view, added).values.tolist() == [24, 10, 50]


def test_scores_are_scaled_to_the_greatest() -> None:
    assert PLUGIN.score
    # 24 * 100 / 50 = 48, 10 * 100 / 50 = 20
    scaled = PLUGIN.score(_args()).normalize(np.array([24, 10, 50]))
    assert scaled.tolist() == [48, 20, 100]


def test_one_bad_preferred_term_is_a_fault_on_every_node() -> None:
    view = _nodes(a={"zone": "1"}, b={})
    pod = _pod(preferred=[_prefer(9, _label("zone", "In", "1")), _prefer(1, _label("zone", "In"))])
    scores = _scores(pod, view)
    assert scores.faults is not None
    assert scores.faults.all()
    assert scores.values.tolist() == [0, 0]
    assert PLUGIN.score
    assert PLUGIN.score(_args()).fault(Cycle(pod, view, NOW), 0) == (
        f"{_PREFERRED}[1].matchExpressions[0].values: must not be empty for In and NotIn"
    )


def test_an_absurd_weight_is_a_fault_and_not_a_crash() -> None:
    scores = _scores(_pod(preferred=[_prefer(10**30, _label("a", "Exists"))]), _nodes(a={}))
    assert scores.faults is not None


def test_a_pod_that_names_very_many_labels_is_not_evaluated() -> None:
    view = _nodes(a={})
    many = {"matchExpressions": [{"key": f"k{i}", "operator": "Exists"} for i in range(65)]}
    assert PLUGIN.filter
    rule = PLUGIN.filter(_args())
    assert rule.filter(Cycle(_pod(many), view, NOW)).codes.tolist() == [FAULT]
    assert "64 labels" in rule.fault(Cycle(_pod(many), view, NOW), 0)
    scores = _scores(_pod(preferred=[_prefer(1, many)]), view)
    assert scores.faults is not None


def test_mistakes_in_the_added_affinity_are_refused_where_they_stand() -> None:
    added = {
        _REQUIRED: {"nodeSelectorTerms": [_name("In", "a", "b")]},
        _PREFERRED: [_prefer(1, _label("a b", "Exists"))],
    }
    with pytest.raises(ValidationError) as invalid:
        _args(**added)
    assert [error["loc"] for error in invalid.value.errors()] == [
        ("addedAffinity", _REQUIRED, "nodeSelectorTerms", 0, "matchFields", 0, "values"),
        ("addedAffinity", _PREFERRED, 0, "matchExpressions", 0, "key"),
    ]
    assert invalid.value.errors()[0]["msg"] == "must have one element"


def test_a_misspelt_key_in_the_added_affinity_is_refused() -> None:
    with pytest.raises(ValidationError, match="matchExpresions"):
        _args(**{_REQUIRED: {"nodeSelectorTerms": [{"matchExpresions": []}]}})


_keys = st.sampled_from(["zone", "gen", "a/b"])
_values = st.sampled_from(["a", "b", "3", "03", "-4", "٣", "x y"]) | st.text(max_size=2)
_labels = st.dictionaries(_keys, _values)
_names = st.sampled_from(["n0", "n1", "n2", "n9"])
_expressions = st.fixed_dictionaries(
    {"key": _keys, "operator": st.sampled_from(Operator), "values": st.lists(_values, max_size=2)}
) | st.fixed_dictionaries(
    {
        "key": _keys,
        "operator": st.sampled_from(["Gt", "Lt"]),
        "values": st.sampled_from([["3"], ["-1"], ["0"]]),
    }
)
_fields = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["metadata.name", "metadata.name", "spec.other"]),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.tuples(_names),
    }
)
_terms = st.fixed_dictionaries(
    {
        "matchExpressions": st.lists(_expressions, max_size=2),
        "matchFields": st.lists(_fields, max_size=2),
    }
)


@given(st.lists(_labels, min_size=1, max_size=4), st.lists(_terms, min_size=1, max_size=3))
def test_columns_say_what_the_requirements_say_node_by_node(
    labels: list[dict[str, str]], terms: list[dict[str, Any]]
) -> None:
    view = _nodes(**{f"n{i}": its for i, its in enumerate(labels)})
    pod = _pod(*terms, preferred=[_prefer(1 + i, term) for i, term in enumerate(terms)])
    assert pod.affinity is not None
    required = pod.affinity.required_during_scheduling_ignored_during_execution
    preferred = pod.affinity.preferred_during_scheduling_ignored_during_execution
    assert required is not None
    assert preferred is not None
    selector, _ = parse_node_selector(required)
    weighted, mistakes = parse_preferred_terms(preferred)
    nodes = {name: view.nodes[row] for name, row in view.rows.items()}
    scores = _scores(pod, view)
    assert (scores.faults is not None) == bool(mistakes)
    reasons = _rejections(pod, view)
    for name, node in nodes.items():
        assert node is not None
        assert (reasons[name] is None) == selector.matches(node.labels, name)
        if not mistakes:
            raw = sum(one.weight for one in weighted if one.term.matches(node.labels, name))
            assert scores.values[view.rows[name]] == raw
