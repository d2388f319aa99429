"""The largest pods that get advice: a decision must not delay other reviews."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from engine.model import api

MOST_BYTES = 256 * 1024

_MOST = {
    "containers": 100,
    "container statuses": 100,
    "amounts of resources": 400,
    "node selector terms": 50,
    "node selector requirements": 250,
    "node selector values": 2_000,
    "tolerations": 500,
}
"""What a pod may have for advice; at each, a decision over 5,000 nodes takes some 20 ms."""


def beyond_limits(pod: api.Pod) -> str:
    """Return what a pod has too much of, such as `more than 256 containers`; "" for nothing."""
    for what, count in _counts(pod):
        if count > _MOST[what]:
            return f"more than {_MOST[what]} {what}"
    return ""


def _counts(pod: api.Pod) -> Iterator[tuple[str, int]]:
    spec, status = pod.spec, pod.status
    app, init = spec.containers or (), spec.init_containers or ()
    statuses = len(status.container_statuses or ()) + len(status.init_container_statuses or ())
    yield "containers", len(app) + len(init)
    yield "container statuses", statuses
    lists = chain((spec.resources,), (container.resources for container in chain(app, init)))
    yield "amounts of resources", sum(map(_amounts, lists)) + len(spec.overhead or ())
    yield "tolerations", len(spec.tolerations or ())
    terms = list(_terms(spec))
    requirements = [
        requirement
        for term in terms
        for requirement in chain(term.match_expressions or (), term.match_fields or ())
    ]
    yield "node selector terms", len(terms)
    yield "node selector requirements", len(requirements) + len(spec.node_selector or ())
    yield "node selector values", sum(len(each.values or ()) for each in requirements)


def _amounts(resources: api.ResourceRequirements | None) -> int:
    return len(resources.requests or ()) + len(resources.limits or ()) if resources else 0


def _terms(spec: api.PodSpec) -> Iterator[api.NodeSelectorTerm]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None:
        return
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms or ()
    for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ():
        yield preferred.preference
