from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.model.elastic_quota import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    UPSTREAM_GROUP,
    ElasticQuota,
    TreeSettings,
)
from engine.model.resources import Amounts
from engine.model.time import Micros
from engine.quota.bounds import sum_of
from engine.quota.tree import (
    Claim,
    QuotaTree,
    RuntimeQuota,
    known_quota_name,
    redistribute,
    runtime_quotas,
    sum_requests,
)
from engine.quota.tree.tree import RevocablePod, overused, pods_to_revoke
from tests.engine.quota.tree.quotas import quota

_AMOUNTS = st.integers(0, 2**62)


@st.composite
def _claims(draw: st.DrawFn, amounts: st.SearchStrategy[int] = _AMOUNTS) -> list[Claim]:
    count = draw(st.integers(1, 8))
    return [
        Claim(f"q{i}", draw(st.integers(0, 50)), draw(amounts), draw(amounts), draw(st.booleans()))
        for i in range(count)
    ]


@given(_AMOUNTS, _claims(st.integers(0, 2**58)))
def test_no_more_than_the_total_is_given_out_where_the_guarantees_fit(
    total: int, claims: list[Claim]
) -> None:
    total += sum(claim.min for claim in claims)
    assert sum(redistribute(total, claims).values()) <= total


@given(_AMOUNTS, _claims())
def test_everyone_gets_what_it_requests_within_its_guarantee_and_nobody_more_than_it_requests(
    total: int, claims: list[Claim]
) -> None:
    runtime = redistribute(total, claims)
    for claim in claims:
        assert runtime[claim.name] >= min(claim.request, claim.min)
        assert runtime[claim.name] <= max(claim.request, 0 if claim.lends else claim.min)


@given(_AMOUNTS, _claims())
def test_nothing_is_left_while_somebody_with_a_weight_requests_more(
    total: int, claims: list[Claim]
) -> None:
    runtime = redistribute(total, claims)
    is_short = any(claim.weight and runtime[claim.name] < claim.request for claim in claims)
    assert not is_short or sum(runtime.values()) >= total


@given(_AMOUNTS, _AMOUNTS, _claims())
def test_with_one_more_byte_in_the_total_nobody_gets_less_but_by_a_remainder(
    total: int, more: int, claims: list[Claim]
) -> None:
    # The largest remainder method can take single units from one with a smaller remainder.
    few, many = redistribute(total, claims), redistribute(total + more, claims)
    assert all(many[name] >= amount - len(claims) ** 2 for name, amount in few.items())


@given(_AMOUNTS, _claims(), st.randoms(use_true_random=False))
def test_the_order_of_the_quotas_does_not_matter(
    total: int, claims: list[Claim], order: random.Random
) -> None:
    shuffled = claims.copy()
    order.shuffle(shuffled)
    assert redistribute(total, claims) == redistribute(total, shuffled)


def test_what_is_left_is_split_by_weight_and_the_surplus_handed_on() -> None:
    # 100 - 10 - 10 - 10 = 70 by 50:30:20 is 35, 21, 14; a needs 2 of its 35, so 33 go on by 30:20
    # as 20 and 13: b would have 51 of its 40, and its 11 go to c: 10 + 14 + 13 + 11.
    claims = [Claim("a", 50, 12, 10), Claim("b", 30, 40, 10), Claim("c", 20, 90, 10)]
    assert redistribute(100, claims) == {"a": 12, "b": 40, "c": 48}


def _runtime(
    quotas: list[ElasticQuota], own: dict[str, Amounts], total: Amounts
) -> dict[str, RuntimeQuota]:
    tree = QuotaTree(quotas)
    return runtime_quotas(tree, sum_requests(tree, own), total)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=1, max_size=6),
    st.integers(0, 300),
    st.randoms(use_true_random=False),
)
def test_children_share_no_more_than_the_runtime_of_their_parent(
    children: list[tuple[int, int]], total: int, order: random.Random
) -> None:
    quotas = [
        quota(
            "top",
            most={"cpu": 200},
            least={"cpu": 50},
            tree=TreeSettings(parent=ROOT_QUOTA, is_parent=True),
        ),
        quota("other", most={"cpu": 100}, least={"cpu": 20}),
        *(
            quota(f"c{i}", "top", most={"cpu": 60}, least={"cpu": least})
            for i, (least, _) in enumerate(children)
        ),
    ]
    own: dict[str, Amounts] = {f"c{i}": {"cpu": need} for i, (_, need) in enumerate(children)}
    shares = _runtime(quotas, own | {"other": {"cpu": 90}}, {"cpu": total})
    below = sum(shares[name].runtime["cpu"] for name in own)
    assert below <= shares["top"].runtime["cpu"]
    assert shares["top"].runtime["cpu"] + shares["other"].runtime["cpu"] <= total
    order.shuffle(quotas)
    assert _runtime(quotas, own | {"other": {"cpu": 90}}, {"cpu": total}) == shares


