from __future__ import annotations

from dataclasses import replace

import pytest

from engine.model.decision import PlacementRequest
from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.model.time import Micros
from engine.policy import CompiledPolicy, Match, PolicySet, compile_resource
from tests.engine.policy.worlds import NOW, policies, policy, request_of

_LOOKUPS = " || ".join(f"node.labels[?'l{i}'].orValue('') == pod.name" for i in range(20))


@pytest.mark.parametrize(
    ("spec", "cost"),
    [
        ("{}", 0),
        # A rule is 30; a column is 2, and of 5,000 rows each 512 are one more: 9. Twice 0.8, and
        # 0.15 for each of 2 nodes of the tree: 2.2, rounded up.
        ("filters: [{name: a, expression: node.ready}]", 30 + 2 + 9 + 3),
        # Two columns are compared: 2 + 9, a literal is free, and 4 + 9 for the comparison. Twice
        # 0.8 + 4 x 0.15: 2.8, rounded up.
        ("filters: [{name: a, expression: node.podCount > 3}]", 30 + 11 + 13 + 3),
        ("scores: [{plugin: NodeResourcesFit}]", 30 + 150),
        # One evaluation: 0.8, and 0.15 for each of 3 nodes of the tree: 1.25, rounded up.
        ("variables: [{name: a, expression: 1 + 2}]", 2),
    ],
)
def test_a_policy_costs_what_its_parts_do(spec: str, cost: int) -> None:
    assert policy(spec).cost == cost


def test_values_that_all_nodes_share_count_twice_and_functions_most() -> None:
    # For the key of the column, and for the column: each time 6 us a call.
    plain = policy("filters: [{name: a, expression: \"node.name in ['a', 'b']\"}]").cost
    called = policy("filters: [{name: a, expression: 'node.name in [string(now), string(now)]'}]")
    assert called.cost - plain >= 2 * 2 * 6
    looped = policy("filters: [{name: a, expression: '[1, 2].all(x, string(now) != node.name)'}]")
    assert looped.cost >= 2 * 8 * 6  # turns are not known before


def test_what_is_remembered_of_every_node_counts_as_a_tenth_of_its_evaluations() -> None:
    few = policy("filters: [{name: a, expression: \"node.labels['a'].matches('x')\"}]").cost
    many = policy("filters: [{name: a, expression: \"node.name.matches('x')\"}]").cost
    # 5,000 names and 32 labels, each at least 0.8 + 0.15 x 3: 1.25 us.
    assert many - few > (5_000 - 32) * 1.25 / 10 - 10


def _resource(kind: PolicyKind, count: int) -> PolicyResource:
    namespace = "shop" if kind is PolicyKind.NAMESPACED else ""
    scores = [{"name": f"s{i}", "expression": f"{_LOOKUPS} ? 1 : 0"} for i in range(count)]
    return PolicyResource(kind=kind, namespace=namespace, name="p", spec={"scores": scores})


def test_a_policy_of_a_namespace_that_costs_too_much_is_refused_with_figures() -> None:
    (problem,) = compile_resource(_resource(PolicyKind.NAMESPACED, 61)).problems
    assert problem.field == "spec"
    assert "ms for each pod and 5,000 nodes: more than the 5.00 ms" in problem.message
    assert "stowplan lint" in problem.hint
    assert compile_resource(_resource(PolicyKind.NAMESPACED, 2)).policy is not None
    assert compile_resource(_resource(PolicyKind.CLUSTER, 61)).policy is not None


def _names(match: Match) -> list[str]:
    return [found.name for found in match.enforced]


def _condition(*expressions: str) -> str:
    lines = [f"- {{name: c{i}, expression: {e!r}}}" for i, e in enumerate(expressions)]
    return "match:\n  matchConditions:\n" + "\n".join(f"  {line}" for line in lines)


def _matches(spec: str, request: PlacementRequest | None = None) -> bool:
    return bool(policies(p=spec).match(request or request_of(), NOW).enforced)


