from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.model.disruption_budget import DisruptionBudget
from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED, Kind
from engine.view import ClusterState, ClusterView, Domain, Sum
from tests.fake_api_server import FakeApiServer, fake_api_server
from tests.webhook.cluster.reflecting import (
    BRISK,
    STARTED,
    Time,
    connected_to,
    eventually,
    namespace,
    node,
    pod,
    quota,
)
from webhook.cluster import Cluster
from webhook.cluster.cluster import EventSource, live_cluster
from webhook.cluster.watch.event_applier import EventApplier
from webhook.cluster.watch.source_status import SourceStatus

X_GROUP = "scheduling.x-k8s.io"


class Live(NamedTuple):
    """What a test of a live cluster holds."""

    server: FakeApiServer
    cluster: Cluster
    time: Time

    async def equal(self) -> None:
        """Wait until the cluster is what the server holds."""
        await eventually(lambda: facts(self.cluster.view()) == rebuilt(self.server))


@asynccontextmanager
async def living(
    folder: Path,
    *objects: dict[str, Any],
    also: Sequence[EventSource] = (),
    kinds: Sequence[Kind] = WATCHED,
    prepare: Callable[[FakeApiServer], None] = lambda _: None,
) -> AsyncIterator[Live]:
    time = Time()
    applier = EventApplier(now=lambda: STARTED, buffers_usage=True)
    async with fake_api_server() as server, connected_to(server, folder) as connection:
        for one in objects:
            server.create(one)
        prepare(server)
        async with live_cluster(
            connection, applier, time.clock, also=also, kinds=kinds, config=BRISK
        ) as cluster:
            yield Live(server, cluster, time)


def facts(view: ClusterView) -> dict[str, Any]:
    """Return what is known, without the order of rows."""
    cpu = view.axis.find("cpu")
    return {
        "nodes": {
            name: int(view.allocatable[cpu, row])
            for name, row in view.rows.items()
            if view.valid[row]
        },
        "requests": {
            name: int(view.sums[Sum.REQUESTS, cpu, row])
            for name, row in view.rows.items()
            if view.sums[Sum.REQUESTS, :, row].any()
        },
        "namespaces": {name: dict(labels) for name, labels in view.namespaces.labels.items()},
        "totals": {name: dict(total) for name, total in view.namespaces.requested.items()},
        "quotas": {
            (one.namespace, one.name, one.group, (one.max or {}).get("cpu"))
            for quotas in view.namespaces.quotas.values()
            for one in quotas
        },
        "usage": {
            name: usage.usage["cpu"]
            for name, row in view.rows.items()
            if (usage := view.usages[row]) is not None and usage.usage is not None
        },
    }


def rebuilt(server: FakeApiServer) -> dict[str, Any]:
    """Return what a fresh start would know."""
    applier = EventApplier(ClusterState(), now=lambda: STARTED)
    for kind in WATCHED:
        try:
            objects = server.objects(kind.name)
        except LookupError:
            continue
        for one in objects.values():
            applier.by_kind[kind.group, kind.kind].apply(msgspec.convert(one, kind.wire))
    return facts(applier.state.view())


def metric(name: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "status": {
            "updateTime": "2023-11-14T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
        },
    }


SOME = (
    node("n1"),
    node("n2"),
    namespace("shop"),
    pod("web", "n1"),
    pod("waits"),
    quota("team", "10", group=X_GROUP),
    metric("n1", "1500m"),
)


async def test_everything_is_listed_before_it_says_so_and_watched_after(tmp_path: Path) -> None:
    async with living(tmp_path, *SOME) as live:
        assert not live.cluster.is_synced
        await live.cluster.synced()
        known = facts(live.cluster.view())
        assert known == rebuilt(live.server)
        assert known["requests"] == {"n1": 100}
        assert known["quotas"] == {("shop", "team", X_GROUP, 10_000)}
        assert known["usage"] == {"n1": 1500}
        live.server.create(pod("new", "n2"))
        live.server.delete("pods", "shop", "web")
        await live.equal()


