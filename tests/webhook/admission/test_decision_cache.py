from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.decision import Verdict
from engine.model.pod import pod_of
from engine.placement import ADVICE_ANNOTATION, Advice, Patch, SharedPatch, advice_id
from engine.policy import PolicySet, load_policies
from webhook.admission import wire
from webhook.admission.decision_cache import DecisionCache
from webhook.admission.wire import AdmissionRequest
from webhook.placement.placer import Placement

POLICIES = load_policies([])
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
POD = pod_of(msgspec.json.decode('{"metadata": {}, "spec": {}}', type=api.Pod))


def request_of(uid: str, volume: str = "kube-api-access-x2k4d", **more: Any) -> AdmissionRequest:  # noqa: ANN401 - parts of a request, whatever they are
    mount = {"name": volume, "readOnly": True, "mountPath": MOUNT_PATH}
    spec = {
        "volumes": [{"name": volume, "projected": {"sources": []}}],
        "containers": [{"name": "c", "volumeMounts": [mount]}],
        **more.pop("spec", {}),
    }
    request = {
        "uid": uid,
        "operation": "CREATE",
        "namespace": "shop",
        "object": {"metadata": {"generateName": "web-"}, "spec": spec},
        **more,
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
    return wire.decode(json.dumps(body, separators=(",", ":")).encode())  # as Go writes it


def placed(
    uid: str, verdict: Verdict = Verdict.PLACE, nodes: tuple[str, ...] = ("node-1",)
) -> Placement:
    advice = Advice(nodes=nodes, id=advice_id(uid))
    annotations = {ADVICE_ANNOTATION: msgspec.json.encode(advice).decode(), "other": "text"}
    operation = {"op": "add", "path": "/metadata/annotations", "value": annotations}
    patch = Patch((operation,), advice, ("beware",))
    return Placement(pod=POD, verdict=verdict, errors=("one",), patch=patch, advice=advice)


def written(placement: Placement) -> SharedPatch:
    return SharedPatch(wire.json_patch(placement.patch.operations), placement.advice)


class Busy:
    """A cache after decisions that took 30 of the last 100 ms, and its clock."""

    def __init__(self) -> None:
        self.now = 10.0
        self.is_crowded = False
        self.cache = DecisionCache(lambda: self.now, lambda: self.is_crowded)
        self.keep(request_of("earlier", namespace="other"), seconds=0.03)

    def keep(
        self,
        request: AdmissionRequest,
        verdict: Verdict = Verdict.PLACE,
        *,
        seconds: float = 0.0,
        policies: PolicySet = POLICIES,
    ) -> None:
        began = self.now
        self.now += seconds
        self.cache.put(request, policies, placed(request.uid, verdict), began)

    def finds_for(self, request: AdmissionRequest) -> SharedPatch:
        found = self.cache.get(request, POLICIES)
        assert found is not None
        return found[1]

    def finds(self, request: AdmissionRequest, policies: PolicySet = POLICIES) -> bool:
        return self.cache.get(request, policies) is not None


def test_a_pod_of_the_same_template_gets_the_placement_under_its_own_name() -> None:
    busy = Busy()
    busy.keep(request_of("u-1"))
    assert busy.finds_for(request_of("u-2", "kube-api-access-zzzzz")) == written(placed("u-2"))


def test_an_advice_that_prefers_no_node_is_shared_too() -> None:
    busy = Busy()
    busy.cache.put(request_of("u-1"), POLICIES, placed("u-1", nodes=()), busy.now)
    assert busy.finds_for(request_of("u-2")) == written(placed("u-2", nodes=()))


def test_pods_of_one_template_take_the_nodes_of_the_advice_by_turns() -> None:
    busy = Busy()
    busy.cache.put(request_of("u-0"), POLICIES, placed("u-0", nodes=("a", "b", "c")), busy.now)
    found = [busy.finds_for(request_of(f"u-{number}")) for number in (1, 2, 3, 4)]
    assert found == [
        written(placed("u-1", nodes=("b", "c", "a"))),
        written(placed("u-2", nodes=("c", "a", "b"))),
        written(placed("u-3", nodes=("a", "b", "c"))),
        written(placed("u-4", nodes=("b", "c", "a"))),
    ]


def test_as_long_as_there_is_time_each_pod_has_a_decision_of_its_own() -> None:
    cache = DecisionCache(lambda: 10.0, lambda: False)
    cache.put(request_of("u-1"), POLICIES, placed("u-1"), 9.991)  # 9 of 100 ms
    assert cache.get(request_of("u-2"), POLICIES) is None


def test_a_busy_time_ends_after_a_while() -> None:
    busy = Busy()
    assert busy.cache.is_busy
    busy.now += 0.11
    assert not busy.cache.is_busy
    busy.is_crowded = True
    assert busy.cache.is_busy


def pinned_to(value: str) -> dict[str, Any]:
    return {"nodeSelector": {"name": value}, "containers": [{"name": value}]}


def test_a_text_like_the_name_of_a_token_volume_elsewhere_in_a_pod_tells_pods_apart() -> None:
    busy = Busy()
    busy.keep(request_of("u-1", spec=pinned_to("kube-api-access-aaaaa")))
    assert not busy.finds(request_of("u-2", spec=pinned_to("kube-api-access-bbbbb")))
    assert busy.finds(request_of("u-3", spec=pinned_to("kube-api-access-aaaaa")))


def test_a_pod_whose_user_has_very_many_groups_is_not_shared() -> None:
    user = {"username": "somebody", "groups": ["g" * 20_000]}
    busy = Busy()
    busy.keep(request_of("u-1", userInfo=user))
    assert not busy.finds(request_of("u-2", userInfo=user))


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
def test_pods_that_differ_do_not_share(other: dict[str, Any]) -> None:
    busy = Busy()
    busy.keep(request_of("u-1"))
    assert not busy.finds(request_of("u-2", **other))
    busy.keep(request_of("u-3", **other))
    assert busy.finds(request_of("u-4"))  # and take no place of others


def test_under_other_policies_a_decision_says_nothing() -> None:
    busy = Busy()
    busy.keep(request_of("u-1"), policies=load_policies([]))
    assert not busy.finds(request_of("u-2"))


def test_a_decision_is_shared_for_a_quarter_of_a_second() -> None:
    busy = Busy()
    busy.keep(request_of("u-1"))
    busy.now += 0.2
    busy.keep(request_of("u-2", namespace="other"), seconds=0.011)  # still busy
    assert busy.finds(request_of("u-3"))
    busy.now += 0.07
    assert not busy.finds(request_of("u-4"))


def test_a_decision_is_shared_for_longer_where_decisions_take_more_of_the_time() -> None:
    busy = Busy()
    busy.keep(request_of("u-1"))
    busy.now += 0.9
    busy.keep(request_of("u-2", namespace="other"), seconds=0.035)
    assert not busy.finds(request_of("u-3"))  # 0.88 s at 35 of 100 ms
    busy.keep(request_of("u-4", namespace="other"), seconds=0.005)
    assert busy.finds(request_of("u-5"))  # 1 s at 40 of 100 ms
    busy.keep(request_of("u-6", namespace="other"), seconds=0.06)
    assert not busy.finds(request_of("u-7"))  # never more than that


def test_a_decision_is_shared_32_times() -> None:
    busy = Busy()
    busy.keep(request_of("u-0"))
    assert sum(busy.finds(request_of(f"u-{number + 1}")) for number in range(40)) == 32


def test_a_decision_may_be_shared_twice_as_often_and_for_two_seconds_as_the_last_resort() -> None:
    busy = Busy()
    busy.is_crowded = True
    busy.keep(request_of("u-0"))
    busy.now += 1.9
    requests = [request_of(f"u-{number + 1}") for number in range(70)]
    assert not any(map(busy.finds, requests))
    found = [busy.cache.get(each, POLICIES, is_last_resort=True) for each in requests]
    assert sum(each is not None for each in found) == 64
    busy.keep(request_of("u-0"))
    busy.now += 2.1
    assert busy.cache.get(requests[0], POLICIES, is_last_resort=True) is None


def test_a_very_large_pod_is_not_stored() -> None:
    busy, much = Busy(), {"metadata": {"annotations": {"a": "b" * 20_000}}}
    busy.keep(request_of("u-1", object=much))
    assert not busy.finds(request_of("u-2", object=much))


@pytest.mark.parametrize("verdict", [Verdict.DENY, Verdict.ABSTAIN])
def test_only_advice_is_shared(verdict: Verdict) -> None:
    busy = Busy()
    busy.keep(request_of("u-1"), verdict)
    assert not busy.finds(request_of("u-2"))


def test_a_placement_without_an_advice_of_its_own_is_not_shared() -> None:
    busy, again = Busy(), msgspec.structs.replace(placed("u-1"), patch=Patch())
    busy.cache.put(request_of("u-1"), POLICIES, again, busy.now)
    assert not busy.finds(request_of("u-2"))


def test_the_cache_is_bounded() -> None:
    busy = Busy()
    for number in range(300):
        busy.keep(request_of(f"u-{number}", namespace=f"team-{number}"))
    assert not busy.finds(request_of("u", namespace="team-235"))  # 64 are stored
    assert busy.finds(request_of("u", namespace="team-236"))
