from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.pod import Pod
from engine.plugins.base import FAULT, Cycle
from engine.plugins.inter_pod_affinity import (
    PLUGIN,
    InterPodAffinityFilter,
)
from engine.view import ClusterView, WhatIf
from tests.engine.measured_cluster import NOW
from tests.engine.plugins.neighbour_worlds import (
    ZONE,
    model_of,
    random_cluster,
    random_pod,
    state_of,
)
from tests.engine.plugins.scheduler_oracle import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    Json,
    PlainCluster,
    inter_pod_affinity,
)

RULE = InterPodAffinityFilter()
SHOP = {"matchLabels": {"app": "shop"}}


def node(name: str, zone: str = "") -> Json:
    return {"metadata": {"name": name, "labels": {ZONE: zone} if zone else {}}}


def pod(on: str = "", app: str = "shop", **affinity: Any) -> Json:  # noqa: ANN401 (terms)
    required = {
        side: {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        for side, terms in affinity.items()
    }
    metadata = {"name": f"{app}-on-{on}", "namespace": "default", "labels": {"app": app}}
    return {
        "metadata": metadata,
        "spec": {"nodeName": on, "containers": [], "affinity": required},
    }


def term(selector: Json = SHOP, key: str = ZONE, **more: Any) -> Json:  # noqa: ANN401 (any part)
    return {"topologyKey": key, "labelSelector": selector, **more}


NODES = [node("a1", "a"), node("a2", "a"), node("b1", "b"), node("none")]


def reasons(incoming: Pod, view: ClusterView) -> dict[str, str]:
    codes = RULE.filter(Cycle(incoming, view, NOW)).codes
    return {
        name: "" if code == 0 else RULE.reasons(code, Cycle(incoming, view, NOW))[0]
        for name, code in zip(view.names, codes.tolist(), strict=True)
        if name
    }


def test_a_pod_goes_to_the_zone_of_the_pods_that_it_needs() -> None:
    view = state_of(PlainCluster(NODES, [pod("a1"), pod("b1", "cart")])).view()
    wanted = model_of(pod(app="cart", podAffinity=[term()]))
    assert reasons(wanted, view) == {"a1": "", "a2": "", "b1": AFFINITY, "none": AFFINITY}
    (near,) = RULE.inputs(Cycle(wanted, view, NOW), view.rows["a2"])
    assert (near.name, near.value) == (f"pods it needs by {ZONE}", 1)


def test_the_first_of_pods_that_need_each_other_goes_to_any_zone() -> None:
    view = state_of(PlainCluster(NODES, [pod("a1", "cart")])).view()
    wanted = model_of(pod(podAffinity=[term()]))
    assert reasons(wanted, view) == {"a1": "", "a2": "", "b1": "", "none": AFFINITY}
    # And once it is there, the next goes after it.
    what_if = WhatIf(view)
    what_if.place(wanted, view.rows["b1"])
    after = {"a1": AFFINITY, "a2": AFFINITY, "b1": "", "none": AFFINITY}
    assert reasons(wanted, what_if.view) == after


def test_pods_avoid_each_other_though_only_one_of_them_says_so() -> None:
    alone = pod("a1", "cart", podAntiAffinity=[term()])
    view = state_of(PlainCluster(NODES, [alone, pod("b1")])).view()
    shop = reasons(model_of(pod()), view)
    assert shop == {
        "a1": EXISTING_ANTI_AFFINITY,
        "a2": EXISTING_ANTI_AFFINITY,
        "b1": "",
        "none": "",
    }
    cart = reasons(model_of(pod(app="cart", podAntiAffinity=[term()])), view)
    assert cart == {"a1": "", "a2": "", "b1": ANTI_AFFINITY, "none": ""}


def test_it_concerns_only_pods_that_need_or_avoid_others_or_are_avoided() -> None:
    alone = pod("a1", "cart", podAntiAffinity=[term()])
    state = state_of(PlainCluster(NODES, [alone]))
    view = state.view()
    assert PLUGIN.concerns(Cycle(model_of(pod()), view, NOW))
    assert PLUGIN.concerns(Cycle(model_of(pod(app="x", podAffinity=[term()])), view, NOW))
    assert not PLUGIN.concerns(Cycle(model_of(pod(app="x")), view, NOW))
    state.delete_pod("default/cart-on-a1")
    assert not PLUGIN.concerns(Cycle(model_of(pod()), state.view(), NOW))


def test_a_very_large_affinity_is_a_fault() -> None:
    view = state_of(PlainCluster(NODES, [])).view()
    expressions = [{"key": f"key-{i}", "operator": "Exists"} for i in range(64)]
    many = model_of(pod(podAffinity=[term({"matchExpressions": expressions})]))
    long = model_of(pod(podAffinity=[term({"matchLabels": {"k": "v" * 9_000}})]))
    for hostile in (many, long):
        result = RULE.filter(Cycle(hostile, view, NOW))
        assert result.has_faults
        assert set(result.codes.tolist()) == {FAULT}
        assert "affinity to pods" in RULE.fault(Cycle(hostile, view, NOW), 0)


@pytest.mark.parametrize("key", ["matchLabelKeys", "mismatchLabelKeys"])
def test_label_keys_are_in_the_selector_once_a_pod_is_stored(key: str) -> None:
    written = pod(podAntiAffinity=[{**term({}), key: ["app"]}])
    stored = {**written, "metadata": {**written["metadata"]}}
    stored["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    (of_new,) = model_of(written).pod_anti_affinity
    (of_stored,) = model_of(stored).pod_anti_affinity
    assert of_new.label_selector is not None
    assert of_stored.label_selector is not None
    (added,) = of_new.label_selector.match_expressions or [api.SelectorRequirement()]
    assert (added.operator, added.values) == ("NotIn" if "mis" in key else "In", ["shop"])
    assert not of_stored.label_selector.match_expressions


@given(st.randoms(use_true_random=False))
def test_the_filter_agrees_with_the_schedulers_own(random: Random) -> None:
    cluster, wanted = random_cluster(random), random_pod(random)
    view = state_of(cluster).view()
    assert reasons(model_of(wanted), view) == inter_pod_affinity(wanted, cluster)
    rows = np.array(random.sample(range(len(view)), len(view) // 2), np.intp)
    some = view.take(rows)
    expected = {name: inter_pod_affinity(wanted, cluster)[name] for name in some.names}
    assert reasons(model_of(wanted), some) == expected
    if not PLUGIN.concerns(Cycle(model_of(wanted), view, NOW)):
        assert set(reasons(model_of(wanted), view).values()) == {""}


@pytest.mark.parametrize(("namespace", "is_kept_away"), [("red", False), ("blue", True)])
def test_a_selector_of_namespaces_selects_those_whose_labels_match(
    namespace: str,
    is_kept_away: bool,  # noqa: FBT001
) -> None:
    not_red = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]}
    other = pod("a1")
    other["metadata"]["namespace"] = namespace
    cluster = PlainCluster(NODES, [other], {"red": {"team": "red"}, "blue": {"team": "blue"}})
    wanted = model_of(pod(podAntiAffinity=[term(namespaceSelector=not_red)]))
    found = reasons(wanted, state_of(cluster).view())
    assert found["a1"] == found["a2"] == (ANTI_AFFINITY if is_kept_away else "")


def test_of_the_labels_by_which_other_pods_keep_away_the_first_sixteen_count() -> None:
    keys = [f"key-{i:02}" for i in range(17)]
    nodes = [{"metadata": {"name": key, "labels": {key: "x"}}} for key in keys]
    others = [pod(key, "cart", podAntiAffinity=[term(key=key)]) for key in keys]
    for each, key in zip(others, keys, strict=True):
        each["metadata"]["name"] = key
    found = reasons(model_of(pod()), state_of(PlainCluster(nodes, others)).view())
    assert [bool(found[key]) for key in keys] == [True] * 16 + [False]
