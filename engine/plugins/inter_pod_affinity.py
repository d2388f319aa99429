"""InterPodAffinity: pods that must, or would like to, be near each other or not.

Source: pkg/scheduler/framework/plugins/interpodaffinity/{filtering,scoring}.go. Near is on nodes
that share the value of a label. Pods that are released together may need each other, as they count
where they are nominated.

The score adds up the weights of matching terms, once for each pod in the domain: terms that the pod
prefers, terms by which pods on nodes prefer it, and `hardPodAffinityWeight` for each required term
of theirs. Anti-affinity is subtracted.

Differences from upstream:

- **Selectors of namespaces** select those whose labels match, as since Kubernetes 1.37. In earlier
  schedulers one with NotIn or DoesNotExist may select all.
- **Large affinities**: more than 64 terms and requirements, or 8 KiB of them, are a fault on every
  node.
- **Topology keys of other pods**: of the labels by which pods on nodes want this pod near or away,
  the first 16 count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from engine.model import api
from engine.model.pod import AffinityTerm, Pod, parse_affinity_terms
from engine.model.rule_outcomes import FilterResult, RuleInput, RuleInputs, Unit
from engine.plugins.base import (
    FAULT,
    MAX_SCORE,
    Args,
    Cycle,
    Filter,
    Plugin,
    ReadBy,
    Score,
    Scores,
    result_of,
)
from engine.plugins.lib.args import Flag
from engine.plugins.lib.constraints import parts_of, query_of, sums_of_domains
from engine.view import (
    BoolColumn,
    ClusterView,
    Domain,
    IntColumn,
    attraction,
    extremes,
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
    """InterPodAffinityArgs; all of them are for the score.

    Attributes:
        hard_pod_affinity_weight: what a required term of a pod on a node counts for.
        ignore_preferred_terms_of_existing_pods: whether a pod that prefers nothing itself is left
            alone.
    """

    hard_pod_affinity_weight: Annotated[int, Field(strict=True, ge=0, le=100), ReadBy.SCORE] = 1
    ignore_preferred_terms_of_existing_pods: Annotated[Flag, ReadBy.SCORE] = False


class _Needs(NamedTuple):
    """What a pod requires of other pods."""

    affinity: tuple[AffinityTerm, ...]
    anti_affinity: tuple[AffinityTerm, ...]


class _Neighbours(NamedTuple):
    """How many pods are near, on each row of the whole cluster, by topology key, (n,) each."""

    wanted: Mapping[str, IntColumn]  # pods that match all terms of the affinity
    unwanted: Mapping[str, IntColumn]  # pods that match a term of the anti-affinity, with that key
    repelling: Mapping[str, IntColumn]  # pods whose anti-affinity with that key matches the pod
    is_first: bool  # whether no pod matches the affinity anywhere, but the pod itself does


class InterPodAffinityFilter(Filter):
    """Rejects nodes without pods that the pod needs, and those near pods that it must not meet."""

    def filter(self, cycle: Cycle) -> FilterResult:
        """Return PASS, FAULT where the affinity is too large, or what is not satisfied first."""
        pod, view = cycle.pod, cycle.view
        if not (pod.pod_affinity or pod.pod_anti_affinity or view.trait_book.anti_affinity):
            return FilterResult.passing(len(view))
        needs = _needs_of(pod)
        if needs is None:
            return result_of(np.full(len(view), FAULT, np.int8))
        return result_of(_codes(pod, needs, view))

    def reasons(self, code: int, cycle: Cycle) -> tuple[str, ...]:
        return (_REASONS[code],)

    def fault(self, cycle: Cycle, row: int) -> str:
        return _TOO_LARGE

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        needs = _needs_of(cycle.pod)
        if needs is None:
            return ()
        whole, row = view.whole, view.whole.rows[view.names[row]]
        near = _neighbours(cycle.pod, needs, whole)
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


_Preferences: TypeAlias = tuple[tuple[int, AffinityTerm], ...]


class InterPodAffinityScore(Score):
    """Weighs the pods that a pod would like near, and those that would like it near."""

    def __init__(self, args: InterPodAffinityArgs) -> None:
        self._required_weight = args.hard_pod_affinity_weight
        self._ignores_others = args.ignore_preferred_terms_of_existing_pods

    def score(self, cycle: Cycle) -> Scores:
        """Return the sums of weights; a fault everywhere if the pod's terms are too large."""
        pod, view = cycle.pod, cycle.view
        if view.parent is not None:
            whole, rows = view.parent
            scores = self.score(Cycle(pod, whole, cycle.now))
            faults = None if scores.faults is None else scores.faults.take(rows)
            return Scores(scores.values.take(rows), faults)
        sums = np.zeros(len(view), np.int64)
        preferences = _preferences(pod)
        if preferences is None:
            return Scores(sums, np.ones(len(view), np.bool_))
        for weights in self._near(pod, preferences, view).values():
            sums += weights
        return Scores(sums)

    def normalize(self, scores: IntColumn) -> IntColumn:
        """Return 0 for the least sum to 100 for the greatest; 0 for all equal ones."""
        least, most = extremes(scores) if scores.size else (0, 0)
        if most == least:
            return np.zeros(scores.size, np.int64)
        # In floats and in this order, as upstream.
        points: IntColumn = (MAX_SCORE * ((scores - least) / (most - least))).astype(np.int64)
        return points

    def fault(self, cycle: Cycle, row: int) -> str:
        return _TOO_LARGE

    def inputs(self, cycle: Cycle, row: int) -> RuleInputs:
        view = cycle.view
        whole, row = view.whole, view.whole.rows[view.names[row]]
        near = self._near(cycle.pod, _preferences(cycle.pod) or (), whole)
        return tuple(
            RuleInput(f"weight of pods near by {key}", int(weights[row]), Unit.COUNT)
            for key, weights in near.items()
        )

    def _near(self, pod: Pod, preferences: _Preferences, view: ClusterView) -> dict[str, IntColumn]:
        """Return the weights of the pods near each row of a whole view, by topology key."""
        if self._ignores_others and not preferences:
            return {}
        by_key = dict(attraction(view, pod, self._required_weight))
        known = node_label_keys(view) if preferences else frozenset[str]()
        for weight, term in preferences:
            key = term.topology_key
            if key in known:
                pods = pods_matching(view, (query_of(term, view),), terminating=True)
                by_key[key] = weight * pods + by_key.get(key, 0)
        return {
            key: sums_of_domains(label_column(view, key), weights)
            for key, weights in by_key.items()
        }


