from __future__ import annotations

import re

from msgspec import structs

from engine.report import BindingReport, FoundPod, PodName, PodReport, PodsReport, RuleReason
from tests.webhook.pages.reports import HOSTILE, decision
from webhook.pages import pod_page, pods_page

POD = PodName("shop", "web")


def test_it_says_what_became_of_the_pod_at_its_binding() -> None:
    binding = BindingReport(
        action="Move",
        reason="BetterNode",
        scheduler_node="node9",
        node="node1",
        message="moved from node9 to node1: another node is better",
    )
    body = pod_page(PodReport(pod=POD, node="node1", noted="noted", binding=binding), {}).body
    assert "<dt>Scheduler&#39;s node</dt>" in body
    assert '<a href="node?name=node9" title="node9">' in body
    assert "Move: BetterNode" in body
    assert body.count("moved from node9 to node1: another node is better") == 1
    assert "Noted on the pod" not in body


def test_without_a_pod_there_is_a_form_to_choose_one() -> None:
    page = pod_page(None, {"namespace": HOSTILE})
    assert 'name="namespace"' in page.body
    assert "<img" not in page.body
    assert not page.figures


def test_it_says_why_here_and_why_not_there() -> None:
    report = PodReport(pod=POD, node="node1", now=decision("too busy"))
    page = pod_page(report, {})
    assert page.title == "Pod shop/web"
    assert page.body.index(">node1<") < page.body.index(">node2<")
    assert "<strong>1 left out</strong>, by the first rule that rejected them" in page.body
    (figure,) = page.figures.values()
    (bars,) = figure["data"]
    assert (bars["y"], bars["x"]) == (["node1", "node2"], [180, 140])


def test_a_node_that_is_asked_about_is_found_among_those_that_fit_and_those_that_do_not() -> None:
    report = PodReport(pod=POD, now=decision("too busy"))
    assert "is the best node" in pod_page(report, {"node": "node1"}).body
    # 180 - 140 points
    assert (
        "fits: 40 points behind the best, number 2 of 2" in pod_page(report, {"node": "node2"}).body
    )
    rejected = pod_page(report, {"node": "node3"}).body
    assert "<strong>node3</strong> was rejected" in rejected
    assert "is not among the nodes" in pod_page(report, {"node": HOSTILE}).body


def test_the_node_that_a_pod_runs_on_is_told_of_unless_another_is_asked_about() -> None:
    report = PodReport(pod=POD, node="node3", now=decision("too busy"))
    assert "<strong>node3</strong> was rejected" in pod_page(report, {}).body
    other = pod_page(report, {"node": "node1"}).body
    assert "<strong>node1</strong> is the best node" in other
    assert "was rejected" not in other
    hidden = structs.replace(decision(), ranking=(), rejected={})
    assert "node3</strong>" not in pod_page(structs.replace(report, now=hidden), {}).body


def test_nodes_that_are_left_out_for_the_same_reasons_stand_together() -> None:
    busy, full = (RuleReason("calm", rule, f"too {rule}") for rule in ("busy", "full"))
    rejected = {"node3": (busy,), "node4": (full, busy), "node5": (busy,)}
    body = pod_page(PodReport(pod=POD, now=structs.replace(decision(), rejected=rejected)), {}).body
    text = re.sub(r"<(?!br)[^>]+>", "", body)
    assert "busy of calm: too busy<br>node3, node5\n" in text
    assert "full of calm: too full<br>busy of calm: too busy<br>node4\n" in text


def test_a_node_to_ask_about_is_suggested() -> None:
    page = pod_page(PodReport(pod=POD, node="node1"), {}, ["node1", "node2"])
    assert '<option value="node2">' in page.body


def test_what_policies_in_audit_mode_would_have_done_has_its_own_section() -> None:
    report = PodReport(pod=POD, recorded=decision(audit=decision("audited")))
    page = pod_page(report, {})
    assert "Not applied: what policies in Audit mode would have done" in page.body
    assert set(page.figures) == {"recorded-points", "recorded-audit-points"}


def test_a_decision_without_nodes_has_no_plot() -> None:
    hidden = structs.replace(decision(), ranking=(), rejected={})
    page = pod_page(PodReport(pod=POD, now=hidden, problem="no right to read nodes"), {})
    assert not page.figures
    assert "no right to read nodes" in page.body
    assert "by the first rule that rejected them" in page.body


def test_texts_of_the_cluster_are_escaped() -> None:
    hostile = decision(HOSTILE)
    report = PodReport(
        pod=PodName(HOSTILE, HOSTILE),
        node=HOSTILE,
        expected_node=HOSTILE,
        noted=HOSTILE,
        now=hostile,
        problem=HOSTILE,
    )
    page = pod_page(report, {"node": "node3"})
    assert "<img" not in page.body
    assert "</script" not in page.body
    for trace in page.figures["now-points"]["data"]:
        assert "<" not in trace["name"]


def test_pods_to_choose_from_lead_to_their_pages_and_nodes() -> None:
    found = FoundPod(pod=PodName("shop", HOSTILE), node="node1")
    report = PodsReport(total=1, pods=(found,), namespaces=("shop",))
    body = pods_page(report, {"namespace": "shop", "name": "<"}).body
    assert 'href="node?name=node1"' in body
    assert '<option value="shop">' in body
    assert "<img" not in body


def test_no_pod_to_choose_from_says_what_to_do() -> None:
    body = pods_page(PodsReport(total=0, pods=(), namespaces=()), {}).body
    assert "leave a field empty to find more" in body
