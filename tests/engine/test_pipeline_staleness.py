"""What becomes of decisions when a part of what is known is too old to judge by."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from engine.model import api
from engine.model.decision import Decision, Verdict
from engine.model.node import Node
from engine.model.pod import Pod
from engine.model.scheduler_plugins import NodeZones
from engine.model.usage import NodeUsage
from engine.model.well_known import HOSTNAME_LABEL
from engine.pipeline import decide
from engine.placement import encode
from engine.plugins import PLUGINS
from engine.policy import SCHEDULER_FILTERS, PolicySet
from engine.report import DecisionReport, RuleReason, decision_report, summary
from engine.view import ClusterState, ClusterView, Domain, Freshness
from tests.engine.measured_cluster import pod
from tests.engine.plugins.plugin_args import args_of
from tests.engine.policy.worlds import GIB, NOW, node, policies, request_of, usage
from tests.engine.topology_cluster import zones

TEXTS = {
    Domain.NODES: "nodes are 300 s old",
    Domain.PODS: "pods are 200 s old",
    Domain.METRICS: "usage is 95 s old",
    Domain.TOPOLOGY: "topology is 400 s old",
}
RESOURCES = {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
REQUEST = request_of({"containers": [{"resources": RESOURCES}]}, uid="1")
OFFER = {"cpu": 4000, "memory": 8 * GIB, "pods": 9}


def stale(*domains: Domain) -> Freshness:
    return Freshness(ages={"pods": 200}, stale={domain: TEXTS[domain] for domain in domains})


def _view(policy_set: PolicySet, *objects: Node | Pod | NodeUsage | NodeZones) -> ClusterView:
    state = ClusterState()
    state.track_sums(policy_set.sum_profiles)
    for one in objects:
        if isinstance(one, Node):
            state.set_node(one)
        elif isinstance(one, Pod):
            state.set_pod(one, seen_at=NOW)
        elif isinstance(one, NodeUsage):
            state.set_usage(one)
        else:
            state.set_extra(one)
    return state.view()


def _two(policy_set: PolicySet) -> ClusterView:
    """Return a node in zone a that is hot and nearly full of limits, and an idle one in zone b."""
    return _view(
        policy_set,
        node("hot", allocatable=OFFER, labels={"zone": "a", HOSTNAME_LABEL: "hot"}),
        node("idle", allocatable=OFFER, labels={"zone": "b", HOSTNAME_LABEL: "idle"}),
        usage("hot", cpu=3900, memory=GIB),
        usage("idle", cpu=100, memory=GIB),
        pod("a", "hot", limits={"cpu": "3500m"}, requests={"cpu": "3500m"}),
    )


def _decided(policy_set: PolicySet, freshness: Freshness) -> Decision:
    return decide(REQUEST, policy_set, _two(policy_set), NOW, freshness=freshness)


def _fitting(decision: Decision) -> set[str]:
    return {decision.names[row] for row in decision.candidates.tolist()}


LOAD = policies(p="filters: [{plugin: LoadAware}]\nscores: [{plugin: LoadAware}]")


def test_a_filter_whose_source_is_stale_abstains() -> None:
    # 3900m of 4 cores is 97.5 %, and the threshold of LoadAware is 65 %.
    assert _fitting(_decided(LOAD, Freshness())) == {"idle"}
    decision = _decided(LOAD, stale(Domain.METRICS))
    assert _fitting(decision) == {"hot", "idle"}
    assert decision.totals.tolist() == [0, 0]
    assert summary(decision).endswith("; abstained: LoadAware (usage is 95 s old)")
    abstention = RuleReason("p", "LoadAware", "usage is 95 s old")
    assert decision_report(decision).abstained == (abstention,)


def test_a_decision_records_the_age_of_each_source() -> None:
    decision = _decided(LOAD, Freshness(ages={"pods": 2, "metrics.k8s.io": 14}))
    assert decision_report(decision).age_seconds == {"pods": 2, "metrics.k8s.io": 14}
    assert decision_report(decision).abstained == ()


def test_rules_that_do_not_read_what_is_stale_go_on() -> None:
    both = policies(
        p="""
        filters: [{plugin: LimitAware, args: {defaultLimitToAllocatableRatio: {cpu: 100%}}}]
        scores: [{name: idle, expression: -node.usage.cpu}, {name: b, expression: node.podCount}]
        """
    )
    # Limits of 3500m and 1 are more than the 4 cores of `hot`, whatever is known of usage.
    decision = _decided(both, stale(Domain.METRICS))
    assert _fitting(decision) == {"idle"}
    assert [rule.rule for rule in decision.abstained] == ["idle"]
    # Without the pods there is no telling; usage still ranks.
    decision = _decided(both, stale(Domain.PODS))
    assert [decision.names[row] for row in decision.candidates.tolist()] == ["idle", "hot"]
    assert summary(decision).endswith(
        "; abstained: NodeResourcesFit, LimitAware, b (pods are 200 s old)"
    )


def test_the_schedulers_own_filters_abstain_too() -> None:
    cordoned = _view(LOAD, node("n", allocatable={"cpu": 500, "pods": 1}, unschedulable=True))
    fresh = decide(REQUEST, LOAD, cordoned, NOW)
    assert not fresh.candidates.size
    decision = decide(REQUEST, LOAD, cordoned, NOW, freshness=stale(Domain.NODES))
    assert decision.candidates.size == 1
    assert summary(decision) == (
        "1 of 1 nodes fit, best n; abstained: NodeUnschedulable, TaintToleration, NodeAffinity,"
        " ... (nodes are 300 s old)"
    )


@pytest.mark.parametrize(
    ("freshness", "verdict"),
    [
        (stale(), Verdict.DENY),
        # What denies is known for sure, and so is what the scheduler's filters left.
        (stale(Domain.METRICS), Verdict.DENY),
        # Perhaps there is no room anywhere anyway, and waiting for some is right.
        (stale(Domain.PODS), Verdict.ABSTAIN),
        # The filter abstains, and both nodes fit.
        (stale(Domain.NODES), Verdict.PLACE),
    ],
)
def test_a_stale_view_denies_no_pod(freshness: Freshness, verdict: Verdict) -> None:
    nowhere = policies(
        p="""
        filters: [{name: zone, expression: node.labels.zone == 'c'}]
        placement: {whenNoneFits: Deny}
        """
    )
    assert _decided(nowhere, freshness).verdict is verdict


def test_usage_alone_cannot_deny_over_nodes_that_may_be_gone() -> None:
    busy = policies(
        p="filters: [{name: f, expression: node.usage.cpu < 0.0}]\nplacement: {whenNoneFits: Deny}"
    )
    assert _decided(busy, stale()).verdict is Verdict.DENY
    assert _decided(busy, stale(Domain.NODES)).verdict is Verdict.ABSTAIN


def test_required_labels_are_written_however_old_the_nodes_are() -> None:
    zoned = policies(p="filters: [{name: zone, expression: node.labels.zone == 'b'}]")
    view = _two(zoned)
    for freshness in (stale(), stale(Domain.NODES), stale(*Domain)):
        decision = decide(REQUEST, zoned, view, NOW, freshness=freshness)
        patch = encode(decision, REQUEST, view)
        assert "'key': 'zone', 'operator': 'In', 'values': ['b']" in str(patch.operations)


def test_a_stale_view_prefers_no_node() -> None:
    policy_set = policies(p="scores: [{plugin: LoadAware}, {name: b, expression: -node.podCount}]")
    view = _two(policy_set)
    for freshness, preferred in ((stale(Domain.METRICS), True), (stale(*Domain), False)):
        decision = decide(REQUEST, policy_set, view, NOW, freshness=freshness)
        operations = str(encode(decision, REQUEST, view).operations)
        assert ("preferredDuring" in operations) is preferred


def test_policies_in_audit_mode_abstain_as_well() -> None:
    audited = policies(p="mode: Audit\nfilters: [{plugin: LoadAware}]")
    decision = _decided(audited, stale(Domain.METRICS))
    assert decision.audit is not None
    assert decision.audit.candidates.size == 2
    assert decision.audit.abstained


# What holds on any cluster, with every plugin there is.


def _rules(names: Iterable[str]) -> str:
    return ", ".join(f"{{plugin: {name}, args: {json.dumps(args_of(name))}}}" for name in names)


EVERYTHING = policies(
    filters=f"filters: [{_rules(name for name, plugin in PLUGINS.items() if plugin.filter)}]",
    scores=f"scores: [{_rules(name for name, plugin in PLUGINS.items() if plugin.score)}]",
    words="""
    filters:
    - {name: zone, expression: "!has(node.labels.zone) || node.labels.zone == 'a'"}
    - {name: calm, expression: "!has(node.usage) || node.usage.cpu < 3.0"}
    - {name: roomy, expression: node.limits.cpu < node.allocatable.cpu * 2.0}
    scores:
    - {name: cold, expression: "has(node.usage) ? -node.usage.cpu : 0.0"}
    - {name: few, expression: -node.podCount}
    - {name: whole, expression: "node == node ? 1 : 0"}
    """,
)
NAMES = [f"n{i}" for i in range(4)]
TAINT = api.Taint(key="dedicated", value="x", effect="NoSchedule")


class Known(NamedTuple):
    """What is known by domain, at its index; nodes always have the same names."""

    nodes: tuple[Node, ...]
    pods: list[Pod]
    reports: list[NodeUsage]
    zones: list[NodeZones]


def _nodes(name: str) -> st.SearchStrategy[Node]:
    return st.builds(
        lambda cores, labels, cordoned, taints: node(
            name,
            allocatable={"cpu": cores * 1000, "memory": 8 * GIB, "pods": 3},
            capacity={"cpu": cores * 1000, "memory": 9 * GIB},
            labels=labels,
            unschedulable=cordoned,
            taints=taints,
        ),
        st.integers(1, 4),
        st.fixed_dictionaries(
            {}, optional={"zone": st.sampled_from("ab"), "price": st.sampled_from("12")}
        ),
        st.sampled_from([False, False, True]),
        st.sampled_from([(), (), (TAINT,)]),
    )


_cpu = st.fixed_dictionaries({}, optional={"cpu": st.sampled_from(["500m", "1", "3"])})
_pods = st.builds(
    lambda name, on, limits, requests: pod(name, on, limits=limits, requests=requests),
    st.integers(0, 5).map("p{}".format),
    st.sampled_from(NAMES),
    _cpu,
    _cpu,
)
_reports = st.builds(
    lambda name, cpu, deviation, age: replace(
        usage(name, cpu=cpu, memory=GIB, age=age),
        average={"cpu": cpu // 2, "memory": GIB},
        deviation={"cpu": deviation},
    ),
    st.sampled_from(NAMES),
    st.integers(0, 4000),
    st.integers(0, 900),
    st.sampled_from([10, 100, 1000]),
)
known = st.builds(
    Known,
    st.tuples(*map(_nodes, NAMES)),
    st.lists(_pods, max_size=6),
    st.lists(_reports, max_size=6),
    # A zone without cpu holds nothing.
    st.lists(
        st.builds(
            zones,
            st.sampled_from(NAMES),
            st.sampled_from([{}, {"cpu": "4"}]),
        ),
        max_size=3,
    ),
)
stale_sets = st.sets(st.sampled_from(Domain)).map(lambda domains: stale(*domains))


def _told(
    objects: Iterable[Iterable[Node | Pod | NodeUsage | NodeZones]], freshness: Freshness
) -> DecisionReport:
    """Return the report of a decision, but for the version of the view."""
    view = _view(EVERYTHING, *(one for each in objects for one in each))
    decision = decide(REQUEST, EVERYTHING, view, NOW, freshness=freshness)
    return structs.replace(decision_report(decision), view_version=0)


@settings(max_examples=150)
@given(known=known, other=known, freshness=stale_sets)
def test_stale_sources_have_no_effect_whatever_their_content(
    known: Known, other: Known, freshness: Freshness
) -> None:
    mixed = [other[one] if one in freshness.stale else known[one] for one in Domain]
    assert _told(mixed, freshness) == _told(known, freshness)


def _reads(policy_set: PolicySet) -> Mapping[tuple[str, str], frozenset[Domain]]:
    rules = [*SCHEDULER_FILTERS, *(rule for policy in policy_set for rule in policy.filters)]
    return {(rule.policy, rule.name): frozenset(rule.evaluator.reads) for rule in rules}


@settings(max_examples=100)
@given(known=known, freshness=stale_sets)
def test_rules_that_read_what_is_fresh_say_the_same_and_the_others_nothing(
    known: Known, freshness: Freshness
) -> None:
    view = _view(EVERYTHING, *(one for each in known for one in each))
    before = decide(REQUEST, EVERYTHING, view, NOW)
    after = decide(REQUEST, EVERYTHING, view, NOW, freshness=freshness)
    reads = _reads(EVERYTHING)
    for old, new in zip(before.filters, after.filters, strict=True):
        if reads[new.policy, new.rule] & freshness.stale.keys():
            assert new.abstained
            assert not new.rejects.any()
            assert new.labels == old.labels
        else:
            assert not new.abstained
            assert np.array_equal(new.rejects, old.rejects)
            rows = range(len(view))
            assert [new.reason(row) for row in rows] == [old.reason(row) for row in rows]
    raw = {
        (score.policy, score.rule, row): value
        for score in before.scores
        for row, value in zip(before.candidates.tolist(), score.raw.tolist(), strict=True)
    }
    for score in after.scores:
        if score.abstained:
            assert not score.normalized.any()
            continue
        for row, value in zip(after.candidates.tolist(), score.raw.tolist(), strict=True):
            assert raw.get((score.policy, score.rule, row), value) == value
