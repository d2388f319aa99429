"""TaintToleration: keeps pods off nodes with taints they do not tolerate, and prefers clean nodes.

Source: pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go.

Differences from upstream:

- **Reasons** name the first untolerated taint, as those of earlier schedulers did. In Kubernetes
  1.36 the reason is `node(s) had untolerated taint(s)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

import numpy as np

from engine.model import api
from engine.model.node import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated
from engine.model.pod import Pod
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs
from engine.plugins.base import PASS, Cycle, Filter, NoArgs, Plugin, Score, Scores
from engine.plugins.lib.arithmetic import default_normalize
from engine.view import ClusterView, Domain, IntColumn, taint_column

_REPELLING = (NO_SCHEDULE, NO_EXECUTE)
_DISCOURAGING = (PREFER_NO_SCHEDULE,)
_NODES = (Domain.NODES,)
_MOST_TOLD = 3
_CODE_BYTES = 7  # keeps a code positive in an int64


class TaintTolerationFilter(Filter):
    """Rejects nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, or the code of the first untolerated taint."""
        view = cycle.view

        def codes(rows: ClusterView = view) -> IntColumn:
            taints = taint_column(rows)
            first = [_first_untolerated(cycle.pod, value) for value in taints.values]
            return taints.spread(np.array([_code(taint) for taint in first], np.int64))

        key = ("TaintToleration", cycle.pod.tolerations)
        rejects = view.pod_column(key, _NODES, lambda rows: codes(rows) != PASS)
        return FilterResult(rejects, lambda: view.pod_column((*key, "codes"), _NODES, codes))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        taint = _by_code(cycle.view)[code]
        return (f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return (_taint_input(cycle.view, row, _REPELLING),)


class TaintTolerationScore(Score):
    """Counts the PreferNoSchedule taints that the pod does not tolerate; fewer is better."""

    def score(self, cycle: Cycle) -> Scores:
        """Return the number of taints that speak against each node."""

        def counts(rows: ClusterView) -> IntColumn:
            taints = taint_column(rows)
            of_value = [
                len(untolerated(value or (), cycle.pod.tolerations, _DISCOURAGING))
                for value in taints.values
            ]
            return taints.spread(np.array(of_value, np.int64))

        return Scores(cycle.view.pod_column(("soft taints", cycle.pod.tolerations), _NODES, counts))

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return 100 for no taint, 0 for the most among the candidates."""
        return default_normalize(scores, reverse=True)

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        return (_taint_input(cycle.view, row, _DISCOURAGING),)


def _taint_input(view: ClusterView, row: int, effects: Sequence[str]) -> RuleInput:
    """Return the taints of a node that have one of these effects, the first few."""
    node = view.nodes[row]
    taints = [taint for taint in (node.taints if node else ()) if taint.effect in effects]
    texts = [f"{taint.key}={taint.value}:{taint.effect}" for taint in taints[:_MOST_TOLD]]
    more = ["..."] if len(taints) > len(texts) else []
    return RuleInput("taints", text=", ".join([*texts, *more]) or "none")


def _first_untolerated(pod: Pod, taints: tuple[api.Taint, ...] | None) -> api.Taint | None:
    return next(iter(untolerated(taints or (), pod.tolerations, _REPELLING)), None)


def _by_code(view: ClusterView) -> dict[int, api.Taint]:
    """Return a taint for each code, remembered: every node may have one of its own."""

    def make(whole: ClusterView) -> dict[int, api.Taint]:
        taints = {taint for value in taint_column(whole).values for taint in value or ()}
        return {_code(taint): taint for taint in taints}

    return view.node_aggregate("taints by code", _NODES, make)


def _code(taint: api.Taint | None) -> int:
    """Return the code of a reason: a digest of what its text says.

    A digest means the same in every view and for any selection of rows, which a count of the
    taints seen so far would not.
    """
    if taint is None:
        return PASS
    text = f"{taint.key}: {taint.value}".encode(errors="surrogatepass")
    return 1 + int.from_bytes(blake2b(text, digest_size=_CODE_BYTES).digest())


def _is_discouraged(cycle: Cycle) -> bool:
    """Return whether any node has a PreferNoSchedule taint that a pod does not tolerate."""

    def soft_taints(whole: ClusterView) -> tuple[api.Taint, ...]:
        column = taint_column(whole)
        taints = chain.from_iterable(
            value or ()
            for value, count in zip(column.values, column.counts.tolist(), strict=False)
            if count
        )
        return tuple({taint for taint in taints if taint.effect == PREFER_NO_SCHEDULE})

    soft = cycle.view.node_aggregate("soft taints", _NODES, soft_taints)
    return bool(soft) and bool(untolerated(soft, cycle.pod.tolerations, _DISCOURAGING))


PLUGIN = Plugin(
    args=NoArgs,
    filter=lambda _: TaintTolerationFilter(),
    score=lambda _: TaintTolerationScore(),
    reads=(Domain.NODES,),
    ranks=_is_discouraged,
)
