from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.caches import PARTS
from engine.model.pod import pod_of
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import (
    BRISK,
    LONG,
    QUOTAS,
    STARTED,
    eventually,
    pod,
    quota,
    reflecting,
)
from webhook.cluster.client.connection import connected
from webhook.cluster.watch.reflector import ApiGroups, KnownObjects

KEYS = st.sampled_from([f"shop/pod-{number}" for number in range(6)])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["show", "discard"]), KEYS),
    st.tuples(st.sampled_from(["begin", "end"]), st.just("")),
)


def unshown(known: KnownObjects) -> list[str]:
    """Forget what the list has not shown, as at its end."""
    gone = []
    for keys in known.unshown():
        for key in keys:
            known.discard(key)
            gone.append(key)
    return sorted(gone)


@given(st.lists(STEPS, max_size=40))
def test_what_a_list_does_not_show_is_gone_at_its_end(steps: list[tuple[str, str]]) -> None:
    known = KnownObjects()
    expected: set[str] = set()
    shown: set[str] = set()
    for step, key in steps:
        if step == "show":
            known.show(key, str)
            expected.add(key)
            shown.add(key)
        elif step == "discard":
            known.discard(key)
            expected.discard(key)
            shown.discard(key)
        elif step == "begin":
            known.begin_list()
            shown.clear()
        else:
            assert unshown(known) == sorted(expected - shown)
            expected &= shown
        assert len(known) == len(expected)
        assert known.shown == len(shown)


def test_no_step_at_the_end_of_a_list_goes_over_all_objects() -> None:
    # 100 in each part; with a standard deviation of 10
    known = KnownObjects()
    for number in range(100 * PARTS):
        known.show(f"shop/pod-{number}", str)
    known.begin_list()
    steps = [len(keys) for keys in known.unshown()]
    assert len(steps) == PARTS
    assert sum(steps) == 100 * PARTS
    assert max(steps) < 200


def test_the_string_that_others_hold_is_held() -> None:
    known, held = KnownObjects(), "held by others"
    known.show(f"held by {'others'}", lambda _: held)
    known.begin_list()
    known.show(f"held by {'others'}", str)
    known.begin_list()
    (key,) = unshown(known)
    assert key is held


GROUP = "slo.koordinator.sh"


