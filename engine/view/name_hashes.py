"""An order of nodes that is the same in every replica: rows come as nodes became known to each."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.model.domain import Domain

if TYPE_CHECKING:
    from engine.view.cluster_view import ClusterView


def name_hashes(view: ClusterView) -> NDArray[np.uint64]:
    """Return the hash of each node's name, shape (n,).

    What is alike is put in order by it, not by name: the first names of a cluster are often those
    of one zone.
    """
    return view.node_column(
        "name hash",
        (Domain.NODES,),
        lambda part: np.fromiter(map(hash_of, part.names), np.uint64, len(part)),
    )


def hash_of(text: str) -> int:
    """Return 64 well mixed bits, the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
