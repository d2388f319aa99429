"""Nominations of held pods: the one place that counts a pod on a node ahead of the watch.

A pod counts on one node at most. Releases, gangs and evictions ask here, whoever of them nominates
it; what they write on the pod goes by `PodWriter`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.model.pod import Pod
from engine.release import HeldPod, HeldPodRegistry
from engine.view import ClusterState
from webhook.placement.held_pods import HeldPods

_log = logging.getLogger(__name__)


class Nominations:
    """The nodes that held pods count on in the view.

    Args:
        state: the view's.
        held: the pods that are held.
        pods: the records of these, and of the released ones.
    """

    def __init__(self, state: ClusterState, held: HeldPods, pods: HeldPodRegistry) -> None:
        self._state = state
        self._held = held
        self._pods = pods

    def nominate(self, pod: Pod, node_name: str) -> None:
        """Count a pod on a node, in place of the one that it counted on; "" for none.

        A pod that was withdrawn in between still names the node of its last nomination.
        """
        before = self._state.assumed_node(pod.key) or pod.nominated_node_name
        if node_name and before not in {"", node_name}:
            _log.info("pod `%s` is nominated to `%s`, not to `%s`", pod.key, node_name, before)
        self._count(pod, node_name)

    def withdraw(self, pod: Pod) -> None:
        """Count a pod on no node."""
        self._count(pod, "")

    def follow(self, held: HeldPod) -> None:
        """Count a pod on the node that the watch shows it nominated to, if any."""
        now = self._held.now(held)
        self._count(held.pod, "" if now is None else now.pod.nominated_node_name)

    @contextmanager
    def set_aside(self, pods: Sequence[HeldPod]) -> Iterator[None]:
        """Count pods on no node for a moment: they compete with others, not with themselves."""
        nodes = {held.key: self._state.assumed_node(held.key) for held in pods}
        counted = [(held.pod, nodes[held.key]) for held in pods if nodes[held.key]]
        for pod, _ in counted:
            self._count(pod, "")
        try:
            yield
        finally:
            for pod, node_name in counted:
                self._count(pod, node_name)

    def _count(self, pod: Pod, node_name: str) -> None:
        """Count a pod, unless another one has its name by now: the view knows pods by names."""
        known = self._held.get(pod.key) or self._pods.by_key(pod.key)
        if known is None or known.pod.uid == pod.uid:
            self._state.nominate(pod.key, node_name)
        else:
            _log.info("pod `%s` is another one by now: it keeps its nomination", pod.key)