def _attracts(cycle: Cycle) -> bool:
    """Return whether a pod, or any that is on a node, would like others near or away."""
    pod = cycle.pod
    prefers = pod.preferred_pod_affinity or pod.preferred_pod_anti_affinity
    return bool(prefers or attraction(cycle.view.whole, pod, required_weight=1))


def _concerns(cycle: Cycle) -> bool:
    """Return whether a pod, or any that is on a node, cares which pods are near it."""
    pod = cycle.pod
    return bool(pod.pod_affinity or pod.pod_anti_affinity or repelling_pods(cycle.view.whole, pod))


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


def _preferences(pod: Pod) -> _Preferences | None:
    """Return what a pod prefers with weights, below 0 for away; None if it is too large."""
    near, away = pod.preferred_pod_affinity, pod.preferred_pod_anti_affinity
    if not (near or away):
        return ()
    try:
        texts = _encode(near), _encode(away)
    except UnicodeEncodeError:
        return None
    if sum(map(len, texts)) > _LONGEST_TEXT:
        return None
    return _parsed_preferences(*texts, pod.namespace)


_decode_weighted = msgspec.msgpack.Decoder(tuple[api.WeightedPodAffinityTerm, ...]).decode


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed_preferences(near: bytes, away: bytes, namespace: str) -> _Preferences | None:
    weighted = [(1, each) for each in _decode_weighted(near)]
    weighted += [(-1, each) for each in _decode_weighted(away)]
    terms = parse_affinity_terms([each.pod_affinity_term for _, each in weighted], namespace)
    if sum(map(parts_of, terms)) > _MOST_PARTS:
        return None
    return tuple(
        (sign * each.weight, term) for (sign, each), term in zip(weighted, terms, strict=True)
    )


PLUGIN = Plugin(
    args=InterPodAffinityArgs,
    filter=lambda _: InterPodAffinityFilter(),
    score=InterPodAffinityScore,
    reads=(Domain.NODES, Domain.PODS),
    reads_other_nodes=_concerns,
    score_reads_other_nodes=_attracts,
    concerns=_concerns,
    ranks=_attracts,
)
