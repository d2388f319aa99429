from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.model.policy_resource import PolicyKind, PolicyResource
from engine.policy import CompiledResource, compile_resource
from webhook.placement.policy_files import (
    MOST_PER_NAMESPACE,
    Acceptance,
    PolicyResources,
    ResourceStanding,
)

VALID = {"filters": [{"plugin": "LimitAware"}]}
BROKEN = {"filters": [{"plugin": "LimitAwar"}]}


def resource(
    name: str,
    spec: Any,  # noqa: ANN401 - any JSON
    *,
    namespace: str = "",
    **fields: Any,  # noqa: ANN401 - of a resource
) -> PolicyResource:
    kind = PolicyKind.NAMESPACED if namespace else PolicyKind.CLUSTER
    return PolicyResource(kind=kind, namespace=namespace, name=name, spec=spec, **fields)


class Counted:
    """Compiles, and notes what."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, each: PolicyResource) -> CompiledResource:
        self.names.append(each.policy_name)
        return compile_resource(each)

    def taken(self) -> list[str]:
        names, self.names = self.names, []
        return sorted(names)


async def standings(resources: PolicyResources, *file_names: str) -> dict[str, ResourceStanding]:
    await resources.compile_changed()
    found = resources.standings(frozenset(file_names))
    return {each.resource.policy_name: each for each in found}


async def test_only_what_changed_is_compiled_again() -> None:
    counted = Counted()
    resources = PolicyResources(counted)
    for name in ("a", "b"):
        resources.set(resource(name, VALID))
    await standings(resources)
    assert counted.taken() == ["a", "b"]
    assert not resources.changed.is_set()
    resources.set(resource("a", dict(VALID), version=9, status={"mode": "Enforce"}))
    assert not resources.changed.is_set()  # its status alone
    resources.set(resource("b", {"priority": 1}))
    assert resources.changed.is_set()
    found = await standings(resources)
    assert counted.taken() == ["b"]
    assert found["a"].resource.status == {"mode": "Enforce"}


async def test_a_broken_one_harms_no_other_and_keeps_its_last_valid_generation() -> None:
    resources = PolicyResources()
    resources.set(resource("a", VALID, uid="1", generation=1))
    resources.set(resource("b", BROKEN, uid="2", generation=4))
    first = await standings(resources)
    assert (first["a"].acceptance, first["b"].acceptance) == ("Accepted", "Invalid")
    assert first["b"].policy is None
    resources.set(resource("a", BROKEN, uid="1", generation=2))
    broken = (await standings(resources))["a"]
    assert broken.acceptance is Acceptance.INVALID
    assert (broken.resource.generation, broken.policy_generation) == (2, 1)
    assert broken.policy is first["a"].policy
    assert "LimitAwar" in str(broken.problems[0])


async def test_another_object_of_the_name_inherits_nothing() -> None:
    resources = PolicyResources()
    resources.set(resource("a", VALID, uid="1"))
    await standings(resources)
    resources.set(resource("a", BROKEN, uid="2"))
    assert (await standings(resources))["a"].policy is None
    resources.set(resource("a", VALID, uid="2"))
    assert (await standings(resources))["a"].policy is not None
    resources.delete(PolicyKind.CLUSTER, "a")
    assert await standings(resources) == {}


async def test_the_name_of_a_file_is_taken() -> None:
    resources = PolicyResources()
    resources.set(resource("a", VALID))
    resources.set(resource("a", VALID, namespace="shop"))
    found = await standings(resources, "a")
    assert (found["a"].acceptance, found["a"].policy) == (Acceptance.NAME_TAKEN, None)
    assert found["shop/a"].acceptance is Acceptance.ACCEPTED


async def test_a_namespace_has_its_oldest_policies_and_no_more() -> None:
    counted = Counted()
    resources = PolicyResources(counted)
    all_of_shop = [
        resource(f"p{i:02}", VALID, namespace="shop", created=100 - i)
        for i in range(MOST_PER_NAMESPACE + 1)
    ]
    for each in all_of_shop:
        resources.set(each)
    resources.set(resource("p", VALID, namespace="bank", created=200))
    found = await standings(resources)
    assert len(counted.taken()) == MOST_PER_NAMESPACE + 1
    late = [name for name, each in found.items() if each.acceptance is Acceptance.TOO_MANY]
    assert late == ["shop/p00"]  # the youngest
    resources.delete(PolicyKind.NAMESPACED, "shop/p05")
    found = await standings(resources)
    assert counted.taken() == ["shop/p00"]
    assert {each.acceptance for each in found.values()} == {Acceptance.ACCEPTED}


async def test_what_changes_while_others_are_compiled_is_next() -> None:
    resources: PolicyResources

    def compile_one(each: PolicyResource) -> CompiledResource:
        if each.generation == 1:
            resources.set(replace(each, spec={"priority": 2}, generation=2))
        return compile_resource(each)

    resources = PolicyResources(compile_one)
    resources.set(resource("a", VALID, generation=1))
    await resources.compile_changed()
    assert resources.changed.is_set()
    (standing,) = resources.standings(frozenset())
    assert standing.resource.generation == 1
    await resources.compile_changed()
    (standing,) = resources.standings(frozenset())
    assert standing.resource.generation == 2


def costly(rules: int) -> dict[str, Any]:
    """Return the spec of so many filters by a plugin, each of 30 + 150 microseconds."""
    return {"filters": [{"name": f"f{i}", "plugin": "LimitAware"} for i in range(rules)]}


async def test_policies_of_a_namespace_beyond_what_they_may_cost_are_not_in_force() -> None:
    resources = PolicyResources()
    for name, rules in (("a", 20), ("b", 10), ("c", 5)):
        resources.set(resource(name, costly(rules), namespace="shop", created=ord(name)))
    resources.set(resource("d", costly(20), namespace="bank"))
    resources.set(resource("e", costly(60)))  # for all namespaces: at no cost of theirs
    found = await standings(resources)
    # 20 + 10 rules are 5,400 us, 20 + 5 are 4,500 of the 5,000.
    assert {name: str(each.acceptance) for name, each in found.items()} == {
        "shop/a": "Accepted",
        "shop/b": "TooCostly",
        "shop/c": "Accepted",
        "bank/d": "Accepted",
        "e": "Accepted",
    }
    assert found["shop/b"].policy is None
    assert found["shop/b"].message.startswith(
        "it takes some 1.80 ms for each pod and 5,000 nodes, with the others of its namespace"
        " 5.40 ms: more than the 5.00 ms that policies of a namespace may; "
    )
    resources.delete(PolicyKind.NAMESPACED, "shop/a")
    assert (await standings(resources))["shop/b"].acceptance is Acceptance.ACCEPTED
