from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.report import RepackAim
from engine.simulation.packing import Goal, Group, Model, Packed, Packing, pack

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PLENTY = 60.0  # seconds: no test takes so long


def group(
    request: int,
    running: Sequence[int],
    waiting: int = 0,
    *,
    priority: int = 0,
    allowed: Sequence[bool] | None = None,
    preempts: bool = True,
    budgets: tuple[int, ...] = (),
) -> Group:
    """Return pods that ask for so much of one resource."""
    return Group(
        requests=(request,),
        allowed=np.array([True for _ in running] if allowed is None else allowed, np.bool_),
        running=np.array(running, np.int64),
        waiting=waiting,
        priority=priority,
        preempts=preempts,
        budgets=budgets,
    )


def packing(
    room: Sequence[int], *groups: Group, budgets: Sequence[int] = (), free_nodes: int = 0
) -> Packing:
    """Return nodes with so much room of one resource."""
    return Packing(
        room=np.array([room], np.int64),
        groups=groups,
        budgets=budgets,
        can_be_free=np.ones(len(room), np.bool_),
        free_nodes=free_nodes,
    )


def packed(room: Sequence[int], *groups: Group, **more: Any) -> Packed:  # noqa: ANN401 - of `packing`
    """Return a solution that is proven to be the best."""
    found = pack(packing(room, *groups, **more), seconds=PLENTY, seed=1)
    assert all(each.found == each.bound for each in found.reached)
    return found


def found(solution: Packed, aim: RepackAim) -> list[int]:
    """Return how far the goals about something were reached."""
    return [each.found for each in solution.reached if each.goal.aim is aim]


def test_a_running_pod_moves_where_a_waiting_one_fits_only_then() -> None:
    # 2 run on each of two nodes of 4: one of 4 fits once they are together.
    solution = packed([4, 4], group(2, [1, 1]), group(4, [0, 0], 1))
    assert found(solution, RepackAim.PLACED) == [1]
    assert found(solution, RepackAim.LEAVING) == [1]


def test_nobody_moves_where_a_waiting_pod_fits_anyway() -> None:
    solution = packed([4, 4, 4], group(2, [1, 1, 0]), group(4, [0, 0, 0], 1))
    assert found(solution, RepackAim.LEAVING) == [0]


def test_a_pod_goes_to_nodes_that_are_allowed() -> None:
    solution = packed([4, 4], group(2, [0, 0], 3, allowed=[False, True]))
    assert solution.counts.tolist() == [[0, 2]]


def test_one_pod_of_a_higher_priority_goes_before_two_of_a_lower() -> None:
    solution = packed([4], group(2, [0], 2, priority=1), group(4, [0], 1, priority=2))
    assert found(solution, RepackAim.PLACED) == [1, 0]


def test_a_running_pod_gives_way_to_a_higher_priority_and_to_no_other() -> None:
    for priority, kept in ((0, 1), (1, 0)):
        solution = packed([4], group(4, [1]), group(2, [0], 2, priority=priority))
        assert solution.counts.tolist() == [[kept], [2 - 2 * kept]]


def test_nobody_gives_way_to_a_pod_that_preempts_nobody() -> None:
    patient = group(2, [0], 2, priority=1, preempts=False)
    solution = packed([4], group(4, [1]), patient)
    assert found(solution, RepackAim.PLACED) == [0]


def test_no_more_pods_leave_than_their_budgets_allow() -> None:
    for allowed, placed in ((0, 0), (1, 1)):
        pods = group(2, [1, 1], budgets=(0,))
        solution = packed([4, 4], pods, group(4, [0, 0], 1), budgets=[allowed])
        assert found(solution, RepackAim.PLACED) == [placed]


def test_pods_on_an_overcommitted_node_may_stay() -> None:
    solution = packed([3, 0], group(2, [2, 0]))
    assert solution.counts.tolist() == [[2, 0]]


