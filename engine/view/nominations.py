"""Nominations: the nodes on which held and released pods count until they are bound.

Only the scheduler and we may write the status of a pod, so a nominated node is trusted. Gates and
annotations may be anyone's: on their own they count nowhere.
"""

from __future__ import annotations

from msgspec.structs import replace

from engine.model.hold import RELEASED_ANNOTATION
from engine.model.pod import Pod


class Nominations:
    """The nodes that pods are nominated to: as seen, or as decided here and not seen yet.

    What was decided here holds until the pod is seen nominated to another node than before: then
    the write has arrived, or somebody else has written since. Memory follows the pods that are
    nominated, and those decided here.
    """

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._decided: dict[str, str] = {}  # "" for nowhere; never what was seen

    def current(self, pod: Pod) -> Pod:
        """Return a pod that was just seen, and is not bound, as nominated to where it counts."""
        if not (pod.nominated_node_name or self._seen or self._decided):
            return pod  # nearly always
        key, seen = pod.key, pod.nominated_node_name
        if seen != self._seen.get(key, ""):
            self.forget(key)
            if seen:
                self._seen[key] = seen
        decided = self._decided.get(key)
        return pod if decided is None else replace(pod, nominated_node_name=decided)

    def decide(self, key: str, node_name: str) -> None:
        """Nominate a pod to a node, "" for none, ahead of what will be seen of it."""
        if node_name == self._seen.get(key, ""):
            self._decided.pop(key, None)
        else:
            self._decided[key] = node_name

    def forget(self, key: str) -> None:
        """Drop a pod that is bound or gone."""
        self._seen.pop(key, None)
        self._decided.pop(key, None)


def counts_as_nominated(pod: Pod) -> bool:
    """Return whether a pod that is not bound counts on its nominated node.

    Not one of others: the scheduler preempts pods there for it, and those still count.
    """
    return bool(pod.nominated_node_name) and (pod.is_held or RELEASED_ANNOTATION in pod.annotations)
