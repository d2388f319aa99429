from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.webhook.contract import checked_answer
from webhook.admission import wire
from webhook.admission.handler import Outcome, ReviewResult
from webhook.admission.policies import MOST_OBJECT_BYTES, PolicyReviews
from webhook.admission.wire import AdmissionError

GROUP = "stowplan.dev"
VALID = {"filters": [{"name": "ready", "expression": "node.ready"}]}
BROKEN = {"filters": [{"name": "typo", "expression": "node.ready && nod.name != 'a'"}]}


def reviews(
    *,
    files: frozenset[str] = frozenset(),
    cost_of_others: Callable[[str, str], int] = lambda _namespace, _name: 0,
    clock: Callable[[], float] = lambda: 0.0,
) -> PolicyReviews:
    return PolicyReviews(
        file_names=lambda: files,
        cost_of_others=cost_of_others,
        excluded_namespaces=("kube-system",),
        clock=clock,
    )


def review(
    spec: object,
    operation: str = "CREATE",
    *,
    namespace: str = "",
    old: object = None,
    **more: object,
) -> dict[str, Any]:
    kind = "NamespacedPlacementPolicy" if namespace else "PlacementPolicy"
    plural = "namespacedplacementpolicies" if namespace else "placementpolicies"

    def manifest(spec: object) -> dict[str, Any]:
        metadata = {"name": "web", "uid": "1", **({"namespace": namespace} if namespace else {})}
        return {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": kind,
            "metadata": metadata,
            "spec": spec,
        }

    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "operation": operation,
            "resource": {"group": GROUP, "version": "v1alpha1", "resource": plural},
            "name": "web",
            "namespace": namespace,
            "object": manifest(spec),
            "oldObject": manifest(old) if operation == "UPDATE" else None,
            **more,
        },
    }


async def answered(sent: dict[str, Any], judge: PolicyReviews | None = None) -> ReviewResult:
    """Return the answer, which the API server would accept."""
    result = await (judge or reviews()).review(wire.decode(msgspec.json.encode(sent)))
    checked_answer(sent, msgspec.json.decode(wire.encode(result.response)))
    return result


async def refusal(sent: dict[str, Any], judge: PolicyReviews | None = None) -> str:
    result = await answered(sent, judge)
    assert result.outcome is Outcome.INVALID
    assert result.response.status is not None
    return result.response.status.message


async def warnings(sent: dict[str, Any], judge: PolicyReviews | None = None) -> list[str]:
    result = await answered(sent, judge)
    assert result.outcome is Outcome.ADMITTED
    return list(result.response.warnings)


async def test_a_broken_policy_is_refused_with_line_caret_field_and_hint() -> None:
    assert await refusal(review(BROKEN)) == (
        "1 mistake\n"
        "placementpolicies/web:7:31: spec.filters[0].expression: unknown name `nod`\n"
        " |   - expression: node.ready && nod.name != 'a'\n"
        " | ..............................^\n"
        "hint: did you mean `node`?"
    )


async def test_every_mistake_is_named_up_to_what_can_be_read() -> None:
    three = {"filters": [{"name": f"f{n}", "expression": "nod.ready"} for n in range(3)]}
    message = await refusal(review(three))
    assert message.startswith("3 mistakes\n")
    assert message.count("unknown name `nod`") == 3
    many = {"filters": [{"name": f"f{n}", "expression": "nod.ready"} for n in range(60)]}
    message = await refusal(review(many))
    assert message.startswith("60 mistakes\n")
    assert message.count("unknown name `nod`") == 20
    assert message.endswith("\n... `stowplan lint` shows all of them")


async def test_a_message_is_bounded_and_has_no_control_characters() -> None:
    text = "\x1b[2J" + "x" * 2_000
    spec = {"filters": [{"name": f"{n}{text}", "plugin": "Fit"} for n in range(20)]}
    message = await refusal(review(spec))
    assert len(message) < 9_000
    assert message.replace("\n", "").isprintable()


async def test_a_valid_policy_is_stored_without_a_word() -> None:
    assert await warnings(review(VALID)) == []
    assert await warnings(review(VALID, namespace="shop")) == []
    assert await warnings(review(VALID, dryRun=True)) == []


async def test_the_author_is_warned_of_what_lint_warns_of() -> None:
    spec = {"filters": [{"name": "small", "expression": "node.usage.memory < 4096.0"}]}
    (warning,) = await warnings(review(spec))
    assert warning.startswith("small: unit? `node.usage.memory < 4096.0`")


async def test_more_warnings_than_are_passed_on_are_counted() -> None:
    # One of the unit for each filter, and one for the first that is a copy of another.
    unit = "node.usage.memory < 4096.0"
    spec = {"filters": [{"name": f"f{n}", "expression": unit} for n in range(20)]}
    found = await warnings(review(spec))
    assert (len(found), found[-1]) == (16, "... and 6 more: `stowplan lint` shows them")


