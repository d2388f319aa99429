from __future__ import annotations

import msgspec

from engine.model import api
from engine.model.decision import Decision, Verdict
from engine.pipeline import decide
from engine.policy import PolicySet
from engine.report import DecisionReport, NodeStanding, decision_report, summary
from engine.view import ClusterState
from tests.engine.measured_cluster import pod
from tests.engine.policy.worlds import GIB, NOW, Json, node, policies, request_of, usage

TWO = policies(
    limits="""
    priority: 1
    filters: [{plugin: LimitAware, args: &limits {defaultLimitToAllocatableRatio: {cpu: 200%}}}]
    scores: [{plugin: LimitAware, args: *limits}]
    """,
    words="""
    filters: [{name: zoned, expression: "'zone' in node.labels", message: the node has no zone}]
    scores: [{name: cold, weight: 3, expression: -node.usage.cpu}]
    """,
)
LIMITED = request_of(
    {"containers": [{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]},
    name="web-1",
    uid="1",
)


def _cluster(policy_set: PolicySet = TWO) -> ClusterState:
    """Return five nodes: one cordoned, one of another kind, one full, and two to choose from."""
    state = ClusterState()
    state.track_sums(policy_set.sum_profiles)
    offer = {"cpu": 4000, "memory": 8 * GIB, "pods": 9}
    zone = {"zone": "a"}
    state.set_node(node("cordoned", allocatable=offer, labels=zone, unschedulable=True))
    state.set_node(node("bare", allocatable=offer))
    for name, cpu in (("full", 1000), ("cool", 500), ("warm", 1500)):
        state.set_node(node(name, allocatable=offer, labels=zone))
        state.set_usage(usage(name, cpu=cpu))
    state.set_pod(pod("a", "full", limits={"cpu": "7500m"}), seen_at=NOW)
    state.set_pod(pod("b", "cool", limits={"cpu": "6"}), seen_at=NOW)
    return state


def _decision(policy_set: PolicySet = TWO) -> Decision:
    return decide(LIMITED, policy_set, _cluster(policy_set).view(), NOW)


def explanation(
    decision: Decision, *, most_nodes: int | None = None, most_inputs: int | None = 0
) -> Json:
    """Return a report as its readers decode it."""
    report = decision_report(decision, most_nodes=most_nodes, most_inputs=most_inputs)
    found: Json = msgspec.json.decode(msgspec.json.encode(report))
    return found


def _why(policy: str, rule: str, reason: str) -> Json:
    return {"policy": policy, "rule": rule, "reason": reason}


def _score(policy: str, rule: str, raw: float, normalized: int, weight: int) -> Json:
    return {
        "policy": policy,
        "rule": rule,
        "raw": raw,
        "normalized": normalized,
        "weight": weight,
        "weighted": normalized * weight,
    }


def _denying(spec: str) -> PolicySet:
    return policies(p=f"placement: {{whenNoneFits: Deny}}\n{spec}")


# One line.


def test_the_summary_names_the_best_node_and_counts_who_stopped_the_others() -> None:
    assert summary(_decision()) == (
        "2 of 5 nodes fit, best cool; left out: 1 NodeUnschedulable, 1 LimitAware, 1 zoned"
    )


def test_nodes_that_share_the_best_score_are_all_named_up_to_three() -> None:
    assert summary(_decision(policies(p="filters: [{name: z, expression: 'true'}]"))).startswith(
        "4 of 5 nodes fit, best "
    )
    several = _decision(policies(p="scores: [{name: s, expression: '1'}]"))
    told = summary(several).partition("best ")[2].partition(";")[0].split(", ")
    assert told == [several.names[row] for row in several.candidates[:3].tolist()] + ["..."]


def test_where_nothing_is_left_the_reasons_are_told_the_most_common_first() -> None:
    decision = _decision(_denying("filters: [{name: no, expression: 'false', message: closed}]"))
    assert decision.verdict is Verdict.DENY
    assert summary(decision) == (
        "0 of 5 nodes fit; left out: 4 no (closed), "
        "1 NodeUnschedulable (node(s) were unschedulable)"
    )


def test_there_may_be_more_reasons_than_fit_on_a_line() -> None:
    state = ClusterState()
    for i in range(30):
        taint = api.Taint(key="team", value=str(i), effect="NoSchedule")
        state.set_node(node(f"n{i}", taints=(taint,)))
    decision = decide(LIMITED, TWO, state.view(), NOW)
    assert summary(decision).count("untolerated taint") == 10
    assert summary(decision).endswith(", 20 for other reasons")


def test_a_decision_made_without_looking_at_nodes_says_why() -> None:
    nothing = _decision(policies(p="match: {objectSelector: {matchLabels: {app: db}}}"))
    assert nothing.message == "no policy matches"
    empty = decide(LIMITED, TWO, ClusterState().view(), NOW)
    assert summary(empty) == empty.message == "no node is known"


# Everything.


def test_an_explanation_tells_all_that_led_to_a_decision() -> None:
    told = explanation(_decision())
    # Limits on cpu may add up to 8 cores: warm has 0 + 1, 7 / 8 = 87.5 -> 87 % left; cool 6 + 1,
    # 12 %; stretched over 0..100. Of -500 and -1500 the former is 100.
    assert told["ranking"] == [
        {
            "node": "cool",
            "total": 300,
            "scores": [
                _score("limits", "LimitAware", 12, 0, 1),
                _score("words", "cold", -0.5, 100, 3),
            ],
        },
        {
            "node": "warm",
            "total": 100,
            "scores": [
                _score("limits", "LimitAware", 87, 100, 1),
                _score("words", "cold", -1.5, 0, 3),
            ],
        },
    ]
    assert told["rejected"] == {
        "bare": [_why("words", "zoned", "the node has no zone")],
        "cordoned": [_why("scheduler", "NodeUnschedulable", "node(s) were unschedulable")],
        "full": [_why("limits", "LimitAware", "Insufficient cpu limit")],
    }
    assert told["rejectedBy"] == [
        _why("scheduler", "NodeUnschedulable", "node(s) were unschedulable") | {"nodes": 1},
        _why("limits", "LimitAware", "Insufficient cpu limit") | {"nodes": 1},
        _why("words", "zoned", "the node has no zone") | {"nodes": 1},
    ]
    del told["ranking"], told["rejected"], told["rejectedBy"], told["viewVersion"]
    assert told == {
        "pod": {"namespace": "shop", "name": "web-1"},
        "verdict": "Place",
        "message": summary(_decision()),
        "policies": ["limits", "words"],
        "estimate": {},
        "nodes": 5,
        "candidates": 2,
        "abstained": [],
        "errors": [],
        "decidedAt": "1970-01-12T13:46:40+00:00",
        "ageSeconds": {},
    }


def test_a_score_that_gave_no_points_says_why() -> None:
    told = explanation(_decision(policies(p="scores: [{name: same, expression: '1'}]")))
    (abstained,) = told["abstained"]
    assert abstained == _why("p", "same", "it gives no candidate any points")


def test_the_estimate_is_told_as_quantities() -> None:
    told = explanation(_decision(policies(p="filters: [{plugin: LoadAware}]")))
    assert told["estimate"] == {"cpu": "850m", "memory": "751619277"}  # 0.7 GiB is no whole MiB


def test_what_policies_in_audit_mode_would_have_done_is_explained_alike() -> None:
    told = explanation(_decision(policies(a="mode: Audit\nfilters: [{plugin: LimitAware}]")))
    assert told["message"] == "no policy in Enforce mode matches"
    assert told["audit"]["policies"] == ["a"]
    assert told["audit"]["candidates"] == 4
    assert "audit" not in told["audit"]


def test_an_explanation_can_be_cut_to_a_few_nodes() -> None:
    whole, cut = explanation(_decision()), explanation(_decision(), most_nodes=1)
    assert cut["ranking"] == whole["ranking"][:1]
    assert len(cut["rejected"]) == 1
    assert cut["rejected"].items() <= whole["rejected"].items()
    assert cut["rejectedBy"] == whole["rejectedBy"]
    assert (cut["nodes"], cut["candidates"]) == (5, 2)
    assert explanation(_decision(), most_nodes=0)["ranking"] == []


def test_every_report_can_be_read_back() -> None:
    for policy_set in (TWO, policies(p="", a="mode: Audit"), policies()):
        report = decision_report(_decision(policy_set), most_inputs=None)
        text = msgspec.json.encode(report)
        assert msgspec.json.decode(text, type=DecisionReport) == report


def test_the_fields_of_a_report_keep_their_order() -> None:
    decision = _decision(policies(p="", a="mode: Audit"))
    assert list(explanation(decision, most_inputs=1)) == [
        *("pod", "verdict", "message", "policies", "estimate", "nodes", "candidates", "ranking"),
        *("rejected", "rejectedBy", "abstained", "errors", "decidedAt", "viewVersion"),
        *("ageSeconds", "inputs", "audit"),
    ]


# What the rules were given.


def _given(policy: str, rule: str, *inputs: Json, kind: str = "filter") -> Json:
    return {"policy": policy, "rule": rule, "inputs": list(inputs), "kind": kind}


def _cpu_limits(value: int) -> Json:
    return {"name": "cpu limits", "value": value, "unit": "millicores", "capacity": 8000}


def test_what_the_rules_were_given_is_told_of_as_many_nodes_as_are_asked_for() -> None:
    assert "inputs" not in explanation(_decision())
    told = explanation(_decision(), most_inputs=1)["inputs"]
    # Limits may add up to 200 % of 4 cores; the filter and the score of cool were given the same.
    assert told == {
        "cool": [
            _given("limits", "LimitAware", _cpu_limits(7000)),
            _given("words", "zoned", {"name": "node.labels", "text": '{"zone": "a"}'}),
            _given(
                "words",
                "cold",
                {"name": "node.usage.cpu", "value": 500, "unit": "millicores"},
                kind="score",
            ),
        ],
        "bare": [_given("words", "zoned", {"name": "node.labels", "text": "{}"})],
    }


def test_of_a_node_that_was_left_out_the_rules_are_told_that_did_it() -> None:
    told = explanation(_decision(), most_inputs=None)["inputs"]
    assert told["full"] == [_given("limits", "LimitAware", _cpu_limits(8500))]
    assert told["cordoned"] == [
        _given("scheduler", "NodeUnschedulable", {"name": "cordoned", "text": "yes"})
    ]


def test_what_is_told_of_a_node_stays_within_bounds() -> None:
    fields = " + ".join(f"double(node.labels[?'l{i:02}'].orValue('1'))" for i in range(20))
    decision = _decision(policies(p=f'scores: [{{name: s, expression: "{fields}"}}]'))
    (given,) = next(iter(explanation(decision, most_inputs=1)["inputs"].values()))
    assert len(given["inputs"]) <= 9
    assert max(len(value.get("text", "")) for value in given["inputs"]) < 80


def test_where_no_node_was_looked_at_nothing_was_given() -> None:
    told = explanation(_decision(policies()), most_inputs=None)
    assert told["inputs"] == {}


def test_a_node_that_is_asked_about_has_its_standing_whatever_is_listed() -> None:
    decision = _decision()

    def standing(name: str) -> NodeStanding | None:
        return decision_report(decision, most_nodes=0, node=name).standing

    assert standing("cool") == NodeStanding(node="cool", rank=1)
    assert standing("warm") == NodeStanding(node="warm", rank=2, behind=200)  # 100 of 300
    full = standing("full")
    assert full is not None
    assert (full.rank, [reason.rule for reason in full.rejected]) == (0, ["LimitAware"])
    assert standing("gone") is None
    assert standing("") is None
