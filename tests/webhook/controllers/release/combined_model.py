"""State machine of all at once: gangs and single pods, quotas, reclaim and preemption.

Gangs wait for quota with all their members, quotas take back what others borrow, and pods of high
priority, of a namespace without a quota, take the room of those of low priority, as do gangs.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from tests.fake_api_server.store import Change, Object
from tests.webhook.controllers.release.gang_model import GANGS, GangCluster, gang_in
from tests.webhook.controllers.release.memory_server import Call
from tests.webhook.controllers.release.queue_model import BOUNDS, namespace_of
from tests.webhook.controllers.release.reclaim_model import ReclaimCluster, is_reclaimed_for
from tests.webhook.controllers.release.replica_model import RECLAIM_AFTER_SECONDS
from tests.webhook.controllers.release.scheduler_model import (
    cpu_of,
    gates_of,
    node_of,
    nominated_in,
    object_after,
)

UNLIMITED = ("x-a", "x-b")
"""Names of pods that no quota limits."""

_CALM_SECONDS = 120.0
"""After which, without faults and tenants, everything has come to its end."""

_REST_SECONDS = 90.0
"""For which nothing changes any more then: longer than any step is waited for."""


class CombinedCluster(ReclaimCluster, GangCluster):
    """Two quotas, each with a gang and single pods, and urgent pods beside them."""

    preempts = True

    def labels_of(self, name: str, gates: list[str]) -> tuple[str, dict[str, str]]:
        if name in UNLIMITED:
            return "free", {HOLD_REASONS_ANNOTATION: "placement"} if gates else {}
        return super().labels_of(name, gates)

    @initialize()
    def more_nodes(self) -> None:
        """Add one that is too small for a gang."""
        self.node_comes("node-c", 2)

    @rule(name=st.sampled_from(UNLIMITED), cpu=st.integers(1, 4))
    def want_urgently(self, name: str, cpu: int) -> None:
        """Create a pod that others are evicted for, and wait as long as that takes."""
        self._create(name, cpu, 10, [HOLD_GATE])
        self.time_passes(6.0)

    @rule(gang=st.sampled_from(["small", "large"]), cpu=st.integers(1, 2))
    def gather_for_long(self, gang: str, cpu: int) -> None:
        """Let a gang wait for as long as a reclaim takes to begin."""
        self.gather(gang, cpu)
        self.time_passes(RECLAIM_AFTER_SECONDS + 4.0)

    @rule(gang=st.sampled_from(["small", "large"]), cpu=st.integers(1, 2))
    def gather_urgently(self, gang: str, cpu: int) -> None:
        """Create the members of a gang that others are evicted for."""
        for name in (name for name, of in GANGS.items() if of == gang):
            self._create(name, cpu, 5, [HOLD_GATE])
        self.time_passes(6.0)

    # What must be true.

    def charged(self) -> Counter[str]:
        return Counter({name: used for name, used in super().charged().items() if name in BOUNDS})

    def admits(self, name: str, cpu: int, gates: list[str]) -> bool:
        return name in UNLIMITED or super().admits(name, cpu, gates)

    def check_eviction(self, call: Call) -> None:
        """Check whom it concerns: what is left of a gang that failed may be anybody."""
        victim = self.server.pods().get(call.target.name)
        if victim is not None and not gang_in(victim):
            super().check_eviction(call)

    def may_be_evicted_for(self, preemptor: Object, victim: Object) -> bool:
        if namespace_of(preemptor) in BOUNDS and namespace_of(preemptor) != namespace_of(victim):
            return True
        return bool(preemptor["spec"]["priority"] > victim["spec"]["priority"])

    def idle(self) -> set[str]:
        return set() if self._do_gangs_wait() else super().idle()

    def promised(self) -> set[str]:
        return set() if self._do_gangs_wait() else super().promised()

    def _do_gangs_wait(self) -> bool:
        """Return whether members of a gang are held: then the order among all is not so simple."""
        return any(gang_in(pod) and gates_of(pod) for pod in self.server.pods().values())

    def drain(self) -> None:
        super().drain()
        if self.problems:
            return
        self.pass_time(_CALM_SECONDS, step=5.0)
        log = self.server.changes["pods"]
        seen = len(log)
        self.pass_time(_REST_SECONDS, step=5.0)
        restless = [text for change in log[seen:] if (text := _moved(change))]
        assert not restless, f"there is no end: {restless}"
        nominated = [
            name
            for name, pod in self.server.pods().items()
            if nominated_in(pod) and gates_of(pod) == [HOLD_GATE]
            if is_reclaimed_for(pod)
        ]
        assert not nominated, f"{nominated} keep room that nobody makes"


def _moved(change: Change) -> str:
    """Return what has become of a pod with a change, "" where that is nothing but a condition."""
    before, after = object_after(change.before), object_after(change.after)
    parts = ["gone" if each is None else _place(each) for each in (before, after)]
    return "" if parts[0] == parts[1] else f"{change.key.name}: {' -> '.join(parts)}"


def _place(pod: Object) -> str:
    # A gang that waits reserves room now and then.
    is_waiting = gang_in(pod) and gates_of(pod) and not is_reclaimed_for(pod)
    place = node_of(pod) or ("waiting" if is_waiting else f"nominated to `{nominated_in(pod)}`")
    gates = ", held" if gates_of(pod) else ""
    return f"{cpu_of(pod)} cores, {place}{gates}"
