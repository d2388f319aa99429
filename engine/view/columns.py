"""Columns of nodes that several rules read: labels, taints, images, and an order of their own."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from engine.model import api
from engine.model.domain import Domain
from engine.model.selectors import integer
from engine.view.axis import BoolColumn, IntColumn
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import DictionaryColumn
from engine.view.image_index import ImageIndex

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
