"""What filters say of node labels, as requirements: the scheduler keeps them, on nodes to come too.

They do not depend on the state of any node. So they are written whenever a policy applies, also on
a pod for which there is no node now: it will wait for the right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from engine.model import api, selectors
from engine.model.decision import Decision, FilterOutcome
from engine.model.label_condition import ALWAYS, Alternative, Exactness, LabelCondition
from engine.model.selectors import Operator
from engine.placement.affinity import Alternatives, Requirement

MOST_TERMS: Final = 16
"""The most required terms of a pod after ours were multiplied into its own."""


@dataclass(frozen=True, slots=True)
class RequiredLabels:
    """What is required of the labels of any node.

    Attributes:
        required: alternatives of which one must hold; none if nothing is.
        kept: the filters that are in there as a whole, and so filters of the scheduler itself.
        left_out: the names of those that say something of labels and are not in there.
        condition: the same as `required`.
    """

    required: Alternatives = ()
    kept: tuple[FilterOutcome, ...] = ()
    left_out: tuple[str, ...] = ()
    condition: LabelCondition = ALWAYS

    def is_kept_by(self, affinity: api.NodeAffinity | None) -> bool:
        """Return whether a pod demands all of it already: no node it allows is against it."""
        if not self.required:
            return True
        wire = affinity and affinity.required_during_scheduling_ignored_during_execution
        if not wire:
            return False
        terms = selectors.parse_node_selector(wire)[0].terms
        allowed = (Alternative.of(term.labels) for term in terms)
        return all(
            one is None or any(each.covers(one) for each in self.condition.alternatives)
            for one in allowed
        )


def required_labels(decision: Decision, user_terms: int) -> RequiredLabels:
    """Return what the filters of a decision say of labels, as far as there is room for it.

    The more terms a filter takes, the sooner it is left out. If no node can pass, nothing is
    required: the decision has said so, and a pod that can never run is of no use.

    Args:
        decision: a decision by filters.
        user_terms: how many required terms of the pod's own ours are multiplied into.
    """
    said = [(outcome, outcome.labels) for outcome in decision.filters]
    said = [(outcome, labels) for outcome, labels in said if labels.exactness is not Exactness.NONE]
    if not said:
        return RequiredLabels()
    telling = [outcome for outcome, _ in said]
    room = max(MOST_TERMS // max(user_terms, 1), 1)
    together = _together(_Conditions([labels for _, labels in said]), room)
    return RequiredLabels(
        together.required,
        tuple([telling[i] for i in together.kept]),
        tuple([telling[i].rule for i in together.left_out]),
        together.condition,
    )


class _Conditions(tuple[LabelCondition, ...]):
    """Conditions that are looked up by identity: policies remember what they say of a pod.

    INVARIANT: whoever keeps these keeps the conditions, so no other object gets their identity.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))


class _Together(NamedTuple):
    """A promise by the positions of filters. INVARIANT: many pods share it, so it never changes."""

    required: Alternatives
    kept: tuple[int, ...]
    left_out: tuple[int, ...]
    condition: LabelCondition


@lru_cache(maxsize=64)
def _together(conditions: _Conditions, room: int) -> _Together:
    """Return what some conditions ask for, in at most `room` terms."""
    together = ALWAYS
    kept: list[int] = []
    left_out: list[int] = []
    for i in sorted(range(len(conditions)), key=lambda i: len(conditions[i].terms)):
        both = together.meet(conditions[i])
        if both is None or len(both.terms) > room or both.bounded() is not both:
            left_out.append(i)
            continue
        together = both
        if conditions[i].exactness is Exactness.EXACT:
            kept.append(i)
    required = tuple(tuple(map(_written, term)) for term in together.terms if term)
    return _Together(required, tuple(kept), tuple(left_out), together)


def _written(asked: selectors.Requirement) -> Requirement:
    """Return a requirement as it stands in JSON."""
    written = {"key": asked.key, "operator": asked.operator.value}
    if asked.operator in {Operator.GT, Operator.LT}:
        return {**written, "values": [str(asked.bound)]}
    return {**written, "values": sorted(asked.values)} if asked.values else written
