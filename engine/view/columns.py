"""Columns of nodes that several rules read: labels, taints, images, devices, pods by selector."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.disruption_budget import CLUSTER_AUTOSCALER, KARPENTER, NODE_POOL_LABEL
from engine.model.kinds import Domain
from engine.model.node import IMPLICIT_DOMAIN, DeviceClass
from engine.model.pod import AffinityTerm, HostPort, Pod
from engine.model.selectors import LabelSelector, integer
from engine.view.axis import BoolColumn, IntColumn
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import DictionaryColumn, ImageIndex
from engine.view.trait_book import NUMBER_BYTES, PodQuery

LabelColumn: TypeAlias = DictionaryColumn[str]
"""One label of every node."""

TaintColumn: TypeAlias = DictionaryColumn[tuple[api.Taint, ...]]
"""All taints of every node, in order, as one value; missing where a row is not a node."""

_NODES = (Domain.NODES,)
_OWN_INDEX = "image index"


def label_column(view: ClusterView, key: str) -> LabelColumn:
    """Return the value of a label per node; a row that is not a node has none."""
    return view.dictionary_column(
        ("label", key),
        _NODES,
        lambda rows: [None if node is None else node.labels.get(key) for node in rows.nodes],
    )


def annotation_column(view: ClusterView, key: str) -> DictionaryColumn[str]:
    """Return the text of an annotation per node; a row that is not a node has none."""
    return view.dictionary_column(
        ("annotation", key),
        _NODES,
        lambda rows: (None if node is None else node.annotations.get(key) for node in rows.nodes),
    )


def node_label_keys(view: ClusterView) -> frozenset[str]:
    """Return the keys of the labels of all nodes of the cluster: of any other no node has one."""

    def keys(rows: ClusterView) -> frozenset[str]:
        column = rows.dictionary_column(
            "label keys",
            _NODES,
            lambda part: (None if node is None else frozenset(node.labels) for node in part.nodes),
        )
        return frozenset[str]().union(*filter(None, column.values))

    return view.whole.node_aggregate("label keys", _NODES, keys)


def integer_label_column(view: ClusterView, key: str) -> tuple[IntColumn, BoolColumn]:
    """Return the numbers that a label spells, shape (n,), and where it spells one.

    Only base-10 64-bit integers are numbers; elsewhere the first column holds 0.
    """

    def numbers(rows: ClusterView) -> IntColumn:
        label = label_column(rows, key)
        read = [None if value is None else integer(value) for value in label.values]
        table = np.array(
            [[number or 0 for number in read], [number is not None for number in read]], np.int64
        )
        return table.take(label.codes, axis=1)

    number, present = view.node_column(("integer label", key), _NODES, numbers)
    return number, present != 0


def taint_column(view: ClusterView) -> TaintColumn:
    """Return the taints of each node."""
    return view.dictionary_column(
        "taints",
        _NODES,
        lambda rows: (None if node is None else node.taints for node in rows.nodes),
    )


def image_column(view: ClusterView, name: str) -> tuple[IntColumn, float]:
    """Return how large an image is on each node, and the share of all nodes that hold it.

    Of a selection of rows too it is the share of the nodes of the cluster.

    Args:
        view: the rows.
        name: one of the image's names, with tag or digest.

    Returns:
        Bytes, 0 where it is not, shape (n,); and 0 to 1.
    """
    if view.parent is not None:
        whole, rows = view.parent
        sizes, share = image_column(whole, name)
        return sizes[rows], share
    sizes = _image_index(view).sizes(name)
    holders, nodes = int((sizes >= 0).sum()), int(view.valid.sum())
    return np.maximum(sizes, 0), holders / max(nodes, 1)


def _image_index(view: ClusterView) -> ImageIndex:
    """Return an index of a whole view: the shared one, or its own if it is an old view."""
    state = view.nodes, view.changed[Domain.NODES], view.latest[Domain.NODES]
    if view.memo.images.catch_up(*state):
        return view.memo.images
    if _OWN_INDEX not in view.scratch:
        own = view.scratch[_OWN_INDEX] = ImageIndex()
        own.catch_up(*state)
    return cast("ImageIndex", view.scratch[_OWN_INDEX])


def name_hashes(view: ClusterView) -> NDArray[np.uint64]:
    """Return the hash of each node's name, shape (n,).

    An order of nodes that is the same in every replica: rows come as nodes became known to each,
    and the first names of a cluster are often those of one zone.
    """
    return view.node_column(
        "name hash",
        _NODES,
        lambda part: np.fromiter(map(hash_of, part.names), np.uint64, len(part)),
    )


def hash_of(text: str) -> int:
    """Return 64 well mixed bits, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def is_device_resource(name: str, view: ClusterView) -> bool:
    """Return whether devices of some class may provide an extended resource.

    Source: pkg/scheduler/framework/plugins/noderesources/fit.go, shouldDelegateResourceToDRA.
    Unlike there, a name below `deviceclass.resource.kubernetes.io/` needs no class: one may come.
    """
    return name.startswith(IMPLICIT_DOMAIN) or view.lookup(DeviceClass, name) is not None


