from __future__ import annotations

import pytest

from engine.cel import compile_program
from engine.policy.environment import ExpressionScope, environment
from engine.policy.rules import ScoreExpression
from engine.policy_lint import policy_warnings
from engine.policy_lint.units import amount_of, unit_findings
from tests.engine.policy.worlds import NOW, node, policy, request_of, usage, view_of

GIB = 1 << 30
_RULES = environment(ExpressionScope.RULES, {})


def _warnings(expression: str) -> tuple[str, ...]:
    return tuple(map(str, unit_findings("", compile_program(expression, _RULES))))


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("node.usage.memory < 4096", "in bytes; for 4096 Mi write `4294967296.0`"),
        ("4096.0 > node.usage.memory", "in bytes; for 4096 Mi"),
        ("node.usage.memory < 0.65", "in bytes; divide it by what the node offers"),
        ("node.usage['memory'] < 64.0 * 1024.0", "in bytes; for 65536 Mi"),
        ("node.allocatable['ephemeral-storage'] > 100.0", "in bytes; for 100 Mi"),
        ("node.usage[?'memory'].orValue(0.0) > 512.0", "in bytes; for 512 Mi"),
        ("node.allocatable.memory - node.requested.memory > 1024.0", "in bytes"),
        ("has(node.usage) && node.usage.memory / 2.0 < 4096.0", "in bytes"),
        ("cel.bind(used, node.usage.memory, used < 4096.0)", "in bytes"),
        ("int(node.usage.memory) < 4096", "in bytes"),
        ("node.allocatable.cpu > 4000", "in cores; for 4000 millicores write `4`"),
        ("pod.requests.cpu <= 250.0", "in cores; for 250 millicores write `0.25`"),
        ("node.limits.cpu < 8000.0", "in cores; for 8000 millicores write `8`"),
        ("node.usage.cpu / node.allocatable.cpu < 65", "fraction; for 65 % write `0.65`"),
        ("1.0 - node.usage.cpu / node.allocatable.cpu > 35.0", "fraction; for 35 % write `0.35`"),
        (
            "(node.usage.cpu + pod.requests.cpu) / node.allocatable.cpu < 90.0",
            "fraction; for 90 % write `0.9`",
        ),
        (
            "math.greatest(node.usage.cpu, node.requested.cpu) / node.allocatable.cpu < 90.0",
            "fraction",
        ),
        ("node.limits.memory / node.allocatable.memory < 150.0", "fraction; for 150 % write `1.5`"),
        (
            "node.usage.cpu / node.allocatable.cpu * 100.0 < 0.65",
            "times 100, is in percent; for 65 % write `65.0`",
        ),
        ("node.usage.memory < node.allocatable.cpu", "compares bytes with cores"),
        ("node.usage.cpu / node.allocatable.cpu < node.usage.cpu", "a fraction with cores"),
        ("node.allocatable.cpu + node.allocatable.memory > 0.0", "adds up different units"),
        (
            "0.7 * node.usage.cpu + 0.3 * node.usage.memory > 1.0",
            "different units; add up the shares: write `node.usage.cpu / node.allocatable.cpu` and",
        ),
    ],
)
def test_a_number_that_does_not_fit_the_unit_is_a_warning(expression: str, advice: str) -> None:
    (warning,) = _warnings(expression)
    assert warning.startswith("unit? `")
    assert advice in warning


@pytest.mark.parametrize(
    "expression",
    [
        "node.usage.memory < 4294967296.0",
        "node.usage.memory < 4.0 * 1024.0 * 1024.0 * 1024.0",
        "node.usage.memory < quantity('4Gi').asApproximateFloat()",
        "node.usage.memory / 1048576.0 < 4096.0",  # in MiB
        "node.usage.memory > 0",
        "node.usage.cpu * 1000.0 < 4000.0",  # in millicores
        "node.allocatable.cpu > 4",
        "node.allocatable.cpu >= 896",  # the largest machines
        "pod.requests.cpu < 0.25",
        "node.usage.cpu / node.allocatable.cpu < 0.65",
        "node.usage.cpu / node.allocatable.cpu * 100.0 < 65.0",
        "node.limits.cpu / node.allocatable.cpu < 6.0",  # six times overcommitted
        "pod.limits.cpu / pod.requests.cpu < 50.0",
        "pod.requests['nvidia.com/gpu'] > 4",
        "node.podCount < 4000",
        "node.usage.memory + pod.limits.memory < 0.9 * node.allocatable.memory",
        "node.allocatable.cpu + node.allocatable.memory / 4294967296.0 > 8.0",
        "node.labels.cpu == '4096' && int(node.labels.generation) > 4000",
        "node.taints.size() < 65",
        "node.usage.cpu * 1e-300 / 1e300 < 4000.0",
    ],
)
def test_a_number_that_fits_is_none(expression: str) -> None:
    assert _warnings(expression) == ()


def test_variables_carry_what_they_measure() -> None:
    scope = environment(ExpressionScope.VARIABLES, {})
    wanted = compile_program("pod.requests.memory * 2.0", scope)
    variables = {"wanted": amount_of(wanted), "limit": amount_of(compile_program("4096.0", scope))}
    rules = environment(ExpressionScope.RULES, dict.fromkeys(variables, wanted.result_type))
    for expression in ("variables.wanted < 4096.0", "node.usage.memory < variables.limit"):
        (found,) = unit_findings("", compile_program(expression, rules), variables)
        assert "is in bytes" in found.message


@pytest.mark.parametrize(
    ("score", "share"),
    [
        ("node.usage.cpu", "node.usage.cpu / node.allocatable.cpu"),
        ("-node.usage.cpu", "node.usage.cpu / node.allocatable.cpu"),
        ("-0.001 * node.limits.memory", "node.limits.memory / node.allocatable.memory"),
        ("pod.priority > 0 ? node.requested.cpu : 0.0", "node.requested.cpu / node.allo"),
    ],
)
def test_a_score_by_what_is_in_use_needs_what_the_node_has_of_it(score: str, share: str) -> None:
    (warning,) = policy_warnings(policy(f"scores: [{{name: r, expression: '{score}'}}]"))
    assert "unit?" in warning.message
    assert f"a share of the node is `{share}" in warning.hint


@pytest.mark.parametrize(
    "score",
    [
        "-node.usage.cpu / node.allocatable.cpu",
        "node.allocatable.cpu - node.usage.cpu",
        "node.allocatable.memory",
        "-node.podCount",
    ],
)
def test_a_score_by_a_share_or_by_what_is_free_is_fine(score: str) -> None:
    assert policy_warnings(policy(f"scores: [{{name: r, expression: '{score}'}}]")) == ()


@pytest.mark.parametrize(
    ("score", "best"),
    [("-node.usage.cpu", "small"), ("1.0 - node.usage.cpu / node.allocatable.cpu", "large")],
)
def test_the_hint_for_cores_in_use_leads_to_the_emptier_node(score: str, best: str) -> None:
    # 8 of 64 cores are an eighth, 3 of 4 are three quarters; yet 8 cores are more than 3.
    view = view_of(
        node("large", allocatable={"cpu": 64_000}),
        usage("large", cpu=8_000),
        node("small", allocatable={"cpu": 4_000}),
        usage("small", cpu=3_000),
    )
    compiled = policy(f"scores: [{{name: r, expression: '{score}'}}]")
    evaluator = compiled.scores[0].evaluator
    assert isinstance(evaluator, ScoreExpression)
    (rows,) = view.valid.nonzero()
    scores, _ = evaluator.score(compiled.context(request_of(), view, NOW), rows)
    assert view.names[rows[scores.argmax()]] == best
