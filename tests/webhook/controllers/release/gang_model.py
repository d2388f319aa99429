"""State machine of gangs: two gangs and single pods share the nodes of a `HeldCluster`."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from engine.model.gang import (
    MATCH_POLICY_ANNOTATION,
    MIN_AVAILABLE_ANNOTATION,
    NAME_ANNOTATION,
    ON_FAILURE_ANNOTATION,
    WAITING_TIME_ANNOTATION,
    WHEN_NO_ROOM_ANNOTATION,
)
from engine.model.hold import HOLD_GATE, HOLD_REASONS_ANNOTATION
from tests.fake_api_server.store import Object
from tests.webhook.controllers.release.cluster_model import HeldCluster
from tests.webhook.controllers.release.memory_server import Call, sent_patch
from tests.webhook.controllers.release.scheduler_model import (
    gates_of,
    node_of,
    nominated_in,
    runs,
)
from webhook.controllers.gang import GangState

GANGS: Final = {"p-b": "small", "p-c": "small", "p-d": "large", "p-e": "large", "p-f": "large"}
"""Of pods by name; the others are single."""

MINIMUM: Final = {"small": 2, "large": 3}
PARTIAL_SECONDS: Final = 5
"""In which the members of a gang are to be bound."""


def gang_in(pod: Object) -> str:
    """Return the gang that a pod names, "" for none."""
    annotations = pod["metadata"].get("annotations") or {}
    return str(annotations.get(NAME_ANNOTATION, ""))


class GangCluster(HeldCluster):
    """Pods that are released with their gangs, or never; and single ones."""

    @initialize()
    def more_nodes(self) -> None:
        self.node_comes("node-c", 6)

    @rule(gang=st.sampled_from(sorted(MINIMUM)), cpu=st.integers(1, 3))
    def gather(self, gang: str, cpu: int) -> None:
        """Create all members of a gang that are missing."""
        for name in (name for name, of in GANGS.items() if of == gang):
            self._create(name, cpu, 0, [HOLD_GATE])
        self.settle()

    def labels_of(self, name: str, gates: list[str]) -> tuple[str, dict[str, str]]:
        gang = GANGS.get(name)
        if gang is None:
            return "shop", {}
        return "shop", {
            NAME_ANNOTATION: gang,
            MIN_AVAILABLE_ANNOTATION: str(MINIMUM[gang]),
            MATCH_POLICY_ANNOTATION: "waiting-and-running",
            WAITING_TIME_ANNOTATION: f"{PARTIAL_SECONDS}s",
            ON_FAILURE_ANNOTATION: "Recreate" if gang == "large" else "Keep",
            WHEN_NO_ROOM_ANNOTATION: "Release" if gang == "small" else "Wait",
            **({HOLD_REASONS_ANNOTATION: "placement,gang"} if gates else {}),
        }

    # What must be true.

    def must_be_released(self, pod: Object) -> bool:
        return not gang_in(pod)

    def check_write(self, call: Call) -> None:
        super().check_write(call)
        replica = self.sender(call)
        pod = None if replica is None else replica.pods.get(call.target.name)
        if replica is None or pod is None or call.target.subresource == "status":
            return
        patch = sent_patch(call)
        if not (_is_release(patch) and gang_in(pod) and HOLD_GATE in gates_of(pod)):
            return
        gang = gang_in(pod)
        members = [each for each in replica.pods.values() if gang_in(each) == gang]
        if any(not gates_of(each) for each in members) or _is_without_room(patch):
            return
        prepared = sum(bool(nominated_in(each)) for each in members)
        if prepared < MINIMUM[gang]:
            self.problems.append(f"a member of {gang} is released, {prepared} are nominated")

    def drain(self) -> None:
        self.is_ready_at_the_end = True  # without policies nobody looks at gangs
        super().drain()
        reserving = sum(each.gangs.counts[GangState.RESERVING] for each in self.replicas)
        keeping = self.keeping()
        if len(keeping) > reserving:
            self.problems.append(f"{keeping} are held and keep room")
        for gang, least in MINIMUM.items():
            self._check_rest(gang, least)
        assert not self.problems, self.problems

    def keeping(self) -> dict[str, list[str]]:
        """Return the held pods that are nominated, by gang."""
        found: dict[str, list[str]] = {}
        for name, pod in self.server.pods().items():
            if gates_of(pod) == [HOLD_GATE] and nominated_in(pod):
                found.setdefault(gang_in(pod), []).append(name)
        return found

    def _check_rest(self, gang: str, least: int) -> None:
        """Check that nothing is left of a gang that was started in vain."""
        members = [each for each in self.server.pods().values() if gang_in(each) == gang]
        bound = sum(bool(node_of(each)) and runs(each) for each in members)
        held = sum(gates_of(each) == [HOLD_GATE] for each in members)
        if bound >= least and held:
            self.problems.append(f"{held} members of {gang} wait, although it runs")


def _is_release(patch: object) -> bool:
    """Return whether a patch removes a gate."""
    return isinstance(patch, list) and any(
        operation["op"] == "remove" and operation["path"].startswith("/spec/schedulingGates")
        for operation in patch
    )


def _is_without_room(patch: list[Object]) -> bool:
    """Return whether a release says that the gang has no room."""
    return any("has no room" in str(operation.get("value", "")) for operation in patch)
