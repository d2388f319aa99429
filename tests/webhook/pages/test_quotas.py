from __future__ import annotations

from engine.report import QuotaAmount, QuotaRow, QuotasReport
from tests.webhook.pages.reports import HOSTILE
from webhook.pages import quotas_page


def quota(namespace: str, *amounts: QuotaAmount, queued: int = 0) -> QuotaRow:
    return QuotaRow(
        namespace=namespace,
        name="team",
        group="scheduling.x-k8s.io",
        mode="Queue",
        amounts=amounts,
        queued=queued,
    )


def report(*quotas: QuotaRow) -> QuotasReport:
    return QuotasReport(total=len(quotas), quotas=quotas)


def test_a_row_has_what_is_used_within_min_beyond_it_and_reserved() -> None:
    # of max 4000: used 3000, min 1000 -> 25 % within, 50 % beyond; reserved 400 -> 10 %
    cpu = QuotaAmount(resource="cpu", used=3000, reserved=400, min=1000, max=4000, borrowed=2000)
    page = quotas_page(report(quota("a", cpu)), {})
    used, beyond, reserved, least = page.figures["fill"]["data"]
    assert (used["x"], beyond["x"], reserved["x"], least["x"]) == ([25.0], [50.0], [10.0], [25.0])
    assert "3 cores" in page.body
    assert "2 cores" in page.body


def test_a_line_is_where_a_quota_is_full() -> None:
    over = QuotaAmount(resource="cpu", used=7000, max=2000)
    (line,) = quotas_page(report(quota("a", over)), {}).figures["fill"]["layout"]["shapes"]
    assert (line["x0"], line["x1"]) == (100, 100)


def test_the_fullest_quota_is_on_top() -> None:
    amounts = [QuotaAmount(resource="cpu", used=used, max=1000) for used in (100, 900, 500)]
    rows = [quota(name, each) for name, each in zip("abc", amounts, strict=True)]
    used, *_ = quotas_page(report(*rows), {}).figures["fill"]["data"]
    assert used["y"] == ["b/team", "c/team", "a/team"]


def test_a_quota_above_its_max_says_so_in_words() -> None:
    over = QuotaAmount(resource="pods", used=5, max=4)
    assert "over max" in quotas_page(report(quota("a", over)), {}).body
    zero = QuotaAmount(resource="pods", used=1, max=0)
    assert "over max" in quotas_page(report(quota("a", zero)), {}).body


def test_a_resource_without_bounds_is_not_drawn() -> None:
    page = quotas_page(report(quota("a", QuotaAmount(resource="cpu", used=5))), {})
    assert not page.figures
    assert ">none<" in page.body


def test_pods_that_wait_lead_to_the_queue_of_their_namespace() -> None:
    page = quotas_page(report(quota("a b", QuotaAmount(resource="cpu", used=1), queued=3)), {})
    assert 'href="queue?namespace=a%20b"' in page.body


def test_no_quota_is_shown_as_such() -> None:
    assert "No ElasticQuota is known" in quotas_page(report(), {}).body


def test_texts_of_the_cluster_are_escaped() -> None:
    hostile = quota(HOSTILE, QuotaAmount(resource=HOSTILE, used=1, max=2), queued=1)
    page = quotas_page(report(hostile), {"namespace": HOSTILE, "resource": HOSTILE})
    assert "<img" not in page.body
    assert "<" not in page.figures["fill"]["data"][0]["y"][0]
