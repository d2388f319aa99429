from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.time import SECOND, Micros
from engine.view import Domain, Freshness
from webhook.cluster.watch.source_status import SourceStatus, StaleAfter, log_changes

NOW = Micros(1_000_000 * SECOND)
AFTER = StaleAfter(nodes=300, pods=200, usage=90)


def source(
    name: str,
    domain: Domain | None,
    *,
    age: int | None = 0,
    objects: int = 3,
    required: bool = True,
) -> SourceStatus:
    """Return a source that was heard some seconds ago, or never; what is not required is there."""
    heard = None if age is None else Micros(NOW - age * SECOND)
    return SourceStatus(
        name=name,
        domain=domain,
        required=required,
        present=age is not None or not required,
        synced=age is not None,
        last_contact=heard,
        objects=objects,
    )


def usage_source(name: str, age: int | None, *, objects: int = 3) -> SourceStatus:
    return source(name, Domain.METRICS, age=age, objects=objects, required=False)


def test_a_source_is_believed_for_as_long_as_its_domain_allows() -> None:
    sources = [
        source("nodes", Domain.NODES, age=201),
        source("pods", Domain.PODS, age=201),
        usage_source("metrics.k8s.io", 90),
        source("namespaces", None, age=9000),
    ]
    freshness = AFTER.freshness(sources, NOW)
    assert freshness.stale == {Domain.PODS: "pods are 201 s old"}
    assert freshness.ages == {"nodes": 201, "pods": 201, "metrics.k8s.io": 90, "namespaces": 9000}


def test_what_was_never_heard_is_not_known_yet() -> None:
    sources = [source("nodes", Domain.NODES, age=None), usage_source("metrics.k8s.io", None)]
    freshness = AFTER.freshness(sources, NOW)
    assert freshness.stale == {
        Domain.NODES: "nodes are not known yet",
        Domain.METRICS: "usage is not known yet",
    }
    assert freshness.ages == {}


def test_half_a_list_is_not_known_yet() -> None:
    half = source("pods", Domain.PODS)
    half.synced = False
    assert AFTER.freshness([half], NOW).stale == {Domain.PODS: "pods are not known yet"}


def test_what_the_cluster_does_not_have_is_not_waited_for() -> None:
    absent = usage_source("metrics.k8s.io", None)
    absent.present = False
    assert AFTER.freshness([absent], NOW) == Freshness()
    absent.last_contact = Micros(NOW - 600 * SECOND)  # when it was told that there is none
    assert AFTER.freshness([absent], NOW) == Freshness()


def test_usage_is_as_fresh_as_the_source_that_was_heard_last_and_told_anything() -> None:
    sources = [usage_source("prometheus", 95), usage_source("nodemetrics", 10)]
    assert AFTER.freshness(sources, NOW).stale == {}
    # The kind is installed, but nobody writes any: that it is heard says nothing of usage.
    sources[1].objects = 0
    assert AFTER.freshness(sources, NOW).stale == {Domain.METRICS: "usage is 95 s old"}
    sources[0].objects = 0
    assert AFTER.freshness(sources, NOW).stale == {}


def test_topology_is_as_old_as_the_source_that_was_heard_first() -> None:
    zones = source("noderesourcetopologies", Domain.TOPOLOGY, age=10, required=False)
    groups = source("appgroups", Domain.TOPOLOGY, age=201, objects=0, required=False)
    assert AFTER.freshness([zones, groups], NOW).stale == {}
    groups.last_contact = Micros(NOW - 400 * SECOND)
    assert AFTER.freshness([zones, groups], NOW).stale == {Domain.TOPOLOGY: "topology is 400 s old"}
    groups.synced = False
    assert AFTER.freshness([zones, groups], NOW).stale == {
        Domain.TOPOLOGY: "topology is not known yet"
    }
    groups.present = False
    assert AFTER.freshness([zones, groups], NOW).stale == {}


def test_a_clock_that_was_set_back_makes_nothing_older() -> None:
    ahead = source("pods", Domain.PODS, age=-50)
    assert AFTER.freshness([ahead], NOW) == Freshness(ages={"pods": 0})


@given(st.lists(st.integers(0, 400) | st.none(), max_size=4), st.integers(0, 400))
def test_another_source_that_tells_anything_never_makes_a_domain_staler(
    ages: list[int | None], another: int
) -> None:
    sources = [usage_source(str(i), age) for i, age in enumerate(ages)]
    before = AFTER.freshness(sources, NOW).stale
    after = AFTER.freshness([*sources, usage_source("another", another)], NOW).stale
    assert not after or before or not sources
    assert (Domain.METRICS in after) == all(age is None or age > 90 for age in [*ages, another])


async def test_the_log_says_once_what_becomes_stale_and_once_that_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    old = Freshness(stale={Domain.METRICS: "usage is 95 s old"})
    older = Freshness(stale={Domain.METRICS: "usage is 96 s old"})
    done = asyncio.Event()

    def told() -> Iterator[Freshness]:
        yield from (Freshness(), old, older, Freshness(), Freshness())
        done.set()
        for _ in count():
            yield Freshness()

    following = told()
    watch = asyncio.create_task(log_changes(lambda: next(following), 0.0))
    await done.wait()
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "usage is 95 s old: rules that read it abstain"),
        ("INFO", "usage is fresh again"),
    ]
