"""Affinity and anti-affinity between pods: whom a term selects.

Source: `AffinityTerm` of k8s.io/kube-scheduler/framework/types.go, and for label keys
pkg/registry/core/pod/strategy.go. The API server refuses selectors with mistakes; here such a term
selects no pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from engine.model import api
from engine.model.selectors import LabelSelector, Operator, parse_label_selector


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required term.

    Attributes:
        topology_key: the node label whose values are the domains.
        selector: of pods; None selects none.
        namespaces: in which pods are selected.
        namespace_selector: of further namespaces; None selects none.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> bool:
        """Return whether it selects a pod of a namespace, by its labels and the namespace's."""
        if self.selector is None:
            return False
        is_there = namespace in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels)
        )
        return is_there and self.selector.matches(labels)


def parse_affinity_terms(
    wire: Iterable[api.PodAffinityTerm], namespace: str
) -> tuple[AffinityTerm, ...]:
    """Return the terms of a pod of a namespace."""
    return tuple([_parse_term(term, namespace) for term in wire])


def with_label_keys(
    terms: Sequence[api.PodAffinityTerm], labels: Mapping[str, str]
) -> tuple[api.PodAffinityTerm, ...]:
    """Return terms with their label keys in their selectors, as the API server stores them.

    Args:
        terms: of a pod that is not stored yet.
        labels: of the pod.
    """
    return tuple([_with_label_keys(term, labels) for term in terms])


def _parse_term(wire: api.PodAffinityTerm, namespace: str) -> AffinityTerm:
    is_own = not wire.namespaces and wire.namespace_selector is None
    return AffinityTerm(
        topology_key=wire.topology_key,
        selector=_parse_selector(wire.label_selector),
        namespaces=frozenset((namespace,) if is_own else wire.namespaces or ()),
        namespace_selector=_parse_selector(wire.namespace_selector),
    )


def _parse_selector(wire: api.LabelSelector | None) -> LabelSelector | None:
    if wire is None:
        return None
    selector, mistakes = parse_label_selector(wire)
    return None if mistakes else selector


def _with_label_keys(term: api.PodAffinityTerm, labels: Mapping[str, str]) -> api.PodAffinityTerm:
    selector = term.label_selector
    if selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    added = [
        api.SelectorRequirement(key=key, operator=operator, values=[labels[key]])
        for operator, keys in (
            (Operator.IN, term.match_label_keys),
            (Operator.NOT_IN, term.mismatch_label_keys),
        )
        for key in keys or ()
        if key in labels
    ]
    expressions = [*(selector.match_expressions or ()), *added]
    return replace(term, label_selector=replace(selector, match_expressions=expressions))
