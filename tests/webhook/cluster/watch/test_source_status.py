from __future__ import annotations

from engine.model.time import Micros
from webhook.cluster.watch.source_status import SourceStatus


def status(*, required: bool) -> SourceStatus:
    return SourceStatus(name="one", domain=None, required=required)


def test_what_is_required_settles_only_when_it_was_heard_in_full() -> None:
    one = status(required=True)
    one.last_contact, one.last_error = Micros(1), "no contact"
    assert not one.sync_settled
    one.synced = True
    assert one.sync_settled


def test_what_is_optional_is_not_waited_for_where_it_is_absent_or_fails() -> None:
    one = status(required=False)
    assert not one.sync_settled
    one.last_contact = Micros(1)  # the answer was that there is none
    assert one.sync_settled
    one.present = True  # it is being listed
    assert not one.sync_settled
    one.last_error = "we lack the permission"
    assert one.sync_settled
