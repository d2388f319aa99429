from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.model import api
from engine.model.decision import Verdict
from engine.model.pod import pod_of
from engine.model.time import Micros
from engine.pipeline import Scope
from engine.placement import ADVICE_ANNOTATION, Advice, Patch, SharedPatch, advice_id
from engine.policy import PolicySet, load_policies
from engine.view import ClusterState, Domain, Freshness
from tests.webhook.conftest import DENYING
from webhook.admission import wire
from webhook.admission.handler import Outcome
from webhook.admission.placement import DecisionCache, PlacementReviews
from webhook.admission.wire import AdmissionRequest
from webhook.placement.explanations import Explanations, RecordedDecision
from webhook.placement.live_policies import PolicyCounts
from webhook.placement.placer import Placement, Placer

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


PODS = {"group": "", "version": "v1", "resource": "pods"}


def review_of(namespace: str = "shop", **more: Any) -> wire.AdmissionRequest:  # noqa: ANN401 - parts of a request, whatever they are
    pod = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}
    request = {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": PODS,
        "namespace": namespace,
        "object": pod,
        **more,
    }
    body = {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "request": request}
    return wire.decode(json.dumps(body).encode())


@dataclass
class Queue:
    """Reviews that wait for each other."""

    is_crowded: bool = True
    is_overloaded: bool = False
    may_wait: bool = True

    def has_room(self, _: str) -> bool:
        return self.may_wait


@pytest.fixture
def explanations() -> Explanations:
    return Explanations(9)


@pytest.fixture
def counts() -> PolicyCounts:
    return PolicyCounts()


@pytest.fixture
def placement(
    state: ClusterState, policies: Path, explanations: Explanations, counts: PolicyCounts
) -> Callable[..., PlacementReviews]:
    """Return how to make the reviews: with other policies if wanted."""
    loaded = load_policies([policies])
    state.track_sums(loaded.sum_profiles)

    def make(
        current: Callable[[], PolicySet] = lambda: loaded,
        clock: Callable[[], float] = lambda: 0.0,
        freshness: Callable[[], Freshness] = Freshness,
        queue: Queue | None = None,
    ) -> PlacementReviews:
        placer = Placer(
            view=state.view,
            now=lambda: Micros(0),
            scope=Scope(),
            clock=clock,
            freshness=freshness,
            explanations=explanations,
        )
        return PlacementReviews(
            placer,
            current,
            clock,
            counts,
            queue=queue or Queue(),
        )

    return make


Make = Callable[..., PlacementReviews]


def test_a_pod_is_advised_and_the_audit_log_learns_why(placement: Make) -> None:
    result = placement().review(review_of())
    assert result.outcome is Outcome.PLACED
    assert result.response.patch is not None
    audit = result.response.audit_annotations
    assert audit["policies"] == "balance-limits"
    assert "3 of 3 nodes fit" in audit["decision"]


def test_the_namespace_of_the_request_counts_for_an_object_that_has_none(placement: Make) -> None:
    # The policy `closed` selects the namespace by the label that every namespace has.
    assert placement().review(review_of("closed")).outcome is Outcome.DENIED


def test_a_denial_says_why_and_has_no_patch(placement: Make) -> None:
    response = placement().review(review_of("closed")).response
    assert not response.allowed
    assert response.patch is None
    assert response.status is not None
    assert "the namespace is closed" in response.status.message


def test_on_a_stale_view_rules_abstain_and_are_counted(placement: Make) -> None:
    old = Freshness(ages={"nodes": 300}, stale={Domain.NODES: "nodes are 300 s old"})
    result = placement(freshness=lambda: old).review(review_of("closed"))
    assert result.outcome is Outcome.PLACED  # what closes the namespace reads the nodes
    # Four of the scheduler's filters, the filter of one policy and the score of the other.
    assert result.abstained == {"nodes": 6}
    audit = result.response.audit_annotations["decision"]
    assert audit.startswith("3 of 3 nodes fit")
    assert audit.endswith("(nodes are 300 s old)")
    assert placement().review(review_of()).abstained == {}


def test_a_pod_without_a_policy_passes_as_it_is(placement: Make) -> None:
    nothing = PolicySet()
    result = placement(lambda: nothing).review(review_of())
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.allowed
    assert result.response.patch is None


def test_our_own_failure_lets_the_pod_pass_and_only_the_log_knows_why(
    placement: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> PolicySet:
        raise RuntimeError("the reason")

    result = placement(fail).review(review_of())
    assert result.outcome is Outcome.ERROR
    assert result.response.allowed
    assert result.response.patch is None
    assert "the reason" not in json.dumps(result.response.warnings)
    assert "the reason" in caplog.text


@pytest.mark.parametrize(
    "pod",
    [
        None,
        [],
        {"spec": {"containers": "none"}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "a lot"}}}]}},
        {"spec": {"containers": [{"resources": {"requests": {"cpu": 10**400}}}]}},
        {"spec": {"priority": 10**40}},
        {"metadata": {"creationTimestamp": "yesterday"}},
    ],
)
def test_a_pod_that_cannot_be_decoded_passes_with_a_warning(placement: Make, pod: object) -> None:
    result = placement().review(review_of(object=pod))
    assert result.response.allowed
    assert result.response.patch is None or result.outcome is Outcome.PLACED
    assert all(len(warning) <= 256 for warning in result.response.warnings)


def test_a_decision_is_recorded_with_its_reasons(
    placement: Make, explanations: Explanations
) -> None:
    placement().review(review_of())
    (text,) = explanations.latest(pod="shop/web-")
    report = msgspec.json.decode(text, type=RecordedDecision)
    assert report.verdict is Verdict.PLACE
    assert len(report.ranking) == 3


