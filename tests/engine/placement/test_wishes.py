"""Advice keeps what the pod itself asks for, as the scheduler adds it up."""

from __future__ import annotations

import jsonpatch
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.model import api
from engine.model.node import Node
from engine.model.well_known import HOSTNAME_LABEL
from engine.placement import encode
from engine.view import ClusterState
from tests.engine.placement.cluster import (
    Labels,
    decided,
    preference,
    preferred,
    request_of,
    with_affinity,
)

ZONE = "topology.kubernetes.io/zone"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SOFT = (api.Taint(key="spot", effect="PreferNoSchedule"),)
COUNTS = st.lists(
    st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from("ab")), min_size=1, max_size=20
)
"""Total, soft taint and zone of nodes."""


@given(COUNTS, st.lists(st.integers(1, 100), max_size=3))
def test_users_terms_keep_half_and_soft_taints_are_not_outvoted(
    nodes: list[tuple[int, bool, str]], users: list[int]
) -> None:
    state, scores, labels = ClusterState(), dict[str, int](), dict[str, Labels]()
    for i, (total, is_tainted, zone) in enumerate(nodes):
        name = f"n{i}"
        labels[name], scores[name] = {HOSTNAME_LABEL: name, ZONE: zone}, total
        allocatable = {"cpu": 4000}
        taints = SOFT if is_tainted else ()
        state.set_node(Node(name=name, labels=labels[name], allocatable=allocatable, taints=taints))
    view = state.view()
    in_a = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    terms = [{"weight": weight, "preference": in_a} for weight in users]
    request = request_of(with_affinity({PREFERRED: terms} if terms else None))
    patch = encode(decided(view, scores), request, view)
    after = jsonpatch.apply_patch(msgspec.json.decode(request.raw), list(patch.operations))
    ours = [term for term in preferred(after) if term not in terms]

    given_to = {name: preference(ours, name, of) for name, of in labels.items()}
    assert max(given_to.values()) <= (sum(users) or 100)
    assert all(1 <= term["weight"] <= 100 for term in ours)
    if not all(is_tainted for _, is_tainted, _ in nodes):
        tainted = [f"n{i}" for i, (_, is_tainted, _) in enumerate(nodes) if is_tainted]
        assert not any(given_to[name] for name in tainted)
