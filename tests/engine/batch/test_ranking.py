"""Ties among candidates are broken as the decision for a single pod breaks them."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine.batch.ranking import TiedPlaces
from engine.model.ranking import tie_mask
from engine.pipeline import tie_factor
from tests.engine.measured_cluster import pod

# Most share the best total.
_totals = st.lists(st.sampled_from([5, 5, 5, 4]), min_size=1, max_size=60) | st.integers(
    60, 90
).map(lambda places: [5] * places)


def _first(totals: list[int], hashes: list[int], name: str) -> int:
    """Return the place that comes first of those with the best total, by definition."""
    mask, factor = tie_mask(max(totals), len(totals)), tie_factor(pod(name))
    best = [place for place, total in enumerate(totals) if total == max(totals)]
    return min(best, key=lambda place: (hashes[place] * factor & mask, place))


@given(_totals, st.randoms(use_true_random=False), st.data())
def test_each_pod_gets_the_best_place_of_its_own_order(
    totals: list[int], random: Random, data: st.DataObject
) -> None:
    hashes = [random.getrandbits(64) for _ in totals]
    tied = TiedPlaces(np.array(totals), np.array(hashes, np.uint64), len(totals))
    pods = [pod(f"p{i}") for i in range(len(totals) + 1)]
    for i, each in enumerate(pods):
        first = tied.first(each)
        assert (first, totals[first]) == (_first(totals, hashes, f"p{i}"), tied.total)
        totals[first] = data.draw(st.sampled_from([3, 3, 3, tied.total, tied.total + 1]))
        can = tied.keep(totals[first])
        assert can == (max(totals) == tied.total)
        if not can:
            break
