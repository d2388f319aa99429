"""The labels and taints of nodes as dictionary columns."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from engine.model import api
from engine.model.domain import Domain
from engine.model.selectors import integer
from engine.view.axis import BoolColumn, IntColumn
from engine.view.cluster_view import ClusterView
from engine.view.dictionary import DictionaryColumn, dictionary_column

LabelColumn: TypeAlias = DictionaryColumn[str]
"""One label of every node."""

TaintColumn: TypeAlias = DictionaryColumn[tuple[api.Taint, ...]]
"""All taints of every node, in order, as one value; missing where a row is not a node."""

_NODES = (Domain.NODES,)


def label_column(view: ClusterView, key: str) -> LabelColumn:
    """Return the value of a label per node; a row that is not a node has none."""
    return dictionary_column(
        view,
        ("label", key),
        _NODES,
        lambda rows: (None if node is None else node.labels.get(key) for node in rows.nodes),
    )


def integer_label_column(view: ClusterView, key: str) -> tuple[IntColumn, BoolColumn]:
    """Return the numbers that a label spells, shape (n,), and where it spells one.

    Only base-10 64-bit integers are numbers; elsewhere the first column holds 0.
    """

    def numbers(rows: ClusterView) -> IntColumn:
        label = label_column(rows, key)
        read = [None if value is None else integer(value) for value in label.values]
        table = np.array([[one or 0 for one in read], [one is not None for one in read]], np.int64)
        return table.take(label.codes, axis=1)

    number, present = view.node_column(("integer label", key), _NODES, numbers)
    return number, present != 0


def taint_column(view: ClusterView) -> TaintColumn:
    """Return the taints of each node."""
    return dictionary_column(
        view,
        "taints",
        _NODES,
        lambda rows: (None if node is None else node.taints for node in rows.nodes),
    )