def test_a_policy_without_a_match_speaks_of_every_pod() -> None:
    assert _matches("{}")


def test_the_highest_priority_comes_first_then_the_name() -> None:
    loaded = policies(b="priority: 1", c="priority: 5", a="priority: 1", d="priority: -1")
    assert _names(loaded.match(request_of(), NOW)) == ["c", "a", "b", "d"]


def test_a_policy_for_a_namespace_applies_there_alone_and_comes_last() -> None:
    of_all = policies(b="priority: 1", a="priority: -5")
    of_shop = replace(policy("{priority: 9}"), name="shop/p", namespace="shop")
    of_bank = replace(policy("{priority: 9}"), name="bank/p", namespace="bank")
    loaded = PolicySet([of_bank, of_shop, *of_all])
    assert [found.name for found in loaded] == ["b", "a", "bank/p", "shop/p"]
    assert _names(loaded.match(request_of(), NOW)) == ["b", "a", "shop/p"]
    elsewhere = request_of(namespace="home")
    assert _names(loaded.match(elsewhere, NOW)) == ["b", "a"]
    assert not of_shop.selects(elsewhere)


def test_a_policy_for_a_namespace_may_loop_less() -> None:
    numbers = ",".join(map(str, range(200)))
    loops = f"[{numbers}].all(a, [{numbers}].all(b, a + b < 999))"
    spec = f'match: {{matchConditions: [{{name: c, expression: "{loops}"}}]}}'
    of_all = policy(spec)
    of_shop = replace(of_all, namespace="shop")
    errors: list[str] = []
    assert of_all.meets(request_of(), NOW, errors)
    assert not errors
    assert not of_shop.meets(request_of(), NOW, errors)
    assert "iterations" in errors[0]


def test_policies_in_audit_mode_are_kept_apart() -> None:
    match = policies(a="mode: Audit", b="mode: Enforce").match(request_of(), NOW)
    assert _names(match) == ["b"]
    assert [found.name for found in match.audited] == ["a"]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("matchLabels: {team: a}", True),
        ("matchLabels: {team: b}", False),
        ("matchLabels: {kubernetes.io/metadata.name: shop}", True),
        ("matchExpressions: [{key: team, operator: NotIn, values: [b]}]", True),
        ("matchExpressions: [{key: none, operator: Exists}]", False),
    ],
)
def test_a_namespace_is_selected_by_its_labels(selector: str, *, matches: bool) -> None:
    spec = f"match: {{namespaceSelector: {{{selector}}}}}"
    assert _matches(spec, request_of(namespace_labels={"team": "a"})) is matches


def test_a_pod_is_selected_by_its_labels() -> None:
    spec = "match: {objectSelector: {matchLabels: {app: web}}}"
    assert _matches(spec, request_of(labels={"app": "web"}))
    assert not _matches(spec, request_of(labels={"app": "db"}))


def test_all_conditions_must_be_true() -> None:
    assert _matches(_condition("pod.namespace == 'shop'", "!has(object.spec.nodeName)"))
    assert not _matches(_condition("pod.namespace == 'shop'", "has(object.spec.nodeName)"))


@pytest.mark.parametrize("order", [1, -1])
def test_a_false_condition_settles_it_even_if_another_fails(order: int) -> None:
    conditions = ["object.spec.none == 1", "false"][::order]
    match = policies(p=_condition(*conditions)).match(request_of(), NOW)
    assert (_names(match), match.errors) == ([], ())


def test_a_condition_that_fails_means_no_match_and_is_reported() -> None:
    match = policies(p=_condition("true", "object.spec.none == 1")).match(request_of(), NOW)
    assert _names(match) == []
    (error,) = match.errors
    assert error.startswith("p: match condition `c1`: ")
    assert "none" in error


