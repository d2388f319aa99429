"""The nodes that a DaemonSet has a pod on."""

from __future__ import annotations

from typing import Final

from engine.model.pod import Pod
from engine.model.time import Micros
from engine.plugins import PLUGINS, Filter
from engine.view import ClusterView


def _filter(name: str) -> Filter:
    plugin = PLUGINS[name]
    assert plugin.filter is not None  # noqa: S101 - both are filters
    found: Filter = plugin.filter(plugin.args())
    return found


_FILTERS: Final = (_filter("NodeAffinity"), _filter("TaintToleration"))


def daemon_nodes(pod: Pod, view: ClusterView, now: Micros) -> list[str]:
    """Return the nodes that the DaemonSet controller creates a pod for, by name.

    Those that the pod's selector and affinity match, and whose taints it tolerates; whether they
    have room is for the scheduler to see.

    Source: Kubernetes, pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
    """
    fits = view.valid.copy()
    for each in _FILTERS:
        fits &= ~each.filter(pod, view, now).rejects
    return sorted(view.names[row] for row in fits.nonzero()[0].tolist())