def left_to_devices(name: str, view: ClusterView) -> BoolColumn | None:
    """Return the nodes on which devices decide of a resource, (n,): those that offer none of it.

    None where it is no resource of devices. Which of these nodes has the devices is not known here.
    """
    if not is_device_resource(name, view):
        return None
    return view.amount(view.allocatable, name) <= 0


_PODS: Final = (Domain.PODS,)
_MOST_KEYS: Final = 16
"""Node labels by which pods are kept away: a column for each costs half a millisecond at first."""

_FLAT: Final = "existing pods"


def pods_matching(
    view: ClusterView, queries: tuple[PodQuery, ...], *, terminating: bool
) -> IntColumn:
    """Return how many pods on each row match all of some queries, shape (n,).

    Args:
        view: the rows.
        queries: at least one.
        terminating: whether pods that are being deleted count.
    """

    def count(rows: ClusterView) -> IntColumn:
        book = rows.trait_book
        found = np.logical_and.reduce([book.matching(query) for query in queries])
        return _count(rows, found if terminating else found & ~book.terminating)

    return view.pod_column(("pods matching", queries, terminating), _PODS, count)


def pods_using(view: ClusterView, ports: tuple[HostPort, ...]) -> IntColumn:
    """Return how many pods on each row have a port that conflicts with some of these, (n,)."""

    def count(rows: ClusterView) -> IntColumn:
        return _count(rows, rows.trait_book.on_ports(ports))

    return view.pod_column(("pods using", ports), _PODS, count)


def pods_not_evictable(view: ClusterView) -> IntColumn:
    """Return how many pods on each row its autoscaler does not evict, (n,).

    That is Karpenter where the node has its label, else Cluster Autoscaler. Nobody evicts pods of a
    PodDisruptionBudget that allows no disruption; those that are being deleted go anyway.
    """

    def count(rows: ClusterView) -> IntColumn:
        by_autoscaler, by_karpenter = (
            _count(rows, rows.trait_book.not_evictable_by(each, rows.exhausted_budgets))
            for each in (CLUSTER_AUTOSCALER, KARPENTER)
        )
        of_karpenter = label_column(rows, NODE_POOL_LABEL).present
        return np.where(of_karpenter, by_karpenter, by_autoscaler)

    return view.node_column("pods not evictable", (Domain.NODES, Domain.PODS), count)


