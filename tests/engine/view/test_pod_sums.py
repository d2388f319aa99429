from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.view import ClusterState
from tests.engine.measured_cluster import NOW, node, pod, report, seconds_ago

if TYPE_CHECKING:
    from engine.model.usage import NodeUsage
    from engine.view import ClusterView, PodSumProfile
    from engine.view.pod_table import PodEntry


@dataclass(frozen=True, slots=True)
class Requested:
    """The cpu and the number of pods."""

    width: ClassVar[int] = 2
    reads_reports: ClassVar[bool] = False

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:  # noqa: ARG002 (protocol)
        return pod.shape.requests.get("cpu", 0), 1


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """The number of pods that are newer than the report."""

    width: ClassVar[int] = 1
    reads_reports: ClassVar[bool] = True

    def contribution(self, key: str, pod: PodEntry, report: NodeUsage | None) -> tuple[int, ...]:  # noqa: ARG002 (protocol)
        return (int(report is None or pod.assigned_at > (report.update_time or 0)),)


PROFILES: tuple[PodSumProfile, ...] = (Requested(), Unmeasured())

_names = st.sampled_from(["a", "b"])
_events = st.lists(
    st.tuples(
        st.just("pod"),
        st.builds(
            lambda i, on, cpu: pod(f"p{i}", on, requests={"cpu": cpu}),
            st.integers(0, 3),
            st.sampled_from(["", "a", "b", "c"]),
            st.sampled_from(["1", "200m"]),
        ),
    )
    | st.tuples(st.just("gone"), st.integers(0, 3).map(lambda i: f"default/p{i}"))
    | st.tuples(
        st.just("report"),
        st.builds(lambda on, age: report(on, {}, age=age), _names, st.integers(0, 200)),
    )
    | st.tuples(st.just("unreported"), _names),
    max_size=12,
)


def _apply(state: ClusterState, event: tuple[str, Any]) -> None:
    kind, what = event
    match kind:
        case "pod":
            state.set_pod(what, seen_at=seconds_ago(100))
        case "gone":
            state.delete_pod(what)
        case "report":
            state.set_usage(what)
        case _:
            state.delete_usage(what)


def _sums(view: ClusterView) -> dict[str, list[list[int]]]:
    return {
        name: [view.pod_sums[profile][:, row].tolist() for profile in PROFILES]
        for name, row in view.rows.items()
    }


def test_a_pod_adds_its_part_to_its_node_alone() -> None:
    state = ClusterState()
    state.track_sums(PROFILES)
    state.set_node(node("a"))
    state.set_pod(pod("p", "b", requests={"cpu": "2"}), seen_at=NOW)
    state.set_pod(pod("q", "b", requests={"cpu": "500m"}), seen_at=NOW)
    state.set_pod(pod("pending", requests={"cpu": "1"}), seen_at=NOW)
    assert _sums(state.view()) == {"a": [[0, 0], [0]], "b": [[2500, 2], [2]]}


def test_a_report_changes_what_depends_on_it() -> None:
    state = ClusterState()
    state.track_sums(PROFILES)
    state.set_pod(pod("p", "a"), seen_at=seconds_ago(100))
    assert _sums(state.view())["a"][1] == [1]
    state.set_usage(report("a", {}, age=50))
    assert _sums(state.view())["a"][1] == [0]


@settings(max_examples=100)
@given(_events)
def test_sums_kept_along_the_way_are_those_counted_at_the_end(
    events: list[tuple[str, Any]],
) -> None:
    state, fresh = ClusterState(), ClusterState()
    state.track_sums(PROFILES)
    held: list[tuple[ClusterView, object]] = []
    for event in events:
        view = state.view()
        held.append((view, _sums(view)))
        _apply(state, event)
        _apply(fresh, event)
    fresh.track_sums(PROFILES)
    assert _sums(state.view()) == _sums(fresh.view())
    for view, sums in held:
        assert _sums(view) == sums
