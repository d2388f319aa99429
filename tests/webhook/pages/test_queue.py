from __future__ import annotations

from engine.report import PodName, QueuedPodReport, QueueReport, QuotaPlace, ReleaserReport
from tests.webhook.pages.reports import HOSTILE
from webhook.pages import queue_page


def queued(name: str, place: int = 1, *, text: str = "WaitingForQuota") -> QueuedPodReport:
    return QueuedPodReport(
        pod=PodName("shop", name),
        place=place,
        priority=5,
        qos_class="Burstable",
        held_seconds=30,
        reason=text,
        message=text,
        nominated_node=text,
        quota=QuotaPlace(
            quota=text,
            position=2,
            of=9,
            needs={"cpu": "2", text: text},
            free={"cpu": "500m"},
            blocked_by=(text,),
            eta_seconds=600,
        ),
        gang=text,
    )


def queue(
    *pods: QueuedPodReport, releaser: ReleaserReport | None = None, overdue: int = 0
) -> QueueReport:
    return QueueReport(
        queue_sort="PrioritySort", held=len(pods), overdue=overdue, releaser=releaser, pods=pods
    )


def test_a_pod_has_its_place_its_reason_and_when_it_is_expected() -> None:
    body = queue_page(queue(queued("web")), {}).body
    assert "2nd of 9 in WaitingForQuota" in body
    assert ">cpu 2, WaitingForQuota WaitingForQuota</td>" in body
    assert ">cpu 500m</td>" in body
    assert "about 10 min" in body
    assert 'href="pod?namespace=shop&amp;name=web"' in body


def test_a_pod_that_waits_for_others_has_no_place() -> None:
    assert '<th scope="row">-</th>' in queue_page(queue(queued("web", 0)), {}).body


def test_what_is_wrong_is_said() -> None:
    assert 'class="bad"' not in queue_page(queue(queued("web")), {}).body
    late = queue_page(queue(queued("web"), overdue=1), {}).body
    assert '<strong class="bad">1 overdue</strong>' in late
    nobody = ReleaserReport(holder="", renewed_seconds_ago=None, releasing=False)
    assert "nobody releases" in queue_page(queue(queued("web"), releaser=nobody), {}).body


def test_an_empty_queue_is_shown_as_such() -> None:
    assert "No pod is held" in queue_page(queue(), {}).body


def test_texts_of_the_cluster_are_escaped() -> None:
    page = queue_page(queue(queued(HOSTILE, text=HOSTILE)), {"namespace": HOSTILE})
    assert "<img" not in page.body
    assert "</script" not in page.body