def test_so_many_nodes_are_free_as_are_wanted() -> None:
    pods = group(1, [1, 1, 1])
    for wanted, moved in ((0, 0), (1, 1), (2, 2)):
        solution = packed([4, 4, 4], pods, free_nodes=wanted)
        assert found(solution, RepackAim.LEAVING) == [moved]
        assert int((solution.counts.sum(axis=0) == 0).sum()) == wanted
    assert found(packed([4, 4, 4], pods, free_nodes=3), RepackAim.FREE) == [2]


def test_all_pods_stay_where_there_is_no_time() -> None:
    solution = pack(packing([4, 4], group(2, [1, 1]), group(4, [0, 0], 1)), seconds=0, seed=1)
    assert solution.counts.tolist() == [[1, 1], [0, 0]]
    placed, leaving = solution.reached
    assert (placed.found, placed.bound, leaving.found) == (0, 1, 0)


def test_nobody_moves_for_a_goal_that_is_not_reached_any_better() -> None:
    # The waiting pod fits nowhere, so all solutions are as good; the solver's first moves pods.
    of = packing([4, 4], group(2, [1, 1]), group(1, [1, 1]), group(5, [0, 0], 1))
    model = Model(of, 1, of.running())
    assert model.reach(Goal(RepackAim.PLACED, 0, (2,)), PLENTY).found == 0
    assert model.counts.tolist() == of.running().tolist()


def test_many_nodes_are_looked_at_a_few_at_a_time() -> None:
    # As in the first test; so many nodes are too many to prove that the move is needed.
    nodes = 10_001
    pods = group(2, [1] * nodes), group(4, [0] * nodes, 1)
    solution = pack(packing([4] * nodes, *pods), seconds=PLENTY, seed=1)
    placed, leaving = solution.reached
    assert (placed.found, placed.bound, leaving.found, leaving.bound) == (1, 1, 1, 0)


_GROUPS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.tuples(st.integers(0, 1), st.integers(0, 1)),
        st.integers(0, 1),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=3,
)


@given(groups=_GROUPS, spare=st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_no_other_packing_is_better(
    groups: list[tuple[int, tuple[int, int], int, int]], spare: tuple[int, int]
) -> None:
    pods = [
        group(request, running, waiting, priority=priority)
        for request, running, waiting, priority in groups
    ]
    room = [
        more + sum(each.requests[0] * int(each.running[node]) for each in pods)
        for node, more in enumerate(spare)
    ]
    solution = packed(room, *pods)
    assert tuple(each.found for each in solution.reached) == best(room, pods, solution)


def best(room: Sequence[int], groups: Sequence[Group], like: Packed) -> tuple[int, ...]:
    """Return the best values of goals, of all packings there are."""

    def value(counts: tuple[tuple[int, ...], ...]) -> Iterator[int]:
        for each in like.reached:
            of = [*each.goal.groups]
            if each.goal.aim is RepackAim.LEAVING:
                moves = (
                    max(int(here) - now, 0)
                    for group, on in zip(groups, counts, strict=True)
                    for here, now in zip(group.running, on, strict=True)
                )
                yield -sum(moves)
                continue
            kept = [min(sum(counts[at]), int(groups[at].running.sum())) for at in of]
            pods = [sum(counts[at]) for at in of]
            yield sum(kept) if each.goal.aim is RepackAim.KEPT else sum(pods) - sum(kept)

    highest = max((it.priority for it in groups if it.waiting), default=-1)

    def is_possible(counts: tuple[tuple[int, ...], ...]) -> bool:
        fits = all(
            sum(it.requests[0] * on[node] for it, on in zip(groups, counts, strict=True)) <= free
            for node, free in enumerate(room)
        )
        return fits and all(
            sum(on) <= int(it.running.sum()) + it.waiting
            and (it.priority < highest or sum(on) >= int(it.running.sum()))
            for it, on in zip(groups, counts, strict=True)
        )

    choices = [
        [*product(range(int(it.running.sum()) + it.waiting + 1), repeat=len(room))] for it in groups
    ]
    values = max(tuple(value(counts)) for counts in product(*choices) if is_possible(counts))
    return tuple(map(abs, values))