def test_a_quota_that_keeps_its_guarantee_does_not_compete_without_pods() -> None:
    keeps = TreeSettings(lends=False)
    quotas = [
        quota("idle", most={"cpu": 60}, least={"cpu": 20}, tree=keeps),
        quota("busy", most={"cpu": 60}, least={"cpu": 20}),
    ]
    shares = _runtime(quotas, {"busy": {"cpu": 60}}, {"cpu": 30})
    assert (shares["idle"].runtime, shares["busy"].runtime) == ({"cpu": 15}, {"cpu": 15})


def test_a_tree_with_an_id_shares_the_total_that_its_root_names() -> None:
    root = TreeSettings(is_parent=True, tree_id="gpu", is_tree_root=True, total={"cpu": 8})
    quotas = [
        quota("gpu-root", most={"cpu": 100}, tree=root),
        quota("team", most={"cpu": 100}, tree=TreeSettings(parent="gpu-root", tree_id="gpu")),
        quota("web", most={"cpu": 100}),
    ]
    shares = _runtime(quotas, {"team": {"cpu": 50}, "web": {"cpu": 50}}, {"cpu": 40})
    assert shares["team"].runtime == {"cpu": 8}
    assert shares["web"].runtime == {"cpu": 40}


def _pod(name: str, cpu: int, priority: int = 0, started: int = 0) -> RevocablePod:
    return RevocablePod(f"shop/{name}", priority, Micros(started), {"cpu": cpu})


def _revoked(pods: list[RevocablePod], runtime: int) -> list[str]:
    used = sum_of(pod.requests for pod in pods)
    revoked = pods_to_revoke(pods, used, {"cpu": runtime})
    return [pod.key.removeprefix("shop/") for pod in revoked]


def test_the_least_important_pods_go_first_of_equal_ones_the_latest() -> None:
    pods = [_pod("high", 4, priority=10), _pod("old", 4, started=1), _pod("new", 4, started=2)]
    assert _revoked(pods, 8) == ["new"]
    assert _revoked(pods, 7) == ["old", "new"]


def test_a_small_pod_comes_back_where_a_larger_one_goes() -> None:
    # 1 + 6 are taken to come from 13 to 6 of 7; the small one fits beside what is left.
    assert _revoked([_pod("base", 6, 2), _pod("large", 6, 1), _pod("small", 1, 0)], 7) == ["large"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=8), st.integers(0, 40))
def test_what_is_left_fits_and_nobody_goes_without_need(
    sizes: list[tuple[int, int]], runtime: int
) -> None:
    pods = [_pod(f"p{i}", cpu, priority) for i, (cpu, priority) in enumerate(sizes)]
    used, bound = sum_of(pod.requests for pod in pods), {"cpu": runtime}
    revoked = pods_to_revoke(pods, used, bound)
    left = sum_of(pod.requests for pod in pods if pod not in revoked)
    assert not overused(left, bound)
    assert all(overused(sum_of((left, pod.requests)), bound) for pod in revoked)


def _above(tree: QuotaTree, name: str) -> list[str]:
    return [each.name for each in tree.ancestors_of(name)]


def test_a_quota_is_below_the_parent_that_its_label_names() -> None:
    tree = QuotaTree([quota("leaf", "mid"), quota("top"), quota("mid", "top")])
    assert _above(tree, "leaf") == ["mid", "top"]
    assert [each.name for each in tree] == ["top", "mid", "leaf"]


def test_a_quota_without_an_existing_parent_is_of_the_top_level() -> None:
    tree = QuotaTree([quota("orphan", "gone")])
    assert tree.is_top_level(tree.children_of(ROOT_QUOTA)[0])


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8))
def test_any_parents_make_a_tree_in_which_every_quota_is_found_once(parents: list[int]) -> None:
    tree = QuotaTree([quota(f"q{i}", f"q{parent}") for i, parent in enumerate(parents)])
    found = [each.name for each in tree]
    assert sorted(found) == [f"q{i}" for i in range(len(parents))]
    for position, name in enumerate(found):
        assert all(above in found[:position] for above in _above(tree, name))


def test_a_pod_belongs_to_its_label_its_namespace_a_listing_quota_or_the_default_one() -> None:
    listing = quota("listing", tree=TreeSettings(namespaces=("shop",)))
    tree = QuotaTree([quota("team", namespace="team"), listing, quota("web")])
    assert known_quota_name(tree, "team", "web") == "web"
    assert known_quota_name(tree, "team", "") == "team"
    assert known_quota_name(tree, "shop", "") == "listing"
    assert known_quota_name(tree, "web", "") == DEFAULT_QUOTA  # in another namespace
    assert known_quota_name(tree, "team", "gone") == DEFAULT_QUOTA


def test_quotas_of_scheduler_plugins_are_not_of_the_tree() -> None:
    assert len(QuotaTree([replace(quota("team"), group=UPSTREAM_GROUP)])) == 0
