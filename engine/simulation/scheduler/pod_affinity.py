"""InterPodAffinity's score: pods that a pod would like near, and pods that would like it near.

Source: pkg/scheduler/framework/plugins/interpodaffinity/scoring.go, with its default args. A node
gets the weights of the terms that match, once for each pod in its domain: those that the pod
prefers, those by which pods on nodes prefer it, and 1 for each of theirs that is required. Those of
anti-affinity count against it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.pod import Pod
from engine.model.pod_affinity import AffinityTerm, parse_affinity_terms
from engine.plugins import MAX_SCORE
from engine.plugins.lib.affinity_queries import parts_of, query_of
from engine.plugins.lib.topology import sums_of_domains
from engine.view import (
    ClusterView,
    IntColumn,
    attraction,
    label_column,
    node_label_keys,
    pods_matching,
)

_LONGEST_TEXT: Final = 8_192  # bytes of all terms, as for those that are required
_MOST_PARTS: Final = 64
_CACHED_TEXTS: Final = 256

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[api.WeightedPodAffinityTerm, ...]).decode


def affinity_points(pod: Pod, view: ClusterView, rows: NDArray[np.intp]) -> IntColumn:
    """Return 0..MAX_SCORE for each of some rows, in their order; 0 where nothing is preferred.

    Args:
        pod: the pod.
        view: the cluster.
        rows: the nodes that compete, at least one.
    """
    by_key = dict(attraction(view, pod))
    for weight, term in _preferences(pod):
        key = term.topology_key
        if key in node_label_keys(view):
            pods = pods_matching(view, (query_of(term, view),), terminating=True)
            by_key[key] = weight * pods + by_key.get(key, 0)
    sums = np.zeros(rows.size, np.int64)
    if not by_key:
        return sums
    for key, weights in by_key.items():
        sums += sums_of_domains(label_column(view, key), weights).take(rows)
    return _normalized(sums)


def _normalized(sums: IntColumn) -> IntColumn:
    """Return 0 for the least sum to MAX_SCORE for the greatest, in floats as upstream."""
    least, most = int(sums.min()), int(sums.max())
    if most == least:
        return np.zeros(sums.size, np.int64)
    return (MAX_SCORE * ((sums - least) / (most - least))).astype(np.int64)


def _preferences(pod: Pod) -> tuple[tuple[int, AffinityTerm], ...]:
    """Return what a pod prefers with weights, below 0 for away; nothing if it is too large."""
    near, away = pod.preferred_pod_affinity, pod.preferred_pod_anti_affinity
    if not (near or away):
        return ()
    try:
        texts = _encode(near), _encode(away)
    except UnicodeEncodeError:
        return ()
    if sum(map(len, texts)) > _LONGEST_TEXT:
        return ()
    return _parsed(*texts, pod.namespace)


@lru_cache(maxsize=_CACHED_TEXTS)
def _parsed(near: bytes, away: bytes, namespace: str) -> tuple[tuple[int, AffinityTerm], ...]:
    weighted = [(1, each) for each in _decode(near)] + [(-1, each) for each in _decode(away)]
    terms = parse_affinity_terms([each.pod_affinity_term for _, each in weighted], namespace)
    if sum(map(parts_of, terms)) > _MOST_PARTS:
        return ()
    return tuple(
        (sign * each.weight, term) for (sign, each), term in zip(weighted, terms, strict=True)
    )
