"""What is remembered between decisions on one cluster."""

from __future__ import annotations

from typing import NamedTuple

from engine.view.column_cache import ColumnCache
from engine.view.dictionary import Dictionaries
from engine.view.images import ImageIndex
from engine.view.node_aggregates import AggregateCache

_NODE_COLUMNS = 256  # one per label key, annotation or node-only expression the policies read
_POD_COLUMNS = 256  # one per rule and pod template
_POD_COLUMN_BYTES = 4 * 2**20  # fifty of those of a number on 5,000 nodes


class Caches(NamedTuple):
    """Shared by all views of a cluster; what they hold is bounded, and changes no answer.

    Attributes:
        node_columns: see `ClusterView.node_column`.
        pod_columns: see `ClusterView.pod_column`.
        common: see `ClusterView.common`.
        dictionaries: see `dictionary_column`.
        images: see `image_column`.
    """

    node_columns: ColumnCache
    pod_columns: ColumnCache
    common: AggregateCache
    dictionaries: Dictionaries
    images: ImageIndex

    @classmethod
    def empty(cls) -> Caches:
        """Return caches that remember nothing yet."""
        return cls(
            ColumnCache(_NODE_COLUMNS),
            ColumnCache(_POD_COLUMNS, _POD_COLUMN_BYTES),
            AggregateCache(_NODE_COLUMNS),
            Dictionaries(_NODE_COLUMNS),
            ImageIndex(),
        )
