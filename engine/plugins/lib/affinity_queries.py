"""Which pods of a cluster a term of an affinity selects."""

from __future__ import annotations

from engine.model.pod_affinity import AffinityTerm
from engine.model.selectors import LabelSelector
from engine.view import ClusterView, PodQuery, namespaces_matching


def query_of(term: AffinityTerm, view: ClusterView) -> PodQuery:
    """Return the pods that a term selects, by the namespaces that are known."""
    if term.selector is None:
        return PodQuery(frozenset(), LabelSelector())
    selector = term.namespace_selector
    if selector is None:
        return PodQuery(term.namespaces, term.selector)
    if not selector.requirements:
        return PodQuery(None, term.selector)
    return PodQuery(term.namespaces | namespaces_matching(view, selector), term.selector)


def parts_of(term: AffinityTerm) -> int:
    """Return the number of passes over the labels of all pods that a term takes at most."""
    selectors = (term.selector, term.namespace_selector)
    return 1 + sum(len(each.requirements) for each in selectors if each is not None)
