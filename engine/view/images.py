"""Which nodes hold which container image.

A node names some 50 images, a pod asks for a few: so no column is kept per image, but an index from
names to rows, and columns are made of it when they are asked for.
"""

from __future__ import annotations

from array import array
from typing import cast

import numpy as np

from engine.model import api
from engine.model.domain import Domain
from engine.view.axis import IntColumn, capped
from engine.view.cluster_view import ClusterView

_NODES = (Domain.NODES,)
_IN_MEMORY = "image index"


class ImageIndex:
    """The rows of each image, by any of its names.

    Views of one cluster share it. Each brings it up to date, though no rule may need it: that costs
    10 us for a new node and next to nothing for others, where a first question about 5,000 nodes
    would have to wait for 50 ms.
    """

    def __init__(self) -> None:
        self._version = -1  # at which any node last changed
        self._held: list[tuple[api.ContainerImage, ...]] = []  # by row, as it is indexed
        self._rows: dict[api.ContainerImage, array[int]] = {}
        self._named: dict[str, list[api.ContainerImage]] = {}

    def catch_up(self, view: ClusterView) -> bool:
        """Index a view as a whole; says whether it could, for it cannot go back to old nodes."""
        latest = view.latest[Domain.NODES]
        if latest < self._version:
            return False
        if latest > self._version:
            self._held.extend([()] * (len(view) - len(self._held)))
            for row in view.changed_since(self._version, _NODES).tolist():
                node = view.nodes[row]
                self._put(row, node.images if node else ())
        self._version = latest
        return True

    def sizes(self, name: str) -> IntColumn:
        """Return the size of an image on each row, in bytes, -1 where it is not, shape (n,).

        Should a node hold two images of one name, the greater one counts.
        """
        sizes = np.full(len(self._held), -1, np.int64)
        for image in self._named.get(name, ()):
            rows = np.frombuffer(self._rows[image], np.intc)
            sizes[rows] = np.maximum(sizes[rows], max(capped(image.size_bytes), 0))
        return sizes

    def _put(self, row: int, images: tuple[api.ContainerImage, ...]) -> None:
        """Index a row as it now is."""
        if images == self._held[row]:
            return  # most changes of a node are of something else
        old, new = set(self._held[row]), set(images)
        for image in old - new:
            rows = self._rows[image]
            rows.remove(row)
            if not rows:
                self._forget(image)
        for image in new - old:
            if image not in self._rows:
                self._rows[image] = array("i")
                for name in set(image.names or ()):
                    self._named.setdefault(name, []).append(image)
            self._rows[image].append(row)
        self._held[row] = images

    def _forget(self, image: api.ContainerImage) -> None:
        """Take an image out that no node holds any more."""
        del self._rows[image]
        for name in set(image.names or ()):
            self._named[name].remove(image)
            if not self._named[name]:
                del self._named[name]


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
    sizes = _index(view).sizes(name)
    holders, nodes = int((sizes >= 0).sum()), int(view.valid.sum())
    return np.maximum(sizes, 0), holders / max(nodes, 1)


def _index(view: ClusterView) -> ImageIndex:
    """Return an index of a whole view: the shared one, or one of its own if it is an old view."""
    if view.caches is not None and view.caches.images.catch_up(view):
        return view.caches.images
    if _IN_MEMORY not in view.memory:
        own = ImageIndex()
        own.catch_up(view)
        view.memory[_IN_MEMORY] = own
    return cast("ImageIndex", view.memory[_IN_MEMORY])
