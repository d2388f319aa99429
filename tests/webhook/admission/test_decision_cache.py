from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.advice import Advice
from engine.model.pod import pod_of
from engine.placement import advice_id
from engine.policy import PolicySet, load_policies
from webhook.admission import wire
from webhook.admission.decision_cache import Advised, DecisionCache
from webhook.admission.review_result import Outcome, ReviewResult
from webhook.admission.wire import AdmissionRequest

POLICIES = load_policies([])
POD = pod_of(msgspec.json.decode('{"metadata": {}, "spec": {}}', type=api.Pod))


def asking(uid: str, volume: str = "kube-api-access-x2k4d", **more: Any) -> AdmissionRequest:  # noqa: ANN401 - parts of a request, whatever they are
    spec = {"containers": [{"name": "c"}], "volumes": [{"name": volume}]}
    request = {
        "uid": uid,
        "operation": "CREATE",
        "namespace": "shop",
        "object": {"metadata": {"generateName": "web-"}, "spec": spec},
        **more,
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
    return wire.decode(json.dumps(body).encode())


def placed(
    uid: str, outcome: Outcome = Outcome.PLACED, nodes: tuple[str, ...] = ("node-1",)
) -> Advised:
    advice = Advice(nodes=nodes, id=advice_id(uid))
    operation = {"op": "add", "path": "/a", "value": msgspec.json.encode(advice).decode()}
    response = wire.allowed(uid, operations=[operation], warnings=["beware"])
    return Advised(POD, ReviewResult(outcome, response, rule_errors=1), advice)


class Busy:
    """DecisionCache that have decided for 30 of the last 100 ms, and the clock they go by."""

    def __init__(self) -> None:
        self.now = 10.0
        self.twins = DecisionCache(lambda: self.now)
        self.keep(asking("earlier", namespace="other"), seconds=0.03)

    def keep(
        self,
        request: AdmissionRequest,
        outcome: Outcome = Outcome.PLACED,
        *,
        seconds: float = 0.0,
        policies: PolicySet = POLICIES,
    ) -> None:
        began = self.now
        self.now += seconds
        self.twins.put(request, policies, placed(request.uid, outcome), began)

    def finds(self, request: AdmissionRequest, policies: PolicySet = POLICIES) -> bool:
        return self.twins.get(request, policies) is not None


def test_a_twin_gets_the_answer_under_its_own_name() -> None:
    busy = Busy()
    busy.keep(asking("u-1"))
    found = busy.twins.get(asking("u-2", "kube-api-access-zzzzz"), POLICIES)
    assert found == placed("u-2", Outcome.SHARED)


def test_an_advice_that_prefers_no_node_is_shared_too() -> None:
    busy = Busy()
    busy.twins.put(asking("u-1"), POLICIES, placed("u-1", nodes=()), busy.now)
    found = busy.twins.get(asking("u-2"), POLICIES)
    assert found == placed("u-2", Outcome.SHARED, ())


def test_twins_take_the_nodes_of_the_advice_by_turns() -> None:
    busy = Busy()
    busy.twins.put(asking("u-0"), POLICIES, placed("u-0", nodes=("a", "b", "c")), busy.now)
    found = [busy.twins.get(asking(f"u-{number}"), POLICIES) for number in (1, 2, 3, 4)]
    assert found == [
        placed("u-1", Outcome.SHARED, ("b", "c", "a")),
        placed("u-2", Outcome.SHARED, ("c", "a", "b")),
        placed("u-3", Outcome.SHARED, ("a", "b", "c")),
        placed("u-4", Outcome.SHARED, ("b", "c", "a")),
    ]


def test_as_long_as_there_is_time_each_pod_has_a_decision_of_its_own() -> None:
    twins = DecisionCache(lambda: 10.0)
    twins.put(asking("u-1"), POLICIES, placed("u-1"), 9.991)  # 9 of 100 ms
    assert twins.get(asking("u-2"), POLICIES) is None


def test_who_was_busy_a_while_ago_is_so_no_more() -> None:
    busy = Busy()
    assert busy.twins.is_busy
    busy.now += 0.11
    assert not busy.twins.is_busy


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "batch"},
        {"userInfo": {"username": "somebody-else"}},
        {"options": {"fieldManager": "other"}},
        {"name": "web-0"},
        {"dryRun": True},
        {"object": {"metadata": {"generateName": "api-"}}},
    ],
)
def test_pods_that_differ_are_no_twins(other: dict[str, Any]) -> None:
    busy = Busy()
    busy.keep(asking("u-1"))
    assert not busy.finds(asking("u-2", **other))
    busy.keep(asking("u-3", **other))
    assert busy.finds(asking("u-4"))  # and take no place of others


def test_under_other_policies_a_decision_says_nothing() -> None:
    busy = Busy()
    busy.keep(asking("u-1"), policies=load_policies([]))
    assert not busy.finds(asking("u-2"))


def test_a_decision_is_shared_for_a_quarter_of_a_second() -> None:
    busy = Busy()
    busy.keep(asking("u-1"))
    busy.now += 0.2
    busy.keep(asking("u-2", namespace="other"), seconds=0.03)  # still busy
    assert busy.finds(asking("u-3"))
    busy.now += 0.03
    assert not busy.finds(asking("u-4"))


def test_a_decision_is_shared_by_32_twins() -> None:
    busy = Busy()
    busy.keep(asking("u-0"))
    assert sum(busy.finds(asking(f"u-{number + 1}")) for number in range(40)) == 32


def test_a_pod_that_says_very_much_is_not_kept() -> None:
    busy, much = Busy(), {"metadata": {"annotations": {"a": "b" * 20_000}}}
    busy.keep(asking("u-1", object=much))
    assert not busy.finds(asking("u-2", object=much))


@pytest.mark.parametrize("outcome", [Outcome.DENIED, Outcome.ABSTAINED])
def test_only_advice_is_shared(outcome: Outcome) -> None:
    busy = Busy()
    busy.keep(asking("u-1"), outcome)
    assert not busy.finds(asking("u-2"))


def test_an_answer_that_says_more_than_once_whose_it_is_is_not_shared() -> None:
    busy, told = Busy(), placed("u-1")
    name = told.advice.id
    response = wire.allowed("u-1", operations=[{"op": "test", "path": f"/{name}", "value": name}])
    answer = msgspec.structs.replace(told.answer, response=response)
    twice = msgspec.structs.replace(told, answer=answer)
    busy.twins.put(asking("u-1"), POLICIES, twice, busy.now)
    assert not busy.finds(asking("u-2"))


def test_what_is_kept_is_bounded() -> None:
    busy = Busy()
    for number in range(300):
        busy.keep(asking(f"u-{number}", namespace=f"team-{number}"))
    assert not busy.finds(asking("u", namespace="team-235"))  # 64 are kept
    assert busy.finds(asking("u", namespace="team-236"))
