"""What is remembered between decisions on one cluster."""

from __future__ import annotations

from typing import NamedTuple

from engine.view.column_cache import ColumnCache
from engine.view.dictionary import Dictionaries
from engine.view.images import ImageIndex

_NODE_COLUMNS = 256  # one per label key, annotation or node-only expression the policies read
_POD_COLUMNS = 256  # one per rule and pod template; 80 KiB at most at 5,000 nodes, 20 MiB in all


class Caches(NamedTuple):
    """Shared by all views of a cluster; what they hold is bounded, and changes no answer.

    Attributes:
        node_columns: see `ClusterView.node_column`.
        pod_columns: see `ClusterView.pod_column`.
        dictionaries: see `dictionary_column`.
        images: see `image_column`.
    """

    node_columns: ColumnCache
    pod_columns: ColumnCache
    dictionaries: Dictionaries
    images: ImageIndex

    @classmethod
    def empty(cls) -> Caches:
        """Return caches that remember nothing yet."""
        return cls(
            ColumnCache(_NODE_COLUMNS),
            ColumnCache(_POD_COLUMNS),
            Dictionaries(_NODE_COLUMNS),
            ImageIndex(),
        )
