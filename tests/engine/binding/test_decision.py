"""What becomes of one binding: kept, moved or denied, and why."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from engine.binding import (
    BINDING_REASON_ANNOTATION,
    NO_LIMITS,
    REASON_TEXTS,
    SCHEDULER_NODE_ANNOTATION,
    BindingAction,
    BindingCycle,
    BindingDecision,
    BindingReason,
    MoveLimits,
    decide_binding,
    decide_in_haste,
    decide_unseen,
    encode_binding,
)
from engine.binding.decision import denied
from engine.errors import PatchError
from engine.model.hold import RELEASED_ANNOTATION
from engine.pipeline import Scope
from engine.placement import ESTIMATED_USAGE_ANNOTATION, REASON_ANNOTATION
from engine.policy import PolicySet
from engine.view import FRESH, ClusterView, Domain, Freshness
from tests.engine.binding.worlds import (
    AT_BINDING,
    NOW,
    Outcome,
    by_rank,
    cluster,
    node,
    outcome,
    pod,
    request,
    view_of,
)
from tests.engine.policy.worlds import policies

MOVE, KEEP, DENY = BindingAction.MOVE, BindingAction.KEEP, BindingAction.DENY
PAUSED = MoveLimits(may_move=False, disturbed=())
UNTOUCHED = MoveLimits(disturbed=())  # no pod was moved of late


def _decided(
    view: ClusterView,
    *,
    by: PolicySet | None = None,
    limits: MoveLimits = NO_LIMITS,
    freshness: Freshness = FRESH,
    **of_pod: Any,  # noqa: ANN401 - parts of a pod
) -> BindingDecision:
    """Return what becomes of the binding of a pod to node a."""
    cycle = BindingCycle(request(**of_pod), "a", view, NOW, Scope(), freshness, limits)
    return decide_binding(cycle, by_rank() if by is None else by)


def _filled(name: str, pods: int = 4) -> list[Any]:
    """Return pods of one core each on a node, which has four."""
    return [pod(f"{name}{number}", on=name) for number in range(pods)]


# Points of a score are 0 for the least of all nodes that fit, and 100 for the greatest.


def test_the_pod_goes_to_a_node_that_is_better_by_enough() -> None:
    decision = _decided(view_of(node("a", 94), node("b", 100), node("c", 0)))
    assert outcome(decision) == (MOVE, "b", BindingReason.BETTER_NODE)
    assert (decision.scheduler_node, decision.points, decision.scheduler_points) == (
        "a",
        10_000,  # hundredths
        9_400,
    )


def test_the_node_of_the_scheduler_is_kept_where_little_is_gained() -> None:
    view = view_of(node("a", 96), node("b", 100), node("c", 0))
    decision = _decided(view, by=by_rank("placement: {at: Binding, minGain: 5}"))
    assert outcome(decision) == (KEEP, "a", BindingReason.BEST_NODE)


def test_the_policy_says_how_much_must_be_gained() -> None:
    view = view_of(node("a", 50), node("b", 100), node("c", 0))
    gains = [
        _decided(view, by=by_rank(f"placement: {{at: Binding, minGain: {gain}}}")).action
        for gain in (50, 51)
    ]
    assert gains == [MOVE, KEEP]


def test_points_are_a_mean_by_weight() -> None:
    # 25 for a, which has 0 by weight 3 and 100 by weight 1; 75 for b.
    by = by_rank(
        "- {name: other, expression: \"node.name == 'a' ? 1 : 0\"}",
        AT_BINDING,
        weight=3,
    )
    decision = _decided(view_of(node("a", 1), node("b", 2)), by=by)
    assert (decision.points, decision.scheduler_points) == (7_500, 2_500)


def test_no_node_is_better_where_nothing_ranks_them() -> None:
    by = policies(p="placement: {at: Binding, minGain: 0}")
    decision = _decided(view_of(node("a"), node("b")), by=by)
    assert outcome(decision) == (KEEP, "a", BindingReason.BEST_NODE)
    assert decision.points is None


def test_a_policy_that_decides_at_another_moment_moves_nothing() -> None:
    view = view_of(node("a", 0), node("b", 100))
    decision = _decided(view, by=by_rank("placement: {at: Admission}"))
    assert outcome(decision) == (KEEP, "a", BindingReason.NO_POLICY)


def test_a_node_that_a_policy_rejects_is_left() -> None:
    by = by_rank("filters: [{name: not-a, expression: \"node.name != 'a'\"}]", AT_BINDING)
    decision = _decided(view_of(node("a", 100), node("b", 0)), by=by)
    assert outcome(decision) == (MOVE, "b", BindingReason.FAILS_POLICY)
    assert "not-a" in decision.message


def test_a_node_that_was_filled_in_the_meantime_is_left() -> None:
    decision = _decided(view_of(node("a", 100), node("b", 0), *_filled("a")))
    assert outcome(decision) == (MOVE, "b", BindingReason.FAILS_SCHEDULER)


def test_a_pod_that_fits_nowhere_stays_pending() -> None:
    decision = _decided(view_of(node("a", 100), *_filled("a")))
    assert outcome(decision) == (DENY, "a", BindingReason.NO_ROOM)


def test_the_scheduler_is_believed_where_no_pod_was_moved() -> None:
    # It may have seen a pod go that is not seen here yet.
    decision = _decided(view_of(node("a", 100), *_filled("a")), limits=UNTOUCHED)
    assert outcome(decision) == (KEEP, "a", BindingReason.SCHEDULER_BELIEVED)


NOWHERE = "filters: [{name: nowhere, expression: 'false'}]"


@pytest.mark.parametrize(
    ("none_fits", "expected"),
    [
        ("Allow", (KEEP, "a", BindingReason.NONE_FITS)),
        ("Wait", (DENY, "a", BindingReason.WAITS)),
    ],
)
def test_the_policy_says_what_becomes_of_a_pod_that_no_node_suits(
    none_fits: str, expected: Outcome
) -> None:
    by = by_rank(NOWHERE, f"placement: {{at: Binding, whenNoneFits: {none_fits}}}")
    assert outcome(_decided(view_of(node("a"), node("b")), by=by)) == expected


def test_a_pod_that_waits_for_a_filter_that_fails_is_told_how_it_fails() -> None:
    broken = "filters: [{name: broken, expression: \"node.labels['tier'] == 'a'\"}]"
    by = by_rank(broken, "placement: {at: Binding, whenNoneFits: Wait}")
    decision = _decided(view_of(node("a"), node("b")), by=by)
    assert outcome(decision) == (DENY, "a", BindingReason.WAITS)
    assert "broken (no such key: `tier`)" in decision.message
    assert decision.decision is not None
    assert decision.decision.errors  # counted, and in the status of the policy


def test_a_pod_that_passes_must_have_room_all_the_same() -> None:
    by = by_rank(NOWHERE, "placement: {at: Binding, whenNoneFits: Allow}")
    decision = _decided(view_of(node("a"), node("b"), *_filled("a")), by=by)
    assert outcome(decision) == (DENY, "a", BindingReason.NO_ROOM)


# What other bindings allow.


def test_nothing_is_moved_while_moves_are_paused() -> None:
    decision = _decided(view_of(node("a", 0), node("b", 100)), limits=PAUSED)
    assert outcome(decision) == (KEEP, "a", BindingReason.MOVES_PAUSED)


def test_a_pod_is_not_moved_to_a_node_without_a_margin() -> None:
    view = view_of(node("a", 0), node("b", 100), node("c", 90))
    not_b = MoveLimits(targets_for=lambda _pod, seen: lambda row: seen.names[row] != "b")
    assert outcome(_decided(view, limits=not_b)) == (MOVE, "c", BindingReason.BETTER_NODE)
    nowhere = MoveLimits(targets_for=lambda _pod, _view: lambda _row: False)
    assert outcome(_decided(view, limits=nowhere)) == (KEEP, "a", BindingReason.NO_MARGIN)


def test_what_waits_for_its_policies_waits_while_moves_are_paused() -> None:
    by = by_rank(
        "filters: [{name: not-a, expression: \"node.name != 'a'\"}]",
        "placement: {at: Binding, whenNoneFits: Wait}",
    )
    view = view_of(node("a"), node("b"))
    assert outcome(_decided(view, by=by, limits=PAUSED)) == (DENY, "a", BindingReason.WAITS)


def test_what_is_too_old_neither_moves_nor_denies() -> None:
    stale = Freshness(stale={Domain.PODS: "pods are 95 s old"})
    decision = _decided(view_of(node("a"), node("b", 9), *_filled("a")), freshness=stale)
    assert outcome(decision) == (KEEP, "a", BindingReason.DATA_STALE)


# Policies in Audit mode.


def test_audit_moves_nothing_and_says_what_would_have_become_of_it() -> None:
    view = view_of(node("a", 0), node("b", 100))
    decision = _decided(view, by=by_rank("mode: Audit", AT_BINDING))
    assert outcome(decision) == (KEEP, "a", BindingReason.NO_POLICY)
    assert decision.audit is not None
    assert outcome(decision.audit) == (MOVE, "b", BindingReason.BETTER_NODE)
    assert (decision.audit.points, decision.audit.scheduler_points) == (10_000, 0)
    assert decision.audit.decision is not None
    assert decision.audit.decision.policies == ("p",)


# Room that is reserved for the pod.


def _nominated(to: str) -> dict[str, Any]:
    return {
        "status": {"nominatedNodeName": to},
        "metadata": {"annotations": {RELEASED_ANNOTATION: to}},
    }


def test_a_pod_goes_where_room_is_reserved_for_it() -> None:
    view = view_of(node("a", 100), node("b", 0))
    decision = _decided(view, **_nominated("b"))
    assert outcome(decision) == (MOVE, "b", BindingReason.NOMINATION_FOLLOWED)


def test_a_pod_whose_reserved_room_is_gone_stays_with_the_scheduler() -> None:
    view = view_of(node("a", 100), node("b", 0), *_filled("b"))
    decision = _decided(view, **_nominated("b"))
    assert outcome(decision) == (KEEP, "a", BindingReason.NOMINATION_LOST)


# Never moved.


@pytest.mark.parametrize(
    ("reason", "of_pod"),
    [
        (BindingReason.POD_BOUND, {"on": "b"}),
        (BindingReason.NAMESPACE_EXCLUDED, {"metadata": {"namespace": "kube-system"}}),
        (
            BindingReason.OUT_OF_SCOPE,
            {"metadata": {"labels": {"stowplan.dev/placement": "disabled"}}},
        ),
        (BindingReason.OTHER_SCHEDULER, {"schedulerName": "mine"}),
        (BindingReason.SYSTEM_POD, {"priorityClassName": "system-node-critical"}),
        (
            BindingReason.DAEMON_SET,
            {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "1"}]}},
        ),
        (
            BindingReason.STATIC_POD,
            {"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
        ),
        (BindingReason.POD_GATED, {"schedulingGates": [{"name": "x"}]}),
        (
            BindingReason.CLAIMS,
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        ),
        (BindingReason.CLAIMS, {"volumes": [{"name": "v", "ephemeral": {}}]}),
        (BindingReason.CLAIMS, {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}),
        (BindingReason.PREEMPTOR, {"status": {"nominatedNodeName": "b"}}),
        (BindingReason.SCHEDULING_GROUP, {"schedulingGroup": {"podGroupName": "g"}}),
        (BindingReason.DEVICES, {"requests": {"example.com/gpu": "1"}}),
        (BindingReason.DEVICES, {"requests": {"deviceclass.resource.kubernetes.io/x": "1"}}),
    ],
)
def test_some_pods_stay_where_the_scheduler_puts_them(
    reason: BindingReason, of_pod: dict[str, Any]
) -> None:
    decision = _decided(view_of(node("a", 0), node("b", 100)), **of_pod)
    assert outcome(decision) == (KEEP, "a", reason)
    assert decision.decision is None


def test_the_nomination_of_a_preemptor_that_we_released_before_is_the_schedulers() -> None:
    to_b = _nominated("b")
    to_b["metadata"]["annotations"] = {RELEASED_ANNOTATION: "a"}
    decision = _decided(view_of(node("a", 0), node("b", 100)), **to_b)
    assert decision.reason is BindingReason.PREEMPTOR


def test_devices_that_the_node_offers_are_counted_as_they_always_were() -> None:
    gpus = [
        node(name, rank, allocatable={"cpu": 4000, "pods": 10, "example.com/gpu": 1})
        for name, rank in (("a", 0), ("b", 100))
    ]
    decision = _decided(view_of(*gpus), requests={"example.com/gpu": "1"})
    assert outcome(decision) == (MOVE, "b", BindingReason.BETTER_NODE)


def test_a_pod_with_devices_of_others_must_have_room_for_the_rest() -> None:
    for pods, expected in ((3, KEEP), (4, DENY)):
        view = view_of(node("a", 0), node("b", 100), *_filled("a", pods))
        decision = _decided(view, requests={"example.com/gpu": "1"})
        assert decision.action is expected


def test_a_node_that_is_not_known_is_kept() -> None:
    decision = _decided(view_of(node("b", 100)))
    assert outcome(decision) == (KEEP, "a", BindingReason.NODE_UNKNOWN)


def test_a_pod_that_is_never_moved_is_denied_where_others_took_its_room() -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    view = view_of(node("a", 0), node("b", 100), *_filled("a"))
    moved_to_a = MoveLimits(disturbed={"a"})
    decision = _decided(view, limits=moved_to_a, volumes=volumes)
    assert outcome(decision) == (DENY, "a", BindingReason.NO_ROOM)
    decision = _decided(view, limits=UNTOUCHED, volumes=volumes)
    assert outcome(decision) == (KEEP, "a", BindingReason.CLAIMS)


# Without the time, or the knowledge, for more.


def test_in_haste_the_scheduler_is_right_if_there_is_room() -> None:
    for pods, expected in ((3, KEEP), (4, DENY)):
        view = view_of(node("a", 0), node("b", 100), *_filled("a", pods))
        decision = decide_in_haste(BindingCycle(request(), "a", view, NOW, Scope()))
        assert decision.action is expected


def test_of_an_unseen_pod_the_scheduler_is_right_unless_others_were_moved_there() -> None:
    assert decide_unseen("a", MoveLimits(disturbed={"b"})).action is KEEP
    assert decide_unseen("a", NO_LIMITS).action is KEEP
    assert decide_unseen("a", MoveLimits(disturbed={"a"})).action is DENY


def test_every_reason_has_a_sentence() -> None:
    assert set(REASON_TEXTS) == set(BindingReason)


@pytest.mark.parametrize("policies_", [by_rank(), PolicySet()])
def test_a_pod_with_more_affinity_than_is_read_is_denied_for_want_of_room_alone(
    policies_: PolicySet,
) -> None:
    terms = [
        {
            "labelSelector": {"matchLabels": {"app": f"a{number}"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        for number in range(65)
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for cpu, action in (("1", KEEP), ("5", DENY)):  # of 4
        decision = _decided(view_of(node("a")), by=policies_, cpu=cpu, affinity=affinity)
        assert decision.action is action


LOAD_AWARE = "filters: [{plugin: LoadAware}]"


def _moved(by: PolicySet | None = None) -> BindingDecision:
    by = by or by_rank()
    state = cluster(node("a", 0), node("b", 100))
    state.track_sums(by.sum_profiles)
    return _decided(state.view(), by=by)


def _binding(**metadata: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": "a"}}


def _patched(decision: BindingDecision, binding: dict[str, Any]) -> dict[str, Any]:
    patched: dict[str, Any] = jsonpatch.apply_patch(binding, [*encode_binding(decision, binding)])
    return patched


@pytest.mark.parametrize(
    "binding",
    [_binding(), _binding(annotations=None), _binding(annotations={"mine": "x"})],
)
def test_a_moved_pod_gets_the_other_node_and_what_explains_it(binding: dict[str, Any]) -> None:
    patched = _patched(_moved(), binding)
    assert patched["target"] == {"kind": "Node", "name": "b"}
    annotations = patched["metadata"]["annotations"]
    assert annotations[SCHEDULER_NODE_ANNOTATION] == "a"
    assert annotations[BINDING_REASON_ANNOTATION] == "BetterNode"
    assert annotations[REASON_ANNOTATION].startswith("moved from a to b")
    assert annotations.get("mine") == ((binding["metadata"].get("annotations") or {}).get("mine"))


def test_a_moved_pod_loses_the_topology_labels_of_the_scheduler_s_node_and_no_others() -> None:
    zone, region = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
    labels = {zone: "zone-of-a", region: "here", "mine": "x"}
    moved = _patched(_moved(), _binding(labels=labels))
    assert moved["metadata"]["labels"] == {"mine": "x"}
    assert _patched(_moved(), moved) == moved
    assert _patched(_moved(), _binding(labels={zone: "z"}))["metadata"]["labels"] == {}
    # One that stays keeps them: a binding to b is already where it is decided to go.
    there = {**_binding(labels=labels), "target": {"kind": "Node", "name": "b"}}
    assert _patched(_moved(), there)["metadata"]["labels"] == labels


def test_the_estimate_is_written_as_advice_writes_it() -> None:
    patched = _patched(_moved(by_rank(LOAD_AWARE, AT_BINDING)), _binding())
    assert '"cpu":' in patched["metadata"]["annotations"][ESTIMATED_USAGE_ANNOTATION]


def reserved(*names: str) -> MoveLimits:
    """Return limits under which room is reserved on some of the nodes a, b and c."""
    rows = ["abc".index(name) for name in names]
    return MoveLimits(disturbed=(), reserved_for=lambda _pod, row: "gang `g`" * (row in rows))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", (MOVE, "c", BindingReason.BETTER_NODE)),
        ("c", (MOVE, "b", BindingReason.BETTER_NODE)),
        ("bc", (KEEP, "a", BindingReason.NO_MARGIN)),
        ("a", (MOVE, "c", BindingReason.FAILS_SCHEDULER)),
        ("abc", (DENY, "a", BindingReason.RESERVED)),
    ],
)
def test_reserved_room_is_left_on_the_scheduler_s_node_and_any_other(
    names: str, expected: Outcome
) -> None:
    view = view_of(node("a"), node("b", 50), node("c", 100))
    made = _decided(view, by=by_rank(), limits=reserved(*names))
    assert outcome(made) == expected
    if names == "a":
        assert made.message.startswith("moved from a to c: the room is reserved for gang `g`, ")


@pytest.mark.parametrize(
    ("of_pod", "action"),
    [
        ({"metadata": {"namespace": "kube-system"}}, KEEP),
        ({"priorityClassName": "system-node-critical"}, KEEP),
        ({"schedulerName": "another"}, DENY),
        ({"metadata": {"labels": {"stowplan.dev/placement": "disabled"}}}, DENY),
    ],
)
def test_only_pods_without_which_the_cluster_cannot_run_get_reserved_room(
    of_pod: dict[str, Any], action: BindingAction
) -> None:
    assert _decided(view_of(node("a")), limits=reserved("a"), **of_pod).action is action


def test_patching_twice_equals_once() -> None:
    decision = _moved()
    once = _patched(decision, _binding())
    assert encode_binding(decision, once) == ()


def test_annotations_that_are_there_stay() -> None:
    there = {SCHEDULER_NODE_ANNOTATION: "mine", REASON_ANNOTATION: "mine", "other": "x"}
    patched = _patched(_moved(), _binding(annotations=there))
    annotations = patched["metadata"]["annotations"]
    assert {key: annotations[key] for key in there} == there


def test_nothing_is_written_where_no_policy_decided() -> None:
    assert encode_binding(decide_unseen("a", NO_LIMITS), _binding()) == ()
    audited = _moved(by_rank("mode: Audit", AT_BINDING))
    assert encode_binding(audited, _binding()) == ()


def test_a_denial_or_the_binding_to_another_node_is_no_patch() -> None:
    with pytest.raises(PatchError):
        encode_binding(denied("a", "full"), _binding())
    with pytest.raises(PatchError):
        encode_binding(_moved(), {**_binding(), "target": {"kind": "Node", "name": "c"}})
