from __future__ import annotations

from engine.model.label_condition import Exactness
from engine.policy import CompiledPolicy
from engine.policy.context import PolicyContext
from engine.policy.label_analysis.label_predicate import AnyOf, Constant, Precomputed
from tests.engine.policy.worlds import NOW, node, policy, request_of, view_of

GPU_GUARD = policy(
    """
    variables:
    - name: wantsGpu
      expression: pod.requests[?'nvidia.com/gpu'].orValue(0.0) > 0
    filters:
    - name: keep-off
      expression: variables.wantsGpu || !('gpu' in node.labels)
    - name: newest
      expression: int(node.labels.generation) > 3
    """
)
_GPU_SPEC = {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]}


def terms(compiled: CompiledPolicy, **spec: object) -> list[list[list[str]]]:
    """Return label and operator of what each filter of a policy requires for a pod."""
    context = PolicyContext(request_of(dict(spec)), NOW, variables=compiled.variables)
    return [
        [[f"{one.key} {one.operator}" for one in term] for term in found.terms]
        for found in (rule.labels.condition(context) for rule in compiled.filters)
    ]


def test_what_is_required_depends_on_the_pod() -> None:
    assert terms(GPU_GUARD) == [[["gpu DoesNotExist"]], [["generation Gt"]]]
    assert terms(GPU_GUARD, **_GPU_SPEC) == [[[]], [["generation Gt"]]]


def test_what_is_remembered_of_one_pod_is_not_told_of_another() -> None:
    for _ in range(2):
        assert terms(GPU_GUARD)[0] == [["gpu DoesNotExist"]]
        assert terms(GPU_GUARD, **_GPU_SPEC)[0] == [[]]


def test_a_part_that_is_the_same_for_every_pod_is_precomputed_at_load() -> None:
    guard, newest = (rule.labels.predicate for rule in GPU_GUARD.filters)
    assert isinstance(newest, Precomputed)
    assert isinstance(guard, AnyOf)
    assert [type(operand) for operand in guard.operands] == [Constant, Precomputed]


def test_the_outcome_of_a_filter_says_what_it_requires() -> None:
    view = view_of(node("a", labels={"gpu": "x", "generation": "4"}))
    context = GPU_GUARD.context(request_of(), view, NOW)
    outcomes = [rule.outcome(context) for rule in GPU_GUARD.filters]
    for outcome in outcomes:
        assert outcome.labels.exactness is Exactness.EXACT
        row = view.rows["a"]
        assert outcome.labels.allows({"gpu": "x", "generation": "4"}) != outcome.rejects[row]


def test_a_variable_that_fails_is_a_failure_of_what_reads_it() -> None:
    broken = policy(
        """
        variables: [{name: pool, expression: "pod.labels.pool"}]
        filters:
        - {name: reject, expression: "node.labels.pool == variables.pool"}
        - name: ignore
          expression: node.labels.pool == variables.pool
          onError: IgnoreRule
        """
    )
    assert terms(broken) == [[], [[]]]  # no node passes the first, every node the second
