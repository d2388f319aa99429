"""Index of container images: the rows of the nodes that hold each.

A node names some 50 images, a pod needs a few: so no column is kept per image, but an index from
names to rows, from which a column is made on demand.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from engine.model import api
from engine.model.node import Node
from engine.view.axis import IntColumn, capped


class ImageIndex:
    """The rows of each image, by any of its names.

    Views of one cluster share it. Each brings it up to date, though no rule may need it: that costs
    10 us for a new node and next to nothing for others, where a first question about 5,000 nodes
    would have to wait for 50 ms.
    """

    def __init__(self) -> None:
        self._version = -1  # at which any node last changed
        self._by_row: list[tuple[api.ContainerImage, ...]] = []  # as indexed
        self._rows: dict[api.ContainerImage, array[int]] = {}
        self._named: dict[str, list[api.ContainerImage]] = {}

    def catch_up(self, nodes: Sequence[Node | None], changed: IntColumn, latest: int) -> bool:
        """Index the nodes of a whole view.

        Args:
            nodes: by row, None for a row without one.
            changed: the version at which each node last changed, (n,).
            latest: the greatest of these.

        Returns:
            Whether the index is that of the view; it cannot go back to old nodes.
        """
        if latest < self._version:
            return False
        if latest > self._version:
            self._by_row.extend([()] * (len(changed) - len(self._by_row)))
            for row in np.flatnonzero(changed > self._version).tolist():
                node = nodes[row]
                self._put(row, node.images if node else ())
        self._version = latest
        return True

    def sizes(self, name: str) -> IntColumn:
        """Return the size of an image on each row, in bytes, -1 where it is not, shape (n,)."""
        sizes = np.full(len(self._by_row), -1, np.int64)
        for image in self._named.get(name, ()):
            rows = np.frombuffer(self._rows[image], np.intc)
            sizes[rows] = max(capped(image.size_bytes), 0)  # no node has two images of one name
        return sizes

    def _put(self, row: int, images: tuple[api.ContainerImage, ...]) -> None:
        """Index a row as it now is."""
        if images == self._by_row[row]:
            return  # most changes of a node are of something else
        old, new = set(self._by_row[row]), set(images)
        for image in old - new:
            rows = self._rows[image]
            rows.remove(row)
            if not rows:
                self._remove(image)
        for image in new - old:
            if image not in self._rows:
                self._rows[image] = array("i")
                for name in set(image.names or ()):
                    self._named.setdefault(name, []).append(image)
            self._rows[image].append(row)
        self._by_row[row] = images

    def _remove(self, image: api.ContainerImage) -> None:
        """Take out an image that no node holds any more."""
        del self._rows[image]
        for name in set(image.names or ()):
            self._named[name].remove(image)
            if not self._named[name]:
                del self._named[name]
