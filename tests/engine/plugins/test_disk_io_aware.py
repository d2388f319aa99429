from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from engine.model.decision import Advice
from engine.model.scheduler_plugins import THROUGHPUT_ANNOTATION
from engine.plugins.base import PASS, Cycle
from engine.plugins.disk_io_aware import (
    PLUGIN,
    DiskIOAwareArgs,
    DiskIOAwareFilter,
    DiskIOAwareScore,
)
from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, by_node
from tests.engine.topology_cluster import cluster, disks, node, pod

if TYPE_CHECKING:
    from engine.model.pod import Pod
    from engine.model.scheduler_plugins import NodeDisks
    from engine.view import ClusterView


def reader(rbps: int, wbps: int = 0, **more: str) -> Pod:
    text = f'{{"rbps":"{rbps}","wbps":"{wbps}","blocksize":"4k"}}'
    return pod(annotations={THROUGHPUT_ANNOTATION: text}, **more)  # type: ignore[arg-type]


def view_of(args: DiskIOAwareArgs, *told: NodeDisks, nodes: str = "ab") -> ClusterView:
    return cluster(map(node, nodes), told, profiles=PLUGIN.sum_profiles(args))


def rejected(one: Pod, view: ClusterView, args: DiskIOAwareArgs) -> dict[str, str]:
    rule = DiskIOAwareFilter(args)
    codes = by_node(view, rule.filter(Cycle(one, view, NOW)).codes)
    return {
        name: rule.reasons(code, Cycle(one, view, NOW))[0]
        for name, code in codes.items()
        if code != PASS
    }


def scores(one: Pod, view: ClusterView, args: DiskIOAwareArgs) -> dict[str, int]:
    rule = DiskIOAwareScore(args)
    return by_node(view, rule.normalize(rule.score(Cycle(one, view, NOW)).values))


DEFAULT = DiskIOAwareArgs()


def test_a_pod_goes_where_one_disk_has_all_that_it_asks_for() -> None:
    view = view_of(
        DEFAULT, disks("a", (200, 100, 100)), disks("b", (90, 90, 90), (90, 90, 90)), nodes="abc"
    )
    assert rejected(reader(60, 40), view, DEFAULT) == {
        "b": "node(s) had insufficient disk IO bandwidth",  # two disks, neither of which has 100
        "c": "node(s) without known disk IO capacity",
    }
    assert rejected(reader(101), view, DEFAULT).keys() == {"a", "b", "c"}
    assert rejected(reader(90), view, DEFAULT).keys() == {"c"}  # all of it may be taken


def test_a_pod_that_asks_for_nothing_passes_everywhere() -> None:
    view = view_of(DEFAULT, disks("a", (0, 0, 0)))
    for text in ("", "?", "{", '{"rbps":"fast"}', "[]"):
        idle = pod(annotations={THROUGHPUT_ANNOTATION: text})
        assert rejected(idle, view, DEFAULT) == {}
        assert scores(idle, view, DEFAULT) == {"a": 0, "b": 0}


def test_the_two_policies_score_what_is_left_and_what_is_taken() -> None:
    told = disks("a", (2200, 1100, 1100)), disks("b", (1100, 1100, 1100), (400, 400, 400))
    # Of 2200 the pod takes 550, a quarter; of b's larger disk half.
    view = view_of(DEFAULT, *told)
    assert scores(reader(500, 50), view, DEFAULT) == {"a": 75, "b": 50}
    least = DiskIOAwareArgs(score_strategy="LeastAllocated")
    assert scores(reader(500, 50), view_of(least, *told), least) == {"a": 25, "b": 50}
    assert scores(reader(1200), view, DEFAULT) == {"a": 0, "b": 0}


def test_coefficients_turn_what_is_asked_for_into_the_units_of_a_driver() -> None:
    args = DiskIOAwareArgs(read_coefficient=2, write_coefficient=0.5)
    view = view_of(args, disks("a", (100, 100, 100)))
    assert rejected(reader(50), view, args).keys() == {"b"}
    assert rejected(reader(51), view, args).keys() == {"a", "b"}
    assert scores(reader(10, 40), view, args)["a"] == 60  # 20 and 20


def test_pods_that_are_expected_are_taken_off_until_they_are_bound() -> None:
    state = ClusterState()
    state.track_sums(PLUGIN.sum_profiles(DEFAULT))
    state.set_node(node("a"))
    state.set_extra(disks("a", (100, 100, 100), (100, 100, 100)))
    first, second = reader(60, name="first"), reader(60)
    state.assume(first, Advice(nodes=("a",), id="1"), at=NOW)
    assert rejected(second, state.view(), DEFAULT).keys() == {"a"}
    assert scores(reader(20), state.view(), DEFAULT) == {"a": 50}  # of 40 that are left
    state.set_pod(reader(60, name="first", on="a"), seen_at=NOW)
    state.release_assumed(NOW + 10**12)  # type: ignore[arg-type]
    assert rejected(second, state.view(), DEFAULT) == {}  # now the driver tells of it


def test_a_disk_without_anything_left_gives_no_points() -> None:
    view = view_of(DEFAULT, disks("a", (0, 0, 0)), disks("b"))
    assert scores(reader(0), view, DEFAULT) == {"a": 0, "b": 0}
    assert rejected(reader(0), view, DEFAULT).keys() == {"b"}


@pytest.mark.parametrize(
    "args", [{"scoreStrategy": "Best"}, {"readCoefficient": -1}, {"writeCoefficient": "2"}]
)
def test_args_are_checked(args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DiskIOAwareArgs.model_validate(args)
