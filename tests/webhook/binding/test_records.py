from __future__ import annotations

from webhook.binding.records import BindingRecord, BindingRecords


def record(uid: str = "1", *, node: str = "node-b") -> BindingRecord:
    return BindingRecord(uid=uid, node=node, landings=())


def test_a_record_is_taken_once() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    found = records.take("shop/web", "1", "node-b")
    assert found is not None
    assert records.take("shop/web", "1", "node-b") is None


def test_a_pod_that_is_elsewhere_or_another_one_has_no_record() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    assert records.take("shop/web", "1", "node-a") is None
    records.put("shop/web", record())
    assert records.take("shop/web", "2", "node-b") is None


def test_a_later_try_replaces_an_earlier_one() -> None:
    records = BindingRecords()
    records.put("shop/web", record())
    records.put("shop/web", record(node="node-c"))
    assert records.take("shop/web", "1", "node-c") is not None


def test_bindings_that_nobody_counts_take_no_more_and_more_memory() -> None:
    records = BindingRecords()
    for number in range(5_000):
        records.put(f"shop/web-{number}", record())
    assert len(records) == 4_096
    assert records.take("shop/web-0", "1", "node-b") is None
    assert records.take("shop/web-4999", "1", "node-b") is not None
