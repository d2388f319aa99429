"""What holds for every rule that looks at nodes row by row; each test brings its own cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins.base import FAULT, MAX_SCORE, PASS, Plugin, Score
from engine.view import ClusterView, PodSumProfile
from tests.engine.measured_cluster import NOW


class Rules:
    """A filter and a scorer of one plugin, asked as one."""

    def __init__(self, plugin: Plugin, args: dict[str, Any]) -> None:
        parsed = plugin.args.model_validate(args)
        self.filter = plugin.filter(parsed) if plugin.filter else None
        self.score = plugin.score(parsed) if plugin.score else None
        self.profiles: tuple[PodSumProfile, ...] = tuple(plugin.sum_profiles(parsed))

    def answers(self, one: Pod, view: ClusterView, now: Micros = NOW) -> dict[str, object]:
        """Return all that is said of each node, by its name."""
        said: list[list[object]] = [[] for _ in view.names]
        if self.filter is not None:
            judged = self.filter.filter(one, view, now)
            assert judged.rejects.tolist() == [code != PASS for code in judged.codes]
            for row, code in enumerate(judged.codes.tolist()):
                if code == FAULT:
                    said[row].append(self.filter.fault(one, view, row))
                elif code != PASS:
                    said[row].append(self.filter.reasons(code, one, view))
        if self.score is not None:
            scores = self.score.score(one, view, now)
            faults = np.zeros(len(view)) if scores.faults is None else scores.faults
            for row, (score, fault) in enumerate(zip(scores.values, faults, strict=True)):
                said[row].append(self.score.fault(one, view, row) if fault else int(score))
        return {
            name: answer
            for name, answer, valid in zip(view.names, said, view.valid, strict=True)
            if valid
        }


def check_rows_stand_alone(
    answers: Callable[[Pod, ClusterView], Mapping[str, object]],
    one: Pod,
    view: ClusterView,
    rows: Sequence[int],
) -> None:
    """Some rows, in any order, are told the same as among all others."""
    whole = answers(one, view)
    part = answers(one, view.take(np.array(rows, np.intp)))
    assert part == {name: whole[name] for name in part}


def check_losers_sway_nobody(
    rule: Score, one: Pod, view: ClusterView, winners: Sequence[int]
) -> None:
    """The points of some rows are the same with and without the others, and on the scale."""
    rows = np.array(winners, np.intp)
    points = rule.normalize(rule.score(one, view, NOW).values[rows])
    alone = rule.normalize(rule.score(one, view.take(rows), NOW).values)
    assert points.tolist() == alone.tolist()
    assert all(0 <= each <= MAX_SCORE for each in points)