async def test_sources_say_how_well_they_hear(tmp_path: Path) -> None:
    async with living(tmp_path, *SOME) as live:
        await live.cluster.synced()
        sources = live.cluster.sources
        assert {name for name, one in sources.items() if one.required} == {
            "nodes",
            "pods",
            "namespaces",
        }
        assert {one.name: one.domain for one in sources.values() if one.domain is not None} == {
            "nodes": Domain.NODES,
            "pods": Domain.PODS,
            "nodemetrics.slo.koordinator.sh": Domain.METRICS,
            "noderesourcetopologies.topology.node.k8s.io": Domain.TOPOLOGY,
            "appgroups.appgroup.diktyo.x-k8s.io": Domain.TOPOLOGY,
            "networktopologies.networktopology.diktyo.x-k8s.io": Domain.TOPOLOGY,
            "nodediskiostats.diskio.x-k8s.io": Domain.TOPOLOGY,
        }
        absent = sources["elasticquotas.scheduling.sigs.k8s.io"]
        assert (absent.present, absent.synced, absent.last_error) == (False, False, "")
        assert sources["pods"].objects == 2
        assert all(one.last_contact == STARTED for one in sources.values())


async def test_disruption_budgets_are_followed(tmp_path: Path) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"selector": {}},
        "status": {"disruptionsAllowed": 1},
    }
    async with living(tmp_path, *SOME, budget) as live:
        await live.cluster.synced()
        await eventually(lambda: bool(live.cluster.view().all_of(DisruptionBudget)))
        (found,) = live.cluster.view().all_of(DisruptionBudget)
        assert (found.key, found.disruptions_allowed) == ("shop/web", 1)
        live.server.delete(DISRUPTION_BUDGETS.name, "shop", "web")
        await eventually(lambda: not live.cluster.view().all_of(DisruptionBudget))


async def test_a_source_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    def forbid_metrics(server: FakeApiServer) -> None:
        server.fail_next(1_000_000, 403, path_prefix="/apis/slo.koordinator.sh")

    async with living(tmp_path, *SOME, prepare=forbid_metrics) as live:
        await live.cluster.synced()
        assert "permission" in live.cluster.sources["nodemetrics.slo.koordinator.sh"].last_error
        live.server.create(pod("new", "n2"))
        await eventually(lambda: live.cluster.state.placement("shop/new") is not None)


async def test_without_pods_it_never_says_that_it_is_synced(tmp_path: Path) -> None:
    def forbid_pods(server: FakeApiServer) -> None:
        server.fail_next(1_000_000, 403, path_prefix="/api/v1/pods")

    async with living(tmp_path, *SOME, prepare=forbid_pods) as live:
        await eventually(lambda: live.cluster.sources["pods"].last_error != "")
        await eventually(lambda: live.cluster.sources["nodes"].synced)
        assert not live.cluster.is_synced
        live.server.recover()
        await live.cluster.synced()


async def test_quotas_of_a_group_that_comes_later_count_until_it_goes(tmp_path: Path) -> None:
    async with living(tmp_path, *SOME) as live:
        await live.cluster.synced()
        live.server.install("elasticquotas.scheduling.sigs.k8s.io")
        live.server.create(quota("team", "20"))
        live.time.pass_by()
        await eventually(lambda: len(live.cluster.view().namespaces.quotas["shop"]) == 2)
        live.server.uninstall("elasticquotas.scheduling.sigs.k8s.io")
        await eventually(lambda: len(live.cluster.view().namespaces.quotas["shop"]) == 1)
        assert live.cluster.view().namespaces.quotas["shop"][0].group == X_GROUP


class Faulty:
    """A source with a mistake in it that shows twice."""

    def __init__(self) -> None:
        self.status = SourceStatus(name="usage", domain=Domain.METRICS, required=False)
        self.runs = 0

    async def run(self) -> None:
        self.runs += 1
        if self.runs < 3:
            raise KeyError("a mistake")
        self.status.synced = True
        await asyncio.Event().wait()


async def test_a_source_that_breaks_is_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faulty = Faulty()
    async with living(tmp_path, *SOME, also=[faulty]) as live:
        await eventually(lambda: faulty.status.synced)
        await live.cluster.synced()
        assert live.cluster.sources["usage"] is faulty.status
    assert faulty.runs == 3
    assert sum(record.exc_info is not None for record in caplog.records) == 2