async def test_all_who_ask_within_a_while_are_told_by_one_request(tmp_path: Path) -> None:
    async with (
        fake_api_server() as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        groups = ApiGroups(connection, 3_600)
        assert await groups.has(GROUP)
        assert not await groups.has("nobody.example.com")
        assert [each.path for each in server.requests] == ["/apis"]


async def test_a_group_that_comes_is_seen_after_a_while(tmp_path: Path) -> None:
    async with (
        fake_api_server(without=[f"nodemetrics.{GROUP}"]) as server,
        connected(server.kubeconfig(tmp_path), None) as connection,
    ):
        groups = ApiGroups(connection, 0)
        assert not await groups.has(GROUP)
        server.install(f"nodemetrics.{GROUP}")
        assert await groups.has(GROUP)


Prepare = Callable[[FakeApiServer], None]
TEN = tuple(pod(f"pod-{number}") for number in range(10))


def large_pod(name: str) -> dict[str, Any]:
    """Return a pod of some 20 kB."""
    large = pod(name)
    large["metadata"]["annotations"] = {"example.com/notes": 20_000 * "x"}
    return large


def refuse_streams(server: FakeApiServer) -> None:
    server.refuse_watch_list = 422


def refuse_streams_as_old_servers(server: FakeApiServer) -> None:
    server.refuse_watch_list = 400


def never_end_initial_events(server: FakeApiServer) -> None:
    server.faults.unmarked_watch_list = True


def holding(*quotas: dict[str, Any]) -> Prepare:
    def hold(server: FakeApiServer) -> None:
        server.install(QUOTAS.name)
        for one in quotas:
            server.create(one)

    return hold


# Lists.


async def test_a_list_is_streamed_and_becomes_the_watch(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        await at.equal()
        at.server.create(pod("later"))
        await at.equal()
        only = [query for _, _, query in at.server.requests]
    assert len(only) == 1
    assert only[0]["sendInitialEvents"] == "true"
    assert only[0]["allowWatchBookmarks"] == "true"
    assert only[0]["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in only[0]  # unset asks for what is there now
    assert (at.status.objects, at.status.events, at.status.relists) == (11, 1, 0)


@pytest.mark.parametrize("refuse", [refuse_streams, refuse_streams_as_old_servers])
async def test_where_lists_are_not_streamed_they_are_read_in_pages_from_then_on(
    tmp_path: Path, refuse: Prepare
) -> None:
    async with reflecting(tmp_path, objects=TEN, prepare=refuse) as at:
        await at.watching()
        await at.equal()
        at.server.send_in_stream_error(410)
        await eventually(lambda: at.status.relists == 1)
        queries = [query for _, _, query in at.server.requests]
    pages = [query for query in queries if "limit" in query]
    assert len(pages) == 8  # 10 pods, 3 a page, twice
    assert all("resourceVersion" not in query for query in pages)  # 0 would ignore the limit
    assert sum("sendInitialEvents" in query for query in queries) == 1


async def test_a_streamed_list_that_never_ends_is_given_up_for_pages(tmp_path: Path) -> None:
    config = replace(BRISK, streamed_list_seconds=0.05)
    async with reflecting(
        tmp_path, objects=TEN, prepare=never_end_initial_events, config=config
    ) as at:
        await at.watching()
        await at.equal()
        at.server.create(pod("later"))
        await at.equal()


async def test_a_streamed_list_may_take_long_as_long_as_objects_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, skipped = asyncio.get_running_loop(), 0.0
    real_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + skipped)

    def take_long() -> None:
        nonlocal skipped
        skipped += 2.0

    config = replace(BRISK, streamed_list_seconds=15.0, streamed_list_objects=3)
    async with reflecting(tmp_path, objects=TEN, config=config, on_apply=take_long) as at:
        await at.watching()
        await at.equal()
        at.server.create(pod("later"))
        await at.equal()
        assert at.lists() == 1
    assert skipped > config.streamed_list_seconds


async def test_others_have_their_turns_while_a_page_is_applied(tmp_path: Path) -> None:
    turns, at_turn = 0, set[int]()

    async def have_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    objects = tuple(large_pod(f"pod-{number}") for number in range(20))
    other = asyncio.create_task(have_turns())
    try:
        async with reflecting(
            tmp_path,
            objects=objects,
            prepare=refuse_streams,
            config=replace(BRISK, page_size=len(objects)),
            on_apply=lambda: at_turn.add(turns),
        ) as at:
            await at.equal()
    finally:
        other.cancel()
    assert len(at_turn) == len(objects) // 2


async def test_a_page_that_has_expired_begins_the_list_anew(tmp_path: Path) -> None:
    def expire_soon(server: FakeApiServer) -> None:
        refuse_streams(server)
        server.fail_next(1, 410, path_prefix="/api/v1/pods", method="GET")

    async with reflecting(tmp_path, objects=TEN, prepare=expire_soon) as at:
        await at.watching()
        await at.equal()
        assert at.status.last_error == ""


async def test_a_token_that_expires_between_pages_loses_nothing(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN, prepare=refuse_streams) as at:
        at.server.delay(0.02, "/api/v1/pods")
        await at.server.until(lambda: at.paging)
        at.server.expire_continue()  # the request that is held up meets it
        at.server.delete("pods", "shop", "pod-0")  # it was on the first page
        at.server.delay(0, "/api/v1/pods")
        await at.watching()
        await at.equal()
        assert at.lists() == 3  # the refused stream, and two in pages


async def test_a_body_that_breaks_off_is_asked_for_again(tmp_path: Path) -> None:
    def cut(server: FakeApiServer) -> None:
        refuse_streams(server)
        server.cut_next_bodies()

    async with reflecting(tmp_path, objects=TEN, prepare=cut) as at:
        await at.watching()
        await at.equal()


async def test_only_pods_that_have_not_finished_are_asked_for(tmp_path: Path) -> None:
    done = pod("done", phase="Succeeded")
    async with reflecting(tmp_path, objects=(*TEN, done)) as at:
        await at.equal()
        assert "shop/done" not in at.stored
        at.server.replace({**pod("pod-0"), "status": {"phase": "Failed"}})
        await eventually(lambda: "shop/pod-0" not in at.stored)


# What was missed.


@pytest.mark.parametrize("in_stream", [True, False])
@pytest.mark.parametrize("prepare", [lambda _: None, refuse_streams])
async def test_after_410_what_was_deleted_meanwhile_is_forgotten(
    tmp_path: Path, prepare: Prepare, *, in_stream: bool
) -> None:
    async with reflecting(tmp_path, objects=TEN, prepare=prepare) as at:
        at.server.faults.gone_in_stream = in_stream
        await at.watching()
        at.server.fail_next(1, 0, path_prefix="/api/v1/pods")
        at.server.cut_watches()
        at.server.delete("pods", "shop", "pod-0")
        at.server.create(pod("new"))
        at.server.compact()
        await at.equal()
        await eventually(lambda: at.status.relists == 1)
        assert "shop/pod-0" not in at.stored


async def test_what_is_known_is_served_while_a_list_is_read(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN, prepare=refuse_streams) as at:
        await at.watching()
        at.server.delay(0.02, "/api/v1/pods")
        at.server.send_in_stream_error(410)
        await at.server.until(lambda: at.paging)
        assert len(at.stored) == 10


@pytest.mark.parametrize("mid_event", [True, False])
async def test_a_cut_watch_goes_on_from_where_it_was(tmp_path: Path, *, mid_event: bool) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        at.server.create(pod("before"))
        await at.equal()
        at.server.fail_next(1, 0)
        at.server.cut_watches(mid_event=mid_event)
        at.server.create(pod("meanwhile"))
        at.server.delete("pods", "shop", "pod-0")
        await at.equal()
        assert at.lists() == 1
        assert at.status.relists == 0


async def test_bookmarks_take_a_quiet_watch_along(tmp_path: Path) -> None:
    """Without them the version would be of a history long forgotten, and cost a list."""
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        for number in range(5):
            at.server.create({**pod(f"done-{number}"), "status": {"phase": "Succeeded"}})
        at.server.compact()
        at.server.send_bookmarks()
        at.server.end_watches()
        at.server.create(pod("later"))
        await at.equal()
        resumed = at.server.requests[-1].query["resourceVersion"]
        assert int(resumed) >= at.server.version - 1
        assert at.lists() == 1


async def test_a_server_that_falls_silent_is_asked_again(tmp_path: Path) -> None:
    config = replace(BRISK, silence_seconds=0.05)
    async with reflecting(tmp_path, objects=TEN, config=config) as at:
        await at.watching()
        at.server.pause()
        at.server.create(pod("meanwhile"))
        await eventually(lambda: at.status.last_error != "")
        assert "no contact" in at.status.last_error
        assert len(at.stored) == 10
        at.server.resume()
        await at.equal()


# Failures.


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_waits_double_up_to_a_bound_while_the_server_fails(
    tmp_path: Path, status: int
) -> None:
    def fail(server: FakeApiServer) -> None:
        server.fail_next(8, status, headers={"Retry-After": "0"})

    async with reflecting(tmp_path, objects=TEN, prepare=fail) as at:
        await at.watching()
        await at.equal()
    # Half of 0.5, 1, 2, 4, 8, 15, 15, 15: without luck jitter takes half of each.
    assert at.time.waits == [0.25, 0.5, 1.0, 2.0, 4.0, 7.5, 7.5, 7.5]


async def test_a_server_that_asks_for_time_is_given_it(tmp_path: Path) -> None:
    def fail(server: FakeApiServer) -> None:
        server.fail_next(1, 429, headers={"Retry-After": "7"})

    async with reflecting(tmp_path, objects=TEN, prepare=fail) as at:
        await at.equal()
    assert at.time.waits == [7.0]


async def test_waits_are_short_again_after_a_watch_went_well(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        for round_number in range(3):
            at.server.fail_next(2, 500)
            at.server.cut_watches()
            at.server.create(pod(f"later-{round_number}"))
            await at.equal()
    # The cut itself, and two refusals; each round begins anew, for an event came in between.
    assert at.time.waits == [0.25, 0.5, 1.0] * 3


async def test_after_an_outage_410_is_answered_by_a_list_without_delay(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        at.server.fail_next(4, 503)
        at.server.cut_watches()
        at.server.create(pod("meanwhile"))
        at.server.compact()
        await at.equal()
    # The cut, four refusals, and 410: whoever says that is well again.
    assert at.time.waits == [0.25, 0.5, 1.0, 2.0, 4.0, 0.25]


async def test_a_server_that_forgets_at_once_is_not_asked_for_list_after_list(
    tmp_path: Path,
) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:

        async def forget() -> None:
            await at.watching()
            lists = at.lists()
            at.server.send_in_stream_error(410)
            await eventually(lambda: at.lists() > lists)

        for _ in range(3):
            await forget()
    assert at.time.waits == [0.25, 0.5, 1.0]


async def test_an_error_in_a_stream_that_is_no_410_is_overcome_by_a_list(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        at.server.send_in_stream_error(500)
        await eventually(lambda: at.status.relists == 1)
        await at.equal()


async def test_too_many_requests_in_a_stream_cost_no_list(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        at.server.send_in_stream_error(429)
        at.server.create(pod("later"))
        await at.equal()
        assert at.lists() == 1


@pytest.mark.parametrize(
    ("status", "said"), [(401, "does not accept our credentials"), (403, "lack the permission")]
)
async def test_who_is_not_let_in_says_so_and_tries_again(
    tmp_path: Path, status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with reflecting(tmp_path, objects=TEN) as at:
        await at.watching()
        at.server.fail_next(sys.maxsize, status)
        at.server.cut_watches()
        await eventually(lambda: said in at.status.last_error and len(at.time.waits) > 3)
        assert at.status.last_contact == STARTED
        at.server.recover()
        await eventually(lambda: at.status.last_error == "")
        at.server.create(pod("later"))
        await at.equal()
    assert sum(said in record.message for record in caplog.records) == 1  # not once per attempt


# APIs that come and go.


async def test_an_api_that_comes_later_is_picked_up_and_one_that_goes_is_dropped(
    tmp_path: Path,
) -> None:
    async with reflecting(tmp_path, QUOTAS) as at:
        await eventually(lambda: at.status.sync_settled)
        assert (at.status.present, at.status.last_error) == (False, "")
        at.server.install("elasticquotas.scheduling.sigs.k8s.io")
        at.server.create(quota("team-a", "10"))
        at.time.pass_by()
        await eventually(lambda: "shop/team-a" in at.stored)
        assert at.status.present
        at.server.uninstall("elasticquotas.scheduling.sigs.k8s.io")
        await eventually(lambda: not at.status.present)
        assert at.stored == {}
        assert at.status.objects == 0
        at.server.install("elasticquotas.scheduling.sigs.k8s.io")
        at.server.create(quota("team-b", "10"))
        at.time.pass_by()
        await eventually(lambda: "shop/team-b" in at.stored)
    assert at.time.waits.count(LONG) >= 2


# Objects.


async def test_a_large_object_is_prepared_in_a_thread_and_applied_in_its_turn(
    tmp_path: Path,
) -> None:
    large = pod("large")
    large["metadata"]["annotations"] = {"a": "x" * 65_536}
    async with reflecting(tmp_path, objects=(*TEN, large)) as at:
        await at.watching()
        await at.equal()
        at.server.delete("pods", large["metadata"]["namespace"], "large")
        at.server.create(large | {"metadata": large["metadata"] | {"name": "next"}})
        await at.equal()
        elsewhere = [thread for thread in at.prepared_in if thread != threading.get_ident()]
        assert len(elsewhere) == 2  # the small ones were applied at once


async def test_an_object_that_cannot_be_read_is_said_once_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = quota("bad", "4")
    bad["spec"]["min"] = 1
    async with reflecting(tmp_path, QUOTAS, prepare=holding(quota("team-a", "4"), bad)) as at:
        await eventually(lambda: at.status.synced)
        assert at.stored.keys() == {"shop/team-a"}
        bad["metadata"]["labels"] = {"still": "bad"}
        at.server.replace(bad)
        at.server.create(quota("later", "4"))
        await eventually(lambda: "shop/later" in at.stored)
        assert at.status.skipped == 2
        at.server.replace(quota("bad", "4"))
        await at.equal()
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert "spec.min: expected an object, got a whole number" in said[0].message
    assert "elasticquota `shop/bad` is left out" in said[0].message.lower()


async def test_a_pod_that_cannot_be_read_in_full_counts_with_what_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = pod("odd", cpu="2")
    odd["spec"] |= {"priority": "high", "overhead": {"cpu": "a lot", "memory": "1Gi"}}
    odd["spec"]["containers"].append({"name": 1, "resources": {"requests": {"cpu": "3"}}})
    async with reflecting(tmp_path, objects=(odd, pod("other"))) as at:
        await at.watching()
        await at.equal()
        assert pod_of(at.stored["shop/odd"]).shape.requests == {"cpu": 5_000, "memory": 2**30}
        assert at.status.skipped == 1
        at.server.delete("pods", "shop", "odd")
        await at.equal()
    assert "pod `shop/odd` counts without that" in caplog.text.lower()


async def test_what_was_known_stays_while_an_update_cannot_be_read(tmp_path: Path) -> None:
    async with reflecting(tmp_path, QUOTAS, prepare=holding(quota("team", "4"))) as at:
        await at.watching()
        bad = quota("team", "4")
        bad["spec"]["max"] = 1
        at.server.replace(bad)
        await eventually(lambda: at.status.skipped == 1)
        assert "shop/team" in at.stored
        at.server.send_in_stream_error(410)
        await eventually(lambda: at.status.relists == 1)
        assert "shop/team" in at.stored
        at.server.delete(QUOTAS.name, "shop", "team")
        await eventually(lambda: "shop/team" not in at.stored)


async def test_null_where_go_writes_one_for_an_empty_list_is_no_mistake(tmp_path: Path) -> None:
    one = pod("empty")
    one["spec"]["containers"] = None
    async with reflecting(tmp_path, objects=(one,)) as at:
        await at.equal()
        assert at.status.skipped == 0


async def test_a_list_of_nothing_is_a_list(tmp_path: Path) -> None:
    async with reflecting(tmp_path, prepare=refuse_streams) as at:
        await at.watching()
        assert (at.status.objects, at.status.present) == (0, True)


async def test_it_says_how_far_it_has_heard(tmp_path: Path) -> None:
    async with reflecting(tmp_path, objects=(pod("a"), pod("b"))) as one:
        await one.watching()
        assert one.status.version == one.server.version
        for change in (
            lambda: one.server.create(pod("c")),
            lambda: one.server.replace(pod("c", "node-1")),
            lambda: one.server.delete("pods", "shop", "c"),
        ):
            change()
            version = one.server.version
            await eventually(lambda: one.status.version == version)  # noqa: B023 - used at once