async def test_a_policy_of_one_namespace_reaches_no_other() -> None:
    spec = {**VALID, "match": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}
    assert await warnings(review(spec)) == []
    message = await refusal(review(spec, namespace="shop"))
    assert "it applies to pods of its own namespace alone" in message


async def test_a_name_that_a_file_has_is_refused_and_an_update_of_it_warned() -> None:
    taken = reviews(files=frozenset({"web"}))
    message = await refusal(review(VALID), taken)
    assert message.startswith("1 mistake\nplacementpolicies/web: metadata.name: a policy in a file")
    assert await warnings(review(VALID, namespace="shop"), taken) == []  # it is `shop/web`
    (warning,) = await warnings(review(VALID, "UPDATE", old=BROKEN), taken)
    assert warning.startswith("it is not in force: a policy in a file has the name `web`")


async def test_a_policy_of_a_namespace_that_is_never_reviewed_is_warned_of() -> None:
    (warning,) = await warnings(review(VALID, namespace="kube-system"))
    assert warning == "no pod of namespace `kube-system` is reviewed: it has no effect"


async def test_an_update_that_leaves_the_spec_alone_is_not_judged() -> None:
    same = await answered(review(BROKEN, "UPDATE", old=BROKEN))
    assert (same.outcome, same.response.allowed) == (Outcome.IGNORED, True)
    assert await refusal(review(BROKEN, "UPDATE", old=VALID))
    assert await warnings(review(VALID, "UPDATE", old=BROKEN)) == []


@pytest.mark.parametrize(
    "more",
    [
        {"subResource": "status"},
        {"operation": "DELETE"},
        {"resource": {"group": GROUP, "version": "v1alpha1", "resource": "others"}},
        {"resource": {"group": "other.dev", "version": "v1", "resource": "placementpolicies"}},
    ],
)
async def test_nothing_else_is_judged(more: dict[str, Any]) -> None:
    assert (await answered(review(BROKEN, **more))).outcome is Outcome.IGNORED


async def test_a_large_policy_is_refused() -> None:
    assert "larger than 65536 bytes" in await refusal(
        review({"match": {"objectSelector": {"matchLabels": {"a": "x" * 70_000}}}})
    )
    huge = {"match": {"objectSelector": {"matchLabels": {"a": "x" * MOST_OBJECT_BYTES}}}}
    assert "larger than 1048576 bytes" in await refusal(review(huge))


async def test_what_is_no_policy_is_an_error() -> None:
    sent = review(VALID)
    sent["request"]["object"]["metadata"] = 1
    with pytest.raises(AdmissionError, match="the object is not a policy"):
        await answered(sent)


async def test_lint_is_given_up_in_time() -> None:
    moments = iter([0.0, *[3.0] * 10_000])
    (warning,) = await warnings(review(VALID), reviews(clock=lambda: next(moments)))
    assert warning.startswith("its rules take too long to try all of them")


async def test_policies_are_judged_one_after_the_other_and_the_event_loop_goes_on() -> None:
    begun, go_on = threading.Event(), threading.Event()
    threads: list[int] = []

    def clock() -> float:  # read by the thread as it begins to lint
        threads.append(threading.get_ident())
        begun.set()
        go_on.wait()
        return 0.0

    judge = reviews(clock=clock)
    first, second, third = (asyncio.create_task(answered(review(VALID), judge)) for _ in range(3))
    await asyncio.to_thread(begun.wait)  # which the event loop is free to do
    third.cancel()  # as at its deadline: it never begins
    await asyncio.gather(third, return_exceptions=True)
    assert len(threads) == 1
    go_on.set()
    results = await asyncio.gather(first, second)
    assert [result.outcome for result in results] == [Outcome.ADMITTED] * 2
    reads_of_one = len(threads) // 2
    assert (len(set(threads)), len(threads)) == (1, 2 * reads_of_one)


async def test_a_policy_is_refused_where_those_of_its_namespace_cost_too_much_together() -> None:
    asked: list[tuple[str, str]] = []

    def others(namespace: str, name: str) -> int:
        asked.append((namespace, name))
        return 4_990

    judge = reviews(cost_of_others=others)
    # One filter on a flag is 41 us.
    assert await refusal(review(VALID, namespace="shop"), judge) == (
        "1 mistake\n"
        "namespacedplacementpolicies/shop/web: spec: it takes some 0.04 ms for each pod and 5,000"
        " nodes, with the others of its namespace 5.03 ms: more than the 5.00 ms that policies of a"
        " namespace may\nhint: drop or join rules; `stowplan lint` shows what each costs"
    )
    assert asked == [("shop", "web")]
    assert not await warnings(review(VALID), judge)


async def test_policies_of_many_are_judged_in_turn_with_those_of_one() -> None:
    judge, judged = reviews(), list[str]()

    async def write(namespace: str) -> None:
        await answered(review(VALID, namespace=namespace), judge)
        judged.append(namespace)

    await asyncio.gather(*map(write, ["shop", "shop", "shop", "shop", "bank"]))
    assert judged == ["shop", "shop", "bank", "shop", "shop"]
