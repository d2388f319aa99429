"""Annotations of nodes in columns, so that each distinct text is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from engine.view import ClusterView, DictionaryColumn, Domain, IntColumn


def annotation_column(view: ClusterView, key: str) -> DictionaryColumn[str]:
    """Return the text of an annotation per node; a row that is not a node has none."""
    return view.dictionary_column(
        ("annotation", key),
        (Domain.NODES,),
        lambda part: (None if node is None else node.annotations.get(key) for node in part.nodes),
    )


def read_annotation(
    view: ClusterView, key: str, width: int, read: Callable[[str | None], Iterable[int]]
) -> IntColumn:
    """Return what `read` makes of an annotation on each node, shape (width, n).

    Args:
        view: the nodes.
        key: of the annotation.
        width: how many numbers `read` gives.
        read: gets a text, None for a node without the annotation; called once per distinct one.
    """
    column = annotation_column(view, key)
    table = np.zeros((width, len(column.counts)), np.int64)
    for number in np.flatnonzero(column.counts).tolist():
        table[:, number] = tuple(read(column.values[number]))
    return table.take(column.codes, axis=1)
