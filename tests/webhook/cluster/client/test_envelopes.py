from __future__ import annotations

from webhook.cluster.client.envelopes import event_of, meta_of, page_of

POD = b'{"metadata":{"name":"a","namespace":"shop","managedFields":%b}}'
DEEP = POD % (b"[" * 9_000 + b"]" * 9_000)


def test_an_event_about_an_object_that_nests_deeply_is_read() -> None:
    event = event_of(b'{"type":"ADDED","object":%b}' % DEEP)
    assert (event.type, meta_of(event.object).key) == ("ADDED", "shop/a")


def test_an_object_that_nests_deeply_hides_no_others_of_its_page() -> None:
    page = page_of(b'{"metadata":{"resourceVersion":"7"},"items":[%b,%b]}' % (DEEP, POD % b"[]"))
    assert page.metadata.resource_version == "7"
    assert [meta_of(item).key for item in page.items or ()] == ["shop/a", "shop/a"]
