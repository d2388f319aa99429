"""Pods in order, each decided as if those before it were on their nodes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from engine.batch.judge import Judge
from engine.batch.node_states import Judged
from engine.batch.outcome import BatchOutcome
from engine.batch.placements import Placements
from engine.batch.template import Template
from engine.batch.template_rules import TemplateRules, UnevenError
from engine.batch.turns import Turns
from engine.model.decision import Verdict
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.view import ClusterView

_MOST_TEMPLATES: Final = 128
"""That are remembered at a time: each takes some 250 KB in a cluster of 5,000 nodes."""

_MOST_TURNS: Final = 16
"""That are judged together: every tenth pod goes elsewhere than foretold."""


class Batch:
    """Decides pods in order, as it is iterated; what their decisions share is computed once.

    Args:
        requests: the pods, none of which counts on a node of the view.
        judge: decides for one pod.
        view: the cluster without them.
        keys: their `template_keys`.
    """

    def __init__(
        self,
        requests: Sequence[PlacementRequest],
        judge: Judge,
        view: ClusterView,
        keys: Sequence[Hashable | None],
    ) -> None:
        self._requests = requests
        self._keys = keys
        self._judge = judge
        self._view = view
        self._pods_of = Counter(keys)
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self._placements = Placements(view)
        self._turns: Turns | None = None  # the latest

    def __iter__(self) -> Iterator[BatchOutcome]:
        """Yield the outcome for each pod; the next one is decided when it is asked for."""
        begin = 0
        for key, alike in groupby(self._keys):
            end = begin + sum(1 for _ in alike)
            kind = self._kind(key, self._requests[begin])
            pods = [request.pod for request in self._requests[begin:end]]
            for at in range(end - begin):
                yield self._decide(begin + at, kind, pods, at)
            begin = end

    def _decide(self, position: int, kind: _Kind, pods: Sequence[Pod], at: int) -> BatchOutcome:
        """Decide for a pod, and place it.

        Args:
            position: of the pod in the batch.
            kind: its own.
            pods: of one key, which come one after the other.
            at: the position of the pod among them.
        """
        template, pod = kind.template, pods[at]
        if template is None:
            return self._decide_alone(self._requests[position])
        try:
            template.refresh(pod, partial(self._judge_rows, position))
        except UnevenError:
            kind.template = None
            return self._decide_alone(self._requests[position])
        ranking, decision = template.ranking, template.decision
        if not ranking.count:
            return self._unplaced(kind, self._requests[position])
        row, score = ranking.best(pods, at)
        template.place(pod, row)
        return BatchOutcome(
            node=self._view.names[row],
            verdict=Verdict.PLACE,
            message="",
            score=score,
            candidates=ranking.count,
            estimate=decision.estimate,
            decision=decision,
        )

    def _decide_alone(self, request: PlacementRequest) -> BatchOutcome:
        decision = self._judge.decide(request, self._placements.what_if.view)
        best = decision.best(1)
        if best.size:
            self._placements.add(request.pod, best.item())
        return BatchOutcome.of(decision)

    def _unplaced(self, kind: _Kind, request: PlacementRequest) -> BatchOutcome:
        """Return the outcome for a pod that no node can take."""
        placed = len(self._placements.rows)
        if kind.unplaced is None or kind.unplaced[0] != placed:
            decision = self._judge.decide(request, self._placements.what_if.view)
            kind.unplaced = placed, BatchOutcome.of(decision)
        return kind.unplaced[1]

    def _kind(self, key: Hashable | None, request: PlacementRequest) -> _Kind:
        """Return the kind of the pods of a key."""
        if key is None or self._pods_of[key] == 1:
            return _Kind(None)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._new_kind(request, self._pods_of[key])
            if len(self._kinds) > _MOST_TEMPLATES:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        return kind

    def _new_kind(self, request: PlacementRequest, pods: int) -> _Kind:
        policies = self._judge.policies_for(request)
        if not policies or request.pod.nominated_node_name:
            return _Kind(None)
        view = self._placements.what_if.view
        try:
            rules = TemplateRules(policies, request, view, self._judge)
            template = Template(rules, self._placements, pods)
        except UnevenError:
            return _Kind(None)
        template.decision = replace(template.decision, audit=self._judge.audit(request, view))
        return _Kind(template)

    def _judge_rows(self, position: int, rows: Sequence[int]) -> Judged:
        """Return what pods have changed of rows by the rules for the pod at a position."""
        turns = self._turns
        if turns is None or not turns.reach(position):
            most = 2 if turns is None else min(2 * turns.used, _MOST_TURNS)
            turns = Turns(self._coming(position, most), self._placements, position)
            self._turns = turns
        return turns.judged(position, rows)

    def _coming(self, position: int, most: int) -> list[tuple[Template, Pod]]:
        """Return the templates and pods from a position on, while the templates differ."""
        coming: dict[Template, Pod] = {}
        end = min(position + most, len(self._keys))
        for key, request in zip(
            self._keys[position:end], self._requests[position:end], strict=True
        ):
            kind = None if key is None else self._kinds.get(key)
            if kind is None or kind.template is None or kind.template in coming:
                break
            coming[kind.template] = request.pod
        return [*coming.items()]


class _Kind:
    """What pods of one key have in common.

    Attributes:
        template: None where each pod must be decided by itself.
        unplaced: the latest outcome without a node, and the number of pods placed then.
    """

    def __init__(self, template: Template | None) -> None:
        self.template = template
        self.unplaced: tuple[int, BatchOutcome] | None = None
