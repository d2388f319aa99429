"""Domains: the nodes that share the value of a label."""

from __future__ import annotations

import numpy as np

from engine.view import MISSING, IntColumn, LabelColumn


def sums_of_domains(label: LabelColumn, counts: IntColumn) -> IntColumn:
    """Return for each row the sum over all rows of its domain, 0 where it is in none, shape (n,).

    Args:
        label: the label of each row.
        counts: what is summed, shape (n,); sums below 2**53 are exact.
    """
    sums = np.bincount(label.codes, counts, minlength=len(label.book)).astype(np.int64)
    sums[MISSING] = 0
    return label.spread(sums)