async def test_leaving_ends_every_watch(tmp_path: Path) -> None:
    async with fake_api_server() as server, connected_to(server, tmp_path) as connection:
        before = asyncio.all_tasks()
        time = Time()
        applier = EventApplier(now=lambda: STARTED, buffers_usage=True)
        async with live_cluster(connection, applier, time.clock, config=BRISK) as cluster:
            await cluster.synced()
            assert server.watches() == 8
        await server.until(lambda: server.watches() == 0)
        ours = {task for task in asyncio.all_tasks() - before if "aiohttp" not in repr(task)}
        assert not ours


# Whatever happens: the same as a fresh start.

NAMES = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("pod"), NAMES, st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("delete pod"), NAMES),
    st.tuples(st.just("node"), st.integers(0, 3), st.integers(1, 9)),
    st.tuples(st.just("delete node"), st.integers(0, 3)),
    st.tuples(st.just("quota"), NAMES, st.integers(1, 9)),
    st.tuples(st.just("delete quota"), NAMES),
    st.tuples(st.sampled_from(["outage", "wait"])),
    st.tuples(
        st.sampled_from(
            [
                "cut",
                "tear",
                "end",
                "bookmark",
                "compact",
                "410",
                "500",
                "refuse",
                "break",
                "wait",
            ]
        )
    ),
)


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEPS, max_size=40), streams=st.booleans(), synced=st.booleans())
def test_after_any_writes_and_faults_it_is_what_a_fresh_start_would_be(
    tmp_path: Path, steps: list[tuple[Any, ...]], *, streams: bool, synced: bool
) -> None:
    async def play() -> None:
        async with living(tmp_path, *SOME) as live:
            if not streams:
                live.server.refuse_watch_list = 422
            if synced:
                await live.cluster.synced()
            for step in steps:
                await happen(live.server, *step)
            live.server.recover()
            await live.equal()

    asyncio.run(play())


async def happen(server: FakeApiServer, what: str, *details: int) -> None:
    """Play one step."""
    if what == "pod":
        number, place, cpu = details
        put(server, "pods", pod(f"pod-{number}", f"n{place}" if place else "", cpu=str(cpu)))
    elif what == "node":
        put(server, "nodes", node(f"n{details[0]}", cpu=str(details[1])))
    elif what == "quota":
        put(server, "elasticquotas", quota(f"q{details[0]}", str(details[1]), group=X_GROUP))
    elif what == "delete pod":
        drop(server, "pods", "shop", f"pod-{details[0]}")
    elif what == "delete node":
        drop(server, "nodes", "", f"n{details[0]}")
    elif what == "delete quota":
        drop(server, "elasticquotas", "shop", f"q{details[0]}")
    else:
        FAULTS[what](server)
        await asyncio.sleep(0.002 if what == "wait" else 0)


def outage(server: FakeApiServer) -> None:
    """Lose sight of a server that goes on, and forgets what it did."""
    server.cut_watches()
    for where, name in sorted(server.objects("pods"))[:1]:
        server.delete("pods", where, name)
    server.compact()


FAULTS: dict[str, Callable[[FakeApiServer], None]] = {
    "cut": lambda server: server.cut_watches(),
    "tear": lambda server: server.cut_watches(mid_event=True),
    "end": lambda server: server.end_watches(),
    "outage": outage,
    "bookmark": lambda server: server.send_bookmarks(),
    "compact": lambda server: server.compact(),
    "410": lambda server: server.send_in_stream_error(410),
    "500": lambda server: server.fail_next(2, 500),
    "refuse": lambda server: server.fail_next(1, 429),
    "break": lambda server: server.cut_next_bodies(),
    "wait": lambda _: None,
}


def put(server: FakeApiServer, plural: str, one: dict[str, Any]) -> None:
    meta = one["metadata"]
    known = (meta.get("namespace", ""), meta["name"]) in server.objects(plural)
    (server.replace if known else server.create)(one)


def drop(server: FakeApiServer, plural: str, where: str, name: str) -> None:
    if (where, name) in server.objects(plural):
        server.delete(plural, where, name)
