"""Requirements of filters on node labels: the scheduler enforces them, on future nodes too.

They do not depend on the state of any node. So they are written whenever a policy applies, also on
a pod without candidates: it waits for the right node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from engine.model import api, selectors
from engine.model.label_condition import ALWAYS, Alternative, Exactness, LabelCondition
from engine.model.label_states import LabelStates
from engine.model.rule_outcomes import FilterOutcome
from engine.placement.affinity import Alternatives, json_of

MOST_TERMS: Final = 16
"""The most required terms of a pod: its own times those of the filters."""

_LONGEST_RULE = 63


@dataclass(frozen=True, slots=True)
class RequiredLabels:
    """The required labels of any node.

    Attributes:
        required: alternatives of which one must hold; none if nothing is required.
        enforced: the filters that they express completely, so that the scheduler enforces them.
        left_out: the names of filters that constrain labels and are not expressed.
        condition: the same as `required`.
    """

    required: Alternatives = ()
    enforced: tuple[FilterOutcome, ...] = ()
    left_out: tuple[str, ...] = ()
    condition: LabelCondition = ALWAYS

    @property
    def warnings(self) -> list[str]:
        """A line for each filter left out, below the 120 characters that clients show."""
        return [
            f"filter {rule[:_LONGEST_RULE]} is not required of nodes: it takes too many terms"
            for rule in self.left_out
        ]

    def are_demanded_by(self, affinity: api.NodeAffinity | None) -> bool:
        """Return whether every node that a pod's own affinity allows meets them."""
        if not self.required:
            return True
        wire = affinity and affinity.required_during_scheduling_ignored_during_execution
        if not wire:
            return False
        terms = selectors.parse_node_selector(wire)[0].terms
        alternatives = self.condition.alternatives
        keys = {key for each in alternatives for key in each.labels}
        return all(
            any(each.covers(part) for each in alternatives)
            for term in map(Alternative.of, (term.labels for term in terms))
            if term is not None
            for part in _by_presence(term, keys)
        )


def _by_presence(term: Alternative, keys: Iterable[str]) -> list[Alternative]:
    """Split a term by whether each label is missing: several alternatives may cover it together."""
    parts = [term]
    for key in keys:
        parts = [
            part
            for whole in parts
            for states in (LabelStates(missing=True), LabelStates(others=True))
            if (part := whole & Alternative({key: states})) is not None
        ]
    return parts


def required_labels(filters: Sequence[FilterOutcome], user_terms: int) -> RequiredLabels:
    """Return the requirements of filters on labels, as far as `MOST_TERMS` allows.

    The more terms a filter takes, the sooner it is left out. If no node can pass, nothing is
    required: the decision reports it, and a pod that can never run helps nobody.

    Args:
        filters: the outcomes of all filters of a decision.
        user_terms: the number of the pod's own required terms.
    """
    pairs = [(outcome, outcome.labels) for outcome in filters]
    pairs = [pair for pair in pairs if pair[1].exactness is not Exactness.NONE]
    if not pairs:
        return RequiredLabels()
    combined = _combined_of([labels for _, labels in pairs], user_terms)
    return RequiredLabels(
        combined.required,
        tuple([pairs[i][0] for i in combined.enforced]),
        tuple([pairs[i][0].rule for i in combined.left_out]),
        combined.condition,
    )


def promised_labels(
    filters: Iterable[tuple[str, LabelCondition]], user_terms: int
) -> RequiredLabels:
    """Return the same of filters that no node is judged by.

    Args:
        filters: the name of each, and its condition.
        user_terms: the number of the pod's own required terms.
    """
    pairs = [pair for pair in filters if pair[1].exactness is not Exactness.NONE]
    if not pairs:
        return RequiredLabels()
    combined = _combined_of([labels for _, labels in pairs], user_terms)
    left_out = tuple([pairs[i][0] for i in combined.left_out])
    return RequiredLabels(combined.required, (), left_out, combined.condition)


def _combined_of(conditions: list[LabelCondition], user_terms: int) -> _Combined:
    return _combine(_Conditions(conditions), max(MOST_TERMS // max(user_terms, 1), 1))


class _Conditions(tuple[LabelCondition, ...]):
    """Conditions that are hashed by identity: policies remember those of similar pods.

    INVARIANT: the cache holds these, and so the conditions: no other object gets their identity.
    """

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))


class _Combined(NamedTuple):
    """`RequiredLabels` by the positions of filters. INVARIANT: shared by many pods, immutable."""

    required: Alternatives
    enforced: tuple[int, ...]
    left_out: tuple[int, ...]
    condition: LabelCondition


@lru_cache(maxsize=64)
def _combine(conditions: _Conditions, max_terms: int) -> _Combined:
    """Return the conjunction of conditions, in at most `max_terms` terms."""
    combined = ALWAYS
    enforced: list[int] = []
    left_out: list[int] = []
    for i in sorted(range(len(conditions)), key=lambda i: len(conditions[i].terms)):
        both = combined.meet(conditions[i])
        if both is None or len(both.terms) > max_terms or both.bounded() is not both:
            left_out.append(i)
            continue
        combined = both
        if conditions[i].exactness is Exactness.EXACT:
            enforced.append(i)
    required = tuple(tuple(map(json_of, term)) for term in combined.terms if term)
    return _Combined(required, tuple(enforced), tuple(left_out), combined)
