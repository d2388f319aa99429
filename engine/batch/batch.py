"""Pods in order, each decided as if those before it were on their nodes."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import Final

from msgspec.structs import replace

from engine.batch.judge import Judge
from engine.batch.outcome import BatchOutcome
from engine.batch.placements import Placements
from engine.batch.stack import Stack
from engine.batch.template import Template
from engine.batch.template_rules import TemplateRules, UnevenError
from engine.batch.turns import Turns
from engine.model.decision import Verdict
from engine.model.pod import Pod
from engine.model.request import PlacementRequest
from engine.view import ClusterView

_MOST_TEMPLATES: Final = 128
"""That are remembered at a time: each takes some 250 KB in a cluster of 5,000 nodes."""

_MOST_TURNS: Final = 64
"""That are foretold together."""

_FURTHEST: Final = 8 * _MOST_TEMPLATES
"""Pods among which the templates of a stack are looked for."""

_OF_STACK: Final = 8
"""For each so many templates of a stack, a turn without it takes less time."""


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
        self._stack: Stack | None = None  # the latest
        self._turns: Turns | None = None  # those that are being taken
        self._most_turns = 2
        self._strangers = 0  # turns of templates that the stack lacks

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
            best = self._best(position, template, pods, at)
        except UnevenError:
            kind.template = None
            return self._decide_alone(self._requests[position])
        if best is None:
            return self._unplaced(kind, self._requests[position])
        row, score = best
        template.place(pod, row)
        decision = template.decision
        return BatchOutcome(
            node=self._view.names[row],
            verdict=Verdict.PLACE,
            message="",
            score=score,
            candidates=template.ranking.count,
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

    def _best(
        self, position: int, template: Template, pods: Sequence[Pod], at: int
    ) -> tuple[int, int] | None:
        """Return row and total of the best node for the pod at a position, None for none.

        Args:
            position: of the pod in the batch.
            template: its own.
            pods: of the template, which come one after the other.
            at: the position of the pod among them.

        Raises:
            UnevenError: some score could not be evaluated.
        """
        turns = self._turns
        if turns is not None:
            if turns.reach(position):
                return turns.take()
            turns.end()
            self._turns, self._most_turns = None, min(2 * turns.taken + 2, _MOST_TURNS)
        if not template.is_alone:
            turns = self._new_turns(position, template)
            if turns is not None:
                self._turns = turns
                return turns.take()
        template.refresh(pods[at])
        return template.best(pods, at)

    def _new_turns(self, position: int, template: Template) -> Turns | None:
        """Return turns from a position on, None if they are too few."""
        coming = self._coming(position)
        if len(coming) < 2:  # noqa: PLR2004
            return None
        stack = self._stack
        if stack is not None and len(coming) < min(stack.size // _OF_STACK, self._most_turns):
            return None
        if stack is None or template not in stack:
            self._strangers += 1
            if stack is not None and _OF_STACK * self._strangers <= stack.size:
                return None
            stack = self._stack = self._new_stack(position)
            self._strangers = 0
        stack.catch_up()
        within = [*takewhile(lambda turn: turn[0] in stack, coming)]
        return Turns(within, stack, self._placements, position) if within else None

    def _new_stack(self, position: int) -> Stack:
        """Return the templates of the next pods, more if many took turns by the stack before."""
        turns = 0 if self._stack is None else self._stack.turns
        most = min(16 * turns + 8, _MOST_TEMPLATES)
        found: dict[Template, None] = {}
        for key in self._keys[position : position + _FURTHEST]:
            kind = self._kinds.get(key)
            template = None if kind is None else kind.template
            if template is not None and template.rules.is_local:
                found[template] = None
                if len(found) == most:
                    break
        return Stack([*found], self._placements)

    def _coming(self, position: int) -> list[tuple[Template, Pod]]:
        """Return the templates and pods of the next turns that can be foretold."""
        coming: list[tuple[Template, Pod]] = []
        turns = slice(position, position + self._most_turns)
        latest: Template | None = None
        for key, request in zip(self._keys[turns], self._requests[turns], strict=True):
            kind = None if key is None else self._kinds.get(key)
            template = None if kind is None else kind.template
            if template is None or template is latest or not template.rules.is_local:
                break  # pods that follow one of their own are looked ahead for
            try:
                template.check_rules()
            except UnevenError:
                break
            coming.append((template, request.pod))
            latest = template
            if request.pod.pod_anti_affinity:  # which changes more than the node it is on
                break
        return coming


class _Kind:
    """What pods of one key have in common.

    Attributes:
        template: None where each pod must be decided by itself.
        unplaced: the latest outcome without a node, and the number of pods placed then.
    """

    def __init__(self, template: Template | None) -> None:
        self.template = template
        self.unplaced: tuple[int, BatchOutcome] | None = None
