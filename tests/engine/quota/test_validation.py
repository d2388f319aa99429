from __future__ import annotations

import msgspec
import pytest

from engine.model import api
from engine.model.elastic_quota import KOORDINATOR_GROUP, UPSTREAM_GROUP, EvictionMode, quota_of
from engine.model.node import node_of
from engine.model.time import Micros
from engine.quota import Findings, QuotaRules, check_deletion, check_quota
from engine.view import ClusterState
from tests.builders import pod_from

USUAL = QuotaRules()


def wire(
    namespace: str = "shop",
    name: str = "team",
    *,
    group: str = UPSTREAM_GROUP,
    least: api.ResourceList | None = None,
    most: api.ResourceList | None = None,
) -> api.ElasticQuota:
    return api.ElasticQuota(
        api_version=f"{group}/v1alpha1",
        metadata=api.ObjectMeta(namespace=namespace, name=name),
        spec=api.ElasticQuotaSpec(min=least, max=most),
    )


def created(
    quota: api.ElasticQuota, *others: api.ElasticQuota, rules: QuotaRules = USUAL
) -> Findings:
    """Return what is found when a quota is created in a cluster of 8 cores."""
    state = ClusterState()
    allocatable: api.ResourceList = {"cpu": "4"}
    for name in ("node-a", "node-b"):
        status = api.NodeStatus(allocatable=allocatable)
        state.set_node(node_of(api.Node(metadata=api.ObjectMeta(name=name), status=status)))
    for other in others:
        state.set_quota(quota_of(other))
    return check_quota(quota, None, state.view(), rules)


@pytest.mark.parametrize(
    ("quota", "problem"),
    [
        (wire(most={"cpu": "lots"}), "`spec.max` has no amount of `cpu`: `lots`"),
        (wire(least={"cpu": "-1m"}), "`spec.min` has less than none of `cpu`: `-1m`"),
        (wire(most={"cpus": 1}), "`spec.max` cannot have a resource `cpus`: did you mean `cpu`?"),
        (
            wire(most={"requests.cpu": 1}),
            "`spec.max` cannot have a resource `requests.cpu`: say `cpu`",
        ),
        (
            wire(least={"cpu": "1500m"}, most={"cpu": 1}),
            "`spec.min` guarantees 1500m of `cpu`, of which `spec.max` allows 1",
        ),
    ],
)
def test_an_invalid_quota_is_refused(quota: api.ElasticQuota, problem: str) -> None:
    (found,) = created(quota).problems
    assert found.startswith(problem)


def test_all_mistakes_are_reported_at_once() -> None:
    assert len(created(wire(least={"gpu": "-1"}, most={"cpu": "?"})).problems) == 3


def test_a_min_without_a_max_is_fine_unless_that_means_none() -> None:
    quota = wire(least={"cpu": 1}, most={"memory": "1Gi"})
    assert not created(quota).problems
    (problem,) = created(quota, rules=QuotaRules(unlisted_resources="Zero")).problems
    assert problem == "`spec.min` guarantees 1 of `cpu`, of which `spec.max` allows 0"


def test_a_namespace_has_one_quota_of_a_group() -> None:
    there = wire(name="first", most={"cpu": 1})
    (problem,) = created(wire(most={"cpu": 1}), there).problems
    assert problem == "namespace `shop` has an ElasticQuota already: `first`"
    assert not created(wire(namespace="mill", most={"cpu": 1}), there).problems
    assert not created(wire(group=KOORDINATOR_GROUP, most={"cpu": 1}), there).problems


def test_guaranteeing_more_than_the_cluster_has_is_a_warning() -> None:
    # 5 + 4 of 8 cores; memory is not checked.
    there = wire(namespace="mill", least={"cpu": 5, "memory": "1Ti"})
    assert created(wire(least={"cpu": 4}), there) == Findings(
        warnings=("all ElasticQuotas guarantee 9 of `cpu`, the cluster has 8",)
    )
    assert created(wire(least={"cpu": 3}), there) == Findings()


def test_a_write_that_leaves_the_spec_alone_is_never_refused() -> None:
    wrong = wire(least={"cpu": 2}, most={"cpu": 1})
    view = ClusterState().view()
    assert check_quota(wrong, wrong, view, USUAL) == Findings()
    assert check_quota(wrong, wire(most={"cpu": 1}), view, USUAL).problems


def test_a_quota_of_koordinator_is_held_to_its_own_rules() -> None:
    koordinator = wire(group=KOORDINATOR_GROUP, least={"memory": 1}, most={"requests.cpu": 1})
    found = created(koordinator)
    assert found.problems == (
        "resourceKey memory of quota team is included in min, which is not included in max",
    )
    assert found.warnings == ("`spec.max` cannot have a resource `requests.cpu`: say `cpu`",)
    elsewhere = wire("mill", group=KOORDINATOR_GROUP)
    assert created(wire(group=KOORDINATOR_GROUP), elsewhere).problems == (
        "AddQuota quota already exist:team",
    )


def test_a_quota_stays_while_a_label_of_a_pod_names_it() -> None:
    state = ClusterState()
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    metadata = {"namespace": "shop", "name": "a", "labels": labels}
    state.set_pod(pod_from({"metadata": metadata}), seen_at=Micros(0))
    findings = check_deletion("scheduling.sigs.k8s.io", "quotas", "team", state.view())
    assert findings.problems == ("delete quota failed, quota team has 1 child pods: in shop",)
    state.delete_pod("shop/a")
    assert not check_deletion("scheduling.sigs.k8s.io", "quotas", "team", state.view()).problems


@pytest.mark.parametrize(
    ("written", "mode", "is_hard"),
    [
        ("Hard", EvictionMode.ON, True),
        ("On", EvictionMode.ON, False),
        ("Off", EvictionMode.OFF, False),
        ("hard", EvictionMode.DRY_RUN, False),
        (None, EvictionMode.DRY_RUN, False),
    ],
)
def test_hard_reclaim_is_on_and_more(
    written: str | None,
    mode: EvictionMode,
    is_hard: bool,  # noqa: FBT001 - a column
) -> None:
    plain = wire(most={"cpu": 1})
    annotations = {} if written is None else {"stowplan.dev/reclaim": written}
    metadata = msgspec.structs.replace(plain.metadata, annotations=annotations)
    asking = msgspec.structs.replace(plain, metadata=metadata)
    found = quota_of(asking)
    assert (found.reclaim, found.asks_for_hard_reclaim) == (mode, is_hard)
    warnings = check_quota(asking, None, ClusterState().view(), USUAL).warnings
    assert bool(warnings) is (written == "hard")


def test_an_annotation_that_nobody_reads_is_a_warning_when_it_is_written() -> None:
    plain, view = wire(most={"cpu": 1}), ClusterState().view()
    metadata = msgspec.structs.replace(
        plain.metadata, annotations={"stowplan.dev/surge": "2", "stowplan.dev/revoke": "On"}
    )
    surging = msgspec.structs.replace(plain, metadata=metadata)
    for old in (None, plain):
        (found,) = check_quota(surging, old, view, USUAL).warnings
        assert found == "annotation `stowplan.dev/surge`: `2` counts as none; it may be `1`"
    assert check_quota(surging, surging, view, USUAL) == Findings()