def test_a_dry_run_gets_the_same_patch_and_is_not_recorded(
    placement: Make, explanations: Explanations
) -> None:
    reviews = placement()
    dry = reviews.review(review_of(dryRun=True))
    assert len(explanations) == 0
    assert dry.response.patch == reviews.review(review_of()).response.patch


def test_rules_that_cannot_be_evaluated_are_counted(placement: Make, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(
        "{apiVersion: stowplan.dev/v1alpha1, kind: PlacementPolicy, metadata: {name: broken},"
        " spec: {match: {matchConditions: [{name: c, expression: 'object.spec.nothing == 1'}]},"
        " scores: [{plugin: LimitAware}]}}"
    )
    loaded = load_policies([path])
    result = placement(lambda: loaded).review(review_of())
    assert result.rule_errors == 1
    assert result.response.allowed
    assert "broken: match condition `c`" in result.response.audit_annotations["errors"]


def test_expressions_that_take_too_long_are_given_up(placement: Make, tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(
        "{apiVersion: stowplan.dev/v1alpha1, kind: PlacementPolicy, metadata: {name: slow},"
        " spec: {match: {matchConditions: [{name: c, expression:"
        " 'lists.range(500).all(i, i >= size(object.spec.containers) - 1)'}]},"
        " scores: [{plugin: LimitAware}]}}"
    )
    loaded = load_policies([path])
    assert placement(lambda: loaded).review(review_of()).outcome is Outcome.PLACED
    ever_later = map(float, count())
    result = placement(lambda: loaded, ever_later.__next__).review(review_of())
    assert result.outcome is Outcome.ABSTAINED
    assert "ran out of time" in result.response.audit_annotations["errors"]


def test_the_creator_of_a_pod_that_fits_no_node_is_warned(placement: Make, tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    path.write_text(DENYING.replace("Deny", "Allow"))
    loaded = load_policies([path])
    result = placement(lambda: loaded).review(review_of("closed"))
    assert result.outcome is Outcome.ABSTAINED
    assert result.response.allowed
    (warning,) = result.response.warnings
    assert warning.startswith("stowplan: 0 of 3 nodes fit")


def test_a_policy_in_audit_mode_shows_only_in_the_audit_log(
    placement: Make, tmp_path: Path
) -> None:
    path = tmp_path / "audited.yaml"
    path.write_text(DENYING.replace("priority: 10", "mode: Audit"))
    loaded = load_policies([path])
    result = placement(lambda: loaded).review(review_of("closed"))
    assert result.response.allowed
    assert result.response.patch is None
    assert result.response.audit_annotations["audited-policies"] == "closed"
    assert "the namespace is closed" in result.response.audit_annotations["audited-decision"]


def test_expressions_see_the_user(placement: Make, tmp_path: Path) -> None:
    path = tmp_path / "who.yaml"
    path.write_text(
        "{apiVersion: stowplan.dev/v1alpha1, kind: PlacementPolicy, metadata: {name: who},"
        " spec: {match: {matchConditions:"
        " [{name: alice, expression: \"request.userInfo.username == 'alice'\"}]},"
        " scores: [{plugin: LimitAware}]}}"
    )
    loaded = load_policies([path])
    reviews = placement(lambda: loaded)
    assert reviews.review(review_of(userInfo={"username": "bob"})).outcome is Outcome.ABSTAINED
    assert reviews.review(review_of(userInfo={"username": "alice"})).outcome is Outcome.PLACED


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"metadata": {"annotations": {"a": "x" * 2**18}}}, "more than 262144 bytes"),
        ({"spec": {"containers": [{}] * 300}}, "more than 100 containers"),
    ],
)
def test_a_pod_that_would_delay_others_passes_with_a_warning(
    placement: Make, pod: object, reason: str
) -> None:
    result = placement().review(review_of(object=pod))
    assert result.outcome is Outcome.TOO_LARGE
    assert result.response.allowed
    assert result.response.patch is None
    assert result.response.warnings == (f"stowplan gave no placement advice: the pod has {reason}",)


def test_only_a_pod_that_shares_a_decision_need_not_wait(placement: Make) -> None:
    reviews = placement()
    assert reviews.without_waiting(review_of()) is None
    assert reviews.review(review_of()).outcome is Outcome.PLACED
    assert reviews.without_waiting(review_of("other", uid="u-2")) is None
    result = reviews.without_waiting(review_of(uid="u-3"))
    assert result is not None
    assert result.outcome is Outcome.SHARED
    assert result.response.patch


@pytest.mark.parametrize("more", [{}, {"name": "web-0"}, {"namespace": "other"}])
def test_where_there_is_no_room_pods_share_decisions_or_pass_unmodified(
    placement: Make, more: dict[str, Any]
) -> None:
    reviews = placement(queue=Queue(may_wait=False))
    result = reviews.without_waiting(review_of(**more))
    assert result is not None
    assert result.outcome is Outcome.SHED
    assert result.response.allowed
    assert reviews.without_waiting(review_of(operation="UPDATE")) is None
    reviews.review(review_of())
    result = reviews.without_waiting(review_of(uid="u-2"))
    assert result is not None
    assert result.outcome is Outcome.SHARED


def test_where_there_is_no_time_pods_share_decisions_or_pass_unmodified(
    placement: Callable[..., PlacementReviews],
) -> None:
    queue = Queue()
    reviews = placement(queue=queue)
    assert reviews.review(review_of()).outcome is Outcome.PLACED
    queue.is_overloaded = True
    assert reviews.review(review_of(uid="u-2")).outcome is Outcome.SHARED
    result = reviews.review(review_of("other"))
    assert result.outcome is Outcome.SHED
    assert result.response.allowed
    assert result.response.patch is None
    assert result.response.warnings == (
        "stowplan gave no placement advice: too many pods at a time",
    )
