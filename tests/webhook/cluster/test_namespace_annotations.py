from __future__ import annotations

import msgspec

from engine.model import api
from engine.quota import mode_of
from engine.view import ClusterState
from webhook.cluster.watch.event_applier import EventApplier


def test_a_namespace_brings_its_quota_mode() -> None:
    state = ClusterState()
    applier = EventApplier(state)
    annotations = {"stowplan.dev/quota-mode": "Audit", "example.com/other": "Off"}
    for said in (annotations, {}):
        wire = {"metadata": {"name": "shop", "annotations": said}}
        applier.namespace(msgspec.convert(wire, api.Namespace))
        assert mode_of(state.view(), "shop", "Enforce") == ("Audit" if said else "Enforce")