def test_a_condition_that_gives_no_bool_fails() -> None:
    match = policies(p=_condition("object.spec")).match(request_of(), NOW)
    assert match.errors == ("p: match condition `c0`: the expression gave a `map`, not a `bool`",)


def test_the_sum_profiles_of_all_policies_are_kept_once() -> None:
    load = "scores: [{plugin: LoadAware}]"
    loaded = policies(a=load, b=load, c="filters: [{plugin: LimitAware}]")
    assert len(loaded.sum_profiles) == 1
    assert PolicySet().sum_profiles == ()


def test_a_policy_with_load_aware_expects_what_a_pod_will_use() -> None:
    spec = {"containers": [{"resources": {"limits": {"cpu": "1"}}}]}
    estimator = policy("scores: [{plugin: LoadAware}]").estimator
    assert estimator is not None
    assert estimator(request_of(spec).pod)["cpu"] == 850  # 85 % of a core
    assert policy("{}").estimator is None


def test_a_condition_may_read_the_moment() -> None:
    before, after = Micros(NOW - 1), Micros(NOW + 9_999_999)  # NOW is a multiple of the step
    loaded = policies(p=_condition("now >= timestamp('1970-01-12T13:46:40Z')"))
    assert [_names(loaded.match(request_of(), now)) for now in (before, NOW, after)] == [
        [],
        ["p"],
        ["p"],
    ]


def test_policies_of_one_namespace_share_their_iterations() -> None:
    names = (("", "all"), ("shop", "shop/a"), ("shop", "shop/b"), ("web", "web/a"))
    policies = PolicySet(CompiledPolicy(namespace=within, name=name) for within, name in names)
    shares = {policy.name: policy.most_iterations for policy in policies}
    assert shares == {"all": 250_000, "shop/a": 10_000, "shop/b": 10_000, "web/a": 20_000}
    assert {policy.name: policy.most_iterations for policy in policies.in_audit_mode()} == shares


def test_policies_of_one_namespace_share_what_columns_may_cost() -> None:
    costs = {"all": ("", 900), "shop/a": ("shop", 300), "shop/b": ("shop", 100)}
    policies = PolicySet(
        CompiledPolicy(namespace=namespace, name=name, cost=cost)
        for name, (namespace, cost) in costs.items()
    )
    # 5,000 in all, in proportion: 3 and 1 of 4 parts.
    shares = {policy.name: policy.most_column_steps for policy in policies}
    assert shares == {"all": None, "shop/a": 3_750, "shop/b": 1_250}


def _at_binding(expression: str, mode: str = "Enforce") -> str:
    filters = f'[{{name: f, expression: "{expression}"}}]'
    return f"{{mode: {mode}, placement: {{at: Binding}}, filters: {filters}}}"


@pytest.mark.parametrize(
    "spec",
    [
        "{}",
        "mode: Audit",
        "placement: {at: Admission}",
        _at_binding("'a' in node.labels"),
        _at_binding("node.requested.cpu < 1.0 && 'a' in node.labels"),
        _at_binding("!('a' in pod.labels) || node.labels['a'] == pod.labels['a']"),
    ],
)
def test_of_a_new_pod_there_is_to_say_what_is_decided_then_and_what_is_promised(spec: str) -> None:
    assert policies(p=spec).speaks_at_creation
    assert policies(p=spec, q="placement: {at: Binding}").speaks_at_creation


@pytest.mark.parametrize(
    "spec",
    [
        "placement: {at: Binding}",
        "{placement: {at: Binding}, filters: [{plugin: LoadAware}]}",
        "{mode: Audit, placement: {at: Binding}}",
        _at_binding("node.requested.cpu < 1.0"),
        _at_binding("'a' in node.labels", "Audit"),
    ],
)
def test_of_a_new_pod_there_is_nothing_to_say_where_all_is_decided_at_bindings(spec: str) -> None:
    assert not policies(p=spec).speaks_at_creation
    assert not PolicySet().speaks_at_creation
