"""A model of the stock scheduler as held pods meet it: nominations, gates, priorities, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from tests.fake_api_server.store import Change, Object
from tests.webhook.controllers.release.memory_server import MemoryServer


def cpu_of(pod: Object) -> int:
    """Return the cores that a pod requests."""
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def cores_of(node: Object) -> int:
    """Return the cores that a node offers."""
    return int(node["status"]["allocatable"]["cpu"])


def gates_of(pod: Object) -> list[str]:
    """Return the names of the scheduling gates of a pod."""
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def node_of(pod: Object) -> str:
    """Return the node that a pod is bound to, "" for none."""
    return str(pod["spec"].get("nodeName", ""))


def nominated_in(pod: Object) -> str:
    """Return the nominated node of a pod, "" for none."""
    return str((pod.get("status") or {}).get("nominatedNodeName", ""))


def runs(pod: Object) -> bool:
    """Return whether a pod takes room where it is bound."""
    return (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}


class SchedulerModel:
    """A scheduler before 1.37, which forgets nominations of gated pods at a restart.

    Args:
        server: where it watches and binds.
        moment: the time of day, RFC 3339.

    Attributes:
        is_slow: whether it binds nothing for now.
        follows: whether it tries nominated nodes first.
    """

    def __init__(self, server: MemoryServer, moment: Callable[[], str]) -> None:
        self.is_slow = False
        self.follows = True
        self._server = server
        self._moment = moment
        self._seen = {"pods": 0, "nodes": 0}
        self._pods: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._nominated: dict[str, str] = {}

    def restart(self) -> None:
        """Forget everything, and list again."""
        self._seen = {kind: len(self._server.changes[kind]) for kind in self._seen}
        self._pods, self._nodes = self._server.pods(), self._server.nodes()
        waiting = {name: pod for name, pod in self._pods.items() if not gates_of(pod)}
        self._nominated = {}
        for name, pod in waiting.items():
            self._note_nomination(name, pod)

    def work(self) -> bool:
        """Watch, and try each waiting pod once, in order; return whether any was bound."""
        self._watch()
        waiting = [pod for pod in self._pods.values() if runs(pod) and not node_of(pod)]
        waiting = [pod for pod in waiting if not gates_of(pod)]
        waiting.sort(key=lambda pod: (-pod["spec"]["priority"], pod["metadata"]["uid"]))
        return sum(self._schedule(pod) for pod in waiting) > 0

    def _watch(self) -> None:
        for kind, known in (("nodes", self._nodes), ("pods", self._pods)):
            changes = self._server.changes[kind]
            for change in changes[self._seen[kind] :]:
                self._apply(change, known)
            self._seen[kind] = len(changes)

    def _apply(self, change: Change, known: dict[str, Object]) -> None:
        obj, name = object_after(change.after), change.key.name
        if obj is None:
            known.pop(name, None)
        else:
            known[name] = obj
        if known is self._pods:
            self._note_nomination(name, obj)

    def _note_nomination(self, name: str, pod: Object | None) -> None:
        self._nominated.pop(name, None)
        if pod is not None and not node_of(pod) and nominated_in(pod):
            self._nominated[name] = nominated_in(pod)

    def _schedule(self, pod: Object) -> bool:
        name = pod["metadata"]["name"]
        stored = self._server.pods().get(name)
        if stored is None or stored["metadata"]["uid"] != pod["metadata"]["uid"]:
            return False
        node_name = next(self._fitting(pod), None)
        if node_name is None:
            if nominated_in(pod):
                self._server.patch_pod(name, {"status": {"nominatedNodeName": None}}, "status")
                self._watch()
            return False
        self._server.patch_pod(name, {"spec": {"nodeName": node_name}})
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._moment()}
        bound = {"nominatedNodeName": None, "conditions": [condition]}
        self._server.patch_pod(name, {"status": bound}, "status")
        self._watch()
        return True

    def _fitting(self, pod: Object) -> Iterator[str]:
        """Yield the nodes that a pod fits on, its nominated one first."""
        nominated = self._nominated.get(pod["metadata"]["name"], "") if self.follows else ""
        for name in sorted(self._nodes, key=lambda name: (name != nominated, name)):
            node = self._nodes[name]
            if not node["spec"].get("unschedulable") and self._fits(pod, name, cores_of(node)):
                yield name

    def _fits(self, pod: Object, node_name: str, cores: int) -> bool:
        """Return whether a pod fits beside the bound ones and those nominated that go before it."""
        used = sum(
            cpu_of(other)
            for name, other in self._pods.items()
            if name != pod["metadata"]["name"] and runs(other)
            if node_of(other) == node_name
            or (
                self._nominated.get(name) == node_name
                and other["spec"]["priority"] >= pod["spec"]["priority"]
            )
        )
        return used + cpu_of(pod) <= cores


def object_after(raw: bytes | None) -> Object | None:
    """Return an object as a change leaves it, None where it is gone."""
    if raw is None:
        return None
    obj: Object = msgspec.json.decode(raw)
    return obj
