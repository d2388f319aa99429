"""InterPodAffinity: pods that must be near each other, and pods that must not.

Source: pkg/scheduler/framework/plugins/interpodaffinity/filtering.go; only what is required counts.
Near is on nodes that share the value of a label. Pods that are nominated or advised to a node count
there, so those released together may need each other. A selector of namespaces selects those whose
labels match, as since Kubernetes 1.37; earlier schedulers let some select all namespaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.pod import Pod
from engine.model.pod_affinity import AffinityTerm, parse_affinity_terms
from engine.model.rule_input import RuleInput, RuleInputs, Unit
from engine.model.rule_outcomes import FilterResult
from engine.model.time import Micros
from engine.plugins.base import FAULT, Args, Plugin, result_of
from engine.plugins.lib.affinity_queries import parts_of, query_of
from engine.plugins.lib.topology import sums_of_domains
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    label_column,
    node_label_keys,
    pods_matching,
    repelling_pods,
)

_LONGEST_TEXT: Final = 8_192  # bytes of all terms; an everyday pod has some 100
_MOST_PARTS: Final = 64  # terms and requirements; each is a pass over the labels of all pods
_CACHED_TEXTS: Final = 256  # of templates that arrive together
_TOO_LARGE: Final = f"affinity to pods has more than {_MOST_PARTS} terms and requirements"

_AFFINITY, _ANTI_AFFINITY, _EXISTING = 1, 2, 3
_REASONS: Final = {
    _AFFINITY: "node(s) didn't match pod affinity rules",
    _ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    _EXISTING: "node(s) didn't satisfy existing pods anti-affinity rules",
}

_encode = msgspec.msgpack.Encoder().encode


class InterPodAffinityArgs(Args):
    """InterPodAffinityArgs, without what only its score reads."""


class _Needs(NamedTuple):
    """What a pod requires of other pods."""

    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]


class _Neighbours(NamedTuple):
    """How many pods are near, on each row of the whole cluster, by topology key, (n,) each.

    Attributes:
        wanted: pods that match all terms of the affinity.
        unwanted: pods that match a term of the anti-affinity, with that key.
        repelling: pods whose anti-affinity with that key matches the pod.
        is_first: whether no pod matches the affinity anywhere, but the pod itself does.
    """

    wanted: Mapping[str, IntColumn]
    unwanted: Mapping[str, IntColumn]
    repelling: Mapping[str, IntColumn]
    is_first: bool


class InterPodAffinityFilter:
    """Rejects nodes without pods that the pod needs, and those near pods that it must not meet."""

    def __init__(self, _: InterPodAffinityArgs) -> None:
        """Take the args, of which there are none."""

    def filter(self, pod: Pod, view: ClusterView, now: Micros) -> FilterResult:  # noqa: ARG002 (protocol)
        """Return PASS, FAULT where the affinity is too large, or what is not satisfied first."""
        if not (pod.pod_affinity or pod.pod_anti_affinity or view.trait_book.anti_affinity):
            return FilterResult.passing(len(view))
        needs = _needs_of(pod)
        if needs is None:
            return result_of(np.full(len(view), FAULT, np.int8))
        return result_of(_codes(pod, needs, view))

    def reasons(self, code: int, pod: Pod, view: ClusterView) -> tuple[str, ...]:  # noqa: ARG002 (protocol)
        """Return the text of one code."""
        return (_REASONS[code],)

    def fault(self, pod: Pod, view: ClusterView, row: int) -> str:  # noqa: ARG002 (protocol)
        """Return that the affinity is too large."""
        return _TOO_LARGE

    def inputs(self, pod: Pod, view: ClusterView, row: int, now: Micros) -> RuleInputs:  # noqa: ARG002 (protocol)
        """Return how many pods near the node matter, by topology key."""
        needs = _needs_of(pod)
        if needs is None:
            return ()
        whole, row = view.whole, view.whole.rows[view.names[row]]
        near = _neighbours(pod, needs, whole)
        kinds = (
            ("pods it needs", near.wanted),
            ("pods it avoids", near.unwanted),
            ("pods that avoid it", near.repelling),
        )
        return tuple(
            RuleInput(f"{what} by {key}", int(counts[row]), Unit.COUNT)
            for what, by_key in kinds
            for key, counts in by_key.items()
        )


def _concerns(pod: Pod, view: ClusterView) -> bool:
    """Return whether a pod, or any that is on a node, cares which pods are near it."""
    return bool(pod.pod_affinity or pod.pod_anti_affinity or repelling_pods(view.whole, pod))


def _codes(pod: Pod, needs: _Needs, view: ClusterView) -> NDArray[np.int8]:
    """Return the code of each row, shape (n,)."""
    if view.parent is not None:
        whole, rows = view.parent
        return _codes(pod, needs, whole)[rows]
    near, codes = _neighbours(pod, needs, view), np.zeros(len(view), np.int8)
    codes[_any_near(near.repelling, len(view))] = _EXISTING
    codes[_any_near(near.unwanted, len(view))] = _ANTI_AFFINITY
    known = node_label_keys(view)
    for term in needs.affinity:
        key = term.topology_key
        if key not in known:
            codes[:] = _AFFINITY
        elif near.is_first:
            codes[~label_column(view, key).present] = _AFFINITY
        else:
            codes[near.wanted[key] == 0] = _AFFINITY
    return codes


def _any_near(counts: Mapping[str, IntColumn], rows: int) -> BoolColumn:
    """Return near which rows any pod is, shape (n,)."""
    near = np.zeros(rows, np.bool_)
    for column in counts.values():
        near |= column > 0
    return near


def _neighbours(pod: Pod, needs: _Needs, view: ClusterView) -> _Neighbours:
    """Return the pods near each row of a whole view."""
    known = node_label_keys(view)
    wanted: dict[str, IntColumn] = {}
    is_first = False
    if needs.affinity:
        queries = tuple([query_of(term, view) for term in needs.affinity])
        matching = pods_matching(view, queries, terminating=True)
        for key in {term.topology_key for term in needs.affinity} & known:
            wanted[key] = sums_of_domains(label_column(view, key), matching)
        is_first = not any(column.any() for column in wanted.values()) and all(
            query.matches(pod.namespace, pod.labels) for query in queries
        )
    unwanted: dict[str, IntColumn] = {}
    for term in needs.anti_affinity:
        key = term.topology_key
        if key in known:
            matching = pods_matching(view, (query_of(term, view),), terminating=True)
            more = sums_of_domains(label_column(view, key), matching)
            unwanted[key] = more + unwanted[key] if key in unwanted else more
    repelling = {
        key: sums_of_domains(label_column(view, key), counts)
        for key, counts in repelling_pods(view, pod).items()
    }
    return _Neighbours(wanted, unwanted, repelling, is_first)


def _needs_of(pod: Pod) -> _Needs | None:
    """Return what a pod requires, None where it is too large to be checked."""
    try:
        text = _encode((pod.pod_affinity, pod.pod_anti_affinity))
    except UnicodeEncodeError:
        return None
    return _parsed(text, pod.namespace) if len(text) <= _LONGEST_TEXT else None


_decode = msgspec.msgpack.Decoder(
    tuple[tuple[api.PodAffinityTerm, ...], tuple[api.PodAffinityTerm, ...]]
).decode


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(text: bytes, namespace: str) -> _Needs | None:
    affinity, anti_affinity = _decode(text)
    needs = _Needs(
        parse_affinity_terms(affinity, namespace), parse_affinity_terms(anti_affinity, namespace)
    )
    return (
        needs if sum(map(parts_of, needs.affinity + needs.anti_affinity)) <= _MOST_PARTS else None
    )


PLUGIN = Plugin(
    args=InterPodAffinityArgs,
    filter=InterPodAffinityFilter,
    reads=(Domain.NODES, Domain.PODS),
    reads_other_nodes=_concerns,
    concerns=_concerns,
)