def repelling_pods(view: ClusterView, pod: Pod) -> Mapping[str, IntColumn]:
    """Return how many pods on each row require to be away from a pod, by topology key, (n,).

    Only keys by which some pod does; it takes no time where no pod requires to be away from any. Of
    very many keys that nodes have as labels only the first are heeded.
    """
    terms = view.trait_book.anti_affinity
    if not terms:
        return {}
    labels = view.namespaces.labels.get(pod.namespace, {})
    against = terms.against(pod.namespace, pod.labels, labels)
    known = node_label_keys(view) if against else frozenset[str]()
    keys = dict.fromkeys(term.topology_key for term in against if term.topology_key in known)
    counts: dict[str, IntColumn] = {}
    for key in islice(keys, _MOST_KEYS):
        of_key = tuple(term for term in against if term.topology_key == key)

        def count(rows: ClusterView, of_key: tuple[AffinityTerm, ...] = of_key) -> IntColumn:
            return _count(rows, rows.trait_book.repelling(of_key))

        column = view.pod_column(("repelling pods", of_key), _PODS, count)
        if column.any():  # terms of pods that are gone are known for a while
            counts[key] = column
    return counts


def attraction(view: ClusterView, pod: Pod, required_weight: int) -> Mapping[str, IntColumn]:
    """Return how much pods on each row want a pod near, by topology key, (n,).

    That is the sum of the weights of their preferred terms that select it, below 0 where they want
    it away. Only keys by which some pod does.

    Args:
        view: the rows.
        pod: the pod.
        required_weight: what a required term of affinity counts for.
    """
    if not view.trait_book.attraction:
        return {}
    labels = view.namespaces.labels.get(pod.namespace, {})
    by_key: dict[str, list[tuple[int, AffinityTerm]]] = {}
    for weight, terms in view.trait_book.attraction.items():
        for term in terms.against(pod.namespace, pod.labels, labels):
            by_key.setdefault(term.topology_key, []).append((weight, term))
    known = node_label_keys(view) if by_key else frozenset[str]()
    sums: dict[str, IntColumn] = {}
    for key in islice((key for key in by_key if key in known), _MOST_KEYS):
        of_key = tuple(by_key[key])

        def count(
            rows: ClusterView, of_key: tuple[tuple[int, AffinityTerm], ...] = of_key
        ) -> IntColumn:
            numbers, ends = _flat(rows)
            weights = np.zeros(numbers.size + 1, np.int64)
            attracted = rows.trait_book.attracted(of_key, required_weight)
            attracted[numbers].cumsum(out=weights[1:])
            return np.diff(weights[ends], prepend=0)

        column = view.pod_column(("attraction", of_key, required_weight), _PODS, count)
        if column.any():  # terms of pods that are gone are known for a while
            sums[key] = column
    return sums


def namespaces_matching(view: ClusterView, selector: LabelSelector) -> frozenset[str]:
    """Return the names of the known namespaces that a selector selects, remembered."""
    facts = view.namespaces
    return view.memo.namespace_sets.get(selector, facts.labels, facts.labels_version)


def _count(view: ClusterView, is_counted: BoolColumn) -> IntColumn:
    """Return how many pods of counted numbers are on each row, shape (n,)."""
    (counted,) = is_counted.nonzero()
    if not counted.size:
        return np.zeros(len(view), np.int64)
    numbers, ends = _flat(view)
    # Mostly it is one number, that of a template: to compare takes a fifth of looking all up.
    found = numbers == counted[0] if counted.size == 1 else is_counted.take(numbers)
    return np.diff(found.nonzero()[0].searchsorted(ends), prepend=0)


def _flat(view: ClusterView) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the traits of every pod, row by row, and where those of each row end."""
    flat = view.scratch.get(_FLAT)
    if flat is None:
        numbers = np.frombuffer(b"".join(view.traits), np.int32)
        flat = view.scratch[_FLAT] = numbers, view.pod_column(_FLAT, _PODS, _sizes).cumsum()
    return cast("tuple[NDArray[np.int32], NDArray[np.int64]]", flat)


def _sizes(view: ClusterView) -> IntColumn:
    """Return how many pods are on each row, shape (n,)."""
    return np.fromiter(map(len, view.traits), np.int64, len(view)) // NUMBER_BYTES
