"""What filters say of node labels, as requirements: the scheduler keeps them, on nodes to come too.

They do not depend on the state of any node. So they are written whenever a policy applies, also on
a pod for which there is no node now: it will wait for the right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from engine.model import api, selectors
from engine.model.decision import SCHEDULER, Decision, FilterOutcome
from engine.model.label_condition import ALWAYS, Alternative, Exactness, LabelCondition
from engine.model.selectors import Operator
from engine.placement.affinity import Alternatives, Requirement

MOST_TERMS: Final = 16
"""The most required terms of a pod after ours were multiplied into its own."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What is required of the labels of any node.

    Attributes:
        required: alternatives of which one must hold; none if nothing is.
        kept: the filters that are in there as a whole.
        left_out: the names of those that say something of labels and are not in there.
        condition: the same as `required`.
    """

    required: Alternatives = ()
    kept: frozenset[FilterOutcome] = frozenset()
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

    def applied(self, decision: Decision) -> Decision:
        """Return a decision with the filters that are kept as filters of the scheduler itself."""
        if not self.kept:
            return decision
        filters = (
            replace(outcome, policy=SCHEDULER) if outcome in self.kept else outcome
            for outcome in decision.filters
        )
        return replace(decision, filters=tuple(filters))


def promise_of(decision: Decision, user_terms: int) -> Promise:
    """Return what the filters of a decision say of labels, as far as there is room for it.

    The more terms a filter takes, the sooner it is left out. If no node can pass, nothing is
    required: the decision has said so, and a pod that can never run is of no use.

    Args:
        decision: a decision by filters.
        user_terms: how many required terms of the pod's own ours are multiplied into.
    """
    room = max(MOST_TERMS // max(user_terms, 1), 1)
    together = ALWAYS
    kept: list[FilterOutcome] = []
    left_out: list[str] = []
    telling = [
        outcome for outcome in decision.filters if outcome.labels.exactness is not Exactness.NONE
    ]
    for outcome in sorted(telling, key=lambda outcome: len(outcome.labels.terms)):
        both = together.meet(outcome.labels)
        if both is None or len(both.terms) > room or both.bounded() is not both:
            left_out.append(outcome.rule)
            continue
        together = both
        if outcome.labels.exactness is Exactness.EXACT:
            kept.append(outcome)
    required = tuple(tuple(map(_written, term)) for term in together.terms if term)
    return Promise(required, frozenset(kept), tuple(left_out), together)


def _written(asked: selectors.Requirement) -> Requirement:
    """Return a requirement as it stands in JSON."""
    written = {"key": asked.key, "operator": asked.operator.value}
    if asked.operator in {Operator.GT, Operator.LT}:
        return {**written, "values": [str(asked.bound)]}
    return {**written, "values": sorted(asked.values)} if asked.values else written
