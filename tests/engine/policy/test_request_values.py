from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.policy import RuleContext
from engine.policy.request_values import SharedValues
from tests.engine.policy.worlds import NOW, node, policy, request_of, view_of

_POLICY = policy("""
variables:
  - {name: team, expression: pod.labels.team}
  - {name: steps, expression: "pod.ownerKinds.all(kind, kind != 'X')"}
filters:
  - {name: team, expression: "variables.team == 'a' || node.labels[?'pool'].orValue('') != 'a'"}
  - {name: loop, expression: "variables.steps && node.podCount < 9"}
  - {name: name, expression: "pod.generateName != 'b' || node.ready"}
  - {name: size, expression: "pod.requests.cpu < 2.0 || 'pool' in node.labels"}
scores:
  - {name: free, expression: "node.allocatable.cpu - node.requested.cpu - pod.requests.cpu"}
  - {name: zone, expression: "pod.labels[?'zone'].orValue('') == 'z' ? 1 : 0"}
""")
_VIEW = view_of(node("a", labels={"pool": "a"}), node("b", labels={"pool": "b"}), node("c"))
_REQUESTS = st.builds(
    lambda labels, owners, name, cpu: request_of(
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        labels=labels,
        generateName=name,
        ownerReferences=[{"kind": kind} for kind in owners],
    ),
    st.dictionaries(st.sampled_from(["team", "zone"]), st.sampled_from(["a", "z"])),
    st.lists(st.sampled_from(["X", "Y"]), max_size=2),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["1", "2"]),
)


def _evaluated(contexts: Sequence[RuleContext]) -> list[Any]:
    """Evaluate each rule for all requests, before the next rule; return all that came of it."""
    found: list[list[Any]] = [[] for _ in contexts]
    for rule in _POLICY.filters:
        for context, outcomes in zip(contexts, found, strict=True):
            outcomes.append(rule.outcome(context).rejects.tolist())
    for score in _POLICY.scores:
        for context, outcomes in zip(contexts, found, strict=True):
            outcomes.append(score.outcome(context, np.arange(len(_VIEW))).raw.tolist())
    return [
        (*outcomes, context.errors, context.budget.steps_left)
        for context, outcomes in zip(contexts, found, strict=True)
    ]


@given(st.lists(_REQUESTS, min_size=2, max_size=6), st.booleans())
def test_sharing_values_changes_nothing(requests: list[Any], together: bool) -> None:  # noqa: FBT001
    alone = [_evaluated([replace(_POLICY).context(each, _VIEW, NOW)])[0] for each in requests]
    shared = replace(_POLICY)  # it remembers nothing yet
    contexts = [shared.context(each, _VIEW, NOW) for each in requests]
    if together:
        assert _evaluated(contexts) == alone
    else:
        assert [_evaluated([context])[0] for context in contexts] == alone


def test_values_are_those_of_all_pods_that_agree_in_what_is_read() -> None:
    shared = SharedValues([each for each in _POLICY.programs if "zone" in each.source], {})
    values = shared.of(request_of(labels={"zone": "z", "app": "a"}, name="one").pod)
    assert shared.of(request_of(labels={"zone": "z"}, name="two").pod) is values
    assert shared.of(request_of(labels={"zone": "y"}).pod) is not values
    assert shared.of(request_of().pod) is not values


def test_what_differs_from_pod_to_pod_is_not_shared() -> None:
    sources = {each.source for each in _POLICY.programs}
    shared = SharedValues(_POLICY.programs, _POLICY.variables)
    assert sources - shared.sources == {"pod.generateName != 'b' || node.ready"}


@pytest.mark.parametrize("owners", [["Y", "Y"], []])
def test_values_are_computed_once_for_a_request_on_several_views(owners: list[str]) -> None:
    request = request_of(ownerReferences=[{"kind": kind} for kind in owners])
    context = replace(_POLICY).context(request, _VIEW, NOW)
    first, second = context.on(_VIEW), context.on(_VIEW)
    for each in (first, second):
        _evaluated([each])
    assert context.budget.steps_left - first.budget.steps_left == len(owners)
    assert second.budget.steps_left == context.budget.steps_left
    assert "p: variable `team`: no such key: `team`" in first.errors
    assert not any(line.startswith("p: variable") for line in second.errors)
