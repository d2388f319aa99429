"""Which pods this replica's watch has shown, so that their reservations count no longer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from engine.model.pod import Pod

_MOST_PODS = 32_768  # some 8 MiB; one that is forgotten counts twice until the API server is asked


class ObservedPods:
    """The pods seen last where they may have reservations; deleted ones stay for a while.

    Args:
        most: pods remembered.

    Attributes:
        matters: whether pods of a namespace may have reservations; asked for each event.
    """

    def __init__(self, *, most: int = _MOST_PODS) -> None:
        self.matters: Callable[[str], bool] = lambda _: True
        self._most = most
        self._versions: OrderedDict[str, int] = OrderedDict()  # by uid, oldest first

    def pod_changed(self, pod: Pod, version: int) -> None:
        """Record a pod of a watch event."""
        self.observe(pod.namespace, pod.uid, version)

    def pod_deleted(self, namespace: str, name: str) -> None:
        """Keep what is known of a deleted pod: its reservation may outlive it."""

    def observe(self, namespace: str, uid: str, version: int) -> None:
        """Take note of a pod as it was at a resourceVersion."""
        if not self.matters(namespace):
            return
        self._versions[uid] = max(version, self._versions.get(uid, 0))
        self._versions.move_to_end(uid)
        if len(self._versions) > self._most:
            self._versions.popitem(last=False)

    def version(self, uid: str) -> int:
        """Return the newest version at which a pod was seen, 0 if it was not."""
        return self._versions.get(uid, 0)
