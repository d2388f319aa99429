from __future__ import annotations

import numpy as np

from engine.model.well_known import HOSTNAME_LABEL
from engine.placement.hostnames import Hostnames
from tests.engine.placement.cluster import view_of


def test_a_hostname_is_listable_only_if_unique() -> None:
    nodes = {
        "plain": {HOSTNAME_LABEL: "plain"},
        "renamed": {HOSTNAME_LABEL: "host-7"},
        "bare": {},
        "twin-1": {HOSTNAME_LABEL: "twin"},
        "twin-2": {HOSTNAME_LABEL: "twin"},
    }
    view = view_of(nodes)
    rows = np.array([view.rows[name] for name in nodes])
    hostnames = Hostnames(view)
    assert hostnames.listable(rows).tolist() == [True, True, False, False, False]
    assert hostnames.of(rows) == ["plain", "host-7", None, None, None]


def test_the_only_node_without_a_hostname_is_not_listable() -> None:
    view = view_of({"bare": {}, "other": {HOSTNAME_LABEL: "o"}})
    assert Hostnames(view).of(np.array([view.rows["bare"]])) == [None]
