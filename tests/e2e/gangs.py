"""Gangs on the stock scheduler: PodGroups, their members, and what became of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.model.gang import POD_GROUP_LABEL
from engine.model.hold import HOLD_FOR_GANG, HOLD_GATE, HOLD_REASONS_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.workloads import pod

GROUP = "scheduling.x-k8s.io"
POD_GROUPS = Path(__file__).parent / "crds" / f"podgroups.{GROUP}.yaml"


@dataclass(frozen=True, slots=True)
class Gangs:
    """The gangs of one namespace."""

    cluster: Cluster
    namespace: str

    async def define(
        self, name: str, minimum: int, *, seconds: int = 60, **annotations: str
    ) -> None:
        """Create a PodGroup; annotations are ours, with underscores."""
        ours = {
            f"stowplan.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
        }
        await self.cluster.create(
            {
                "apiVersion": f"{GROUP}/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": self.namespace, "annotations": ours},
                "spec": {"minMember": minimum, "scheduleTimeoutSeconds": seconds},
            }
        )

    async def join(self, gang: str, *names: str, cpu: str = "3", is_held: bool = True) -> None:
        """Create members.

        Args:
            gang: that they name.
            names: of the pods.
            cpu: of each.
            is_held: whether they have our gate from the start, whatever becomes of the webhook.
        """
        await asyncio.gather(
            *(self.cluster.create(self.member(gang, name, cpu, is_held=is_held)) for name in names)
        )

    def member(self, gang: str, name: str, cpu: str, *, is_held: bool = True) -> Json:
        """Return a member."""
        made = pod(self.namespace, name, requests={"cpu": cpu})
        made["metadata"]["labels"] = {POD_GROUP_LABEL: gang}
        if is_held:
            made["metadata"]["annotations"] = {HOLD_REASONS_ANNOTATION: HOLD_FOR_GANG}
            made["spec"]["schedulingGates"] = [{"name": HOLD_GATE}]
        return made

    async def pods(self, gang: str = "") -> list[Json]:
        """Return the pods of the namespace, or the members of a gang."""
        found = await self.cluster.list_all("pods", self.namespace)
        return [each for each in found if not gang or gang_in(each) == gang]

    async def nodes_of(self, gang: str) -> Counter[str]:
        """Return how many members of a gang are bound to each node."""
        found = (each["spec"].get("nodeName", "") for each in await self.pods(gang))
        return Counter(filter(None, found))

    async def all_bound(self, gang: str, count: int) -> list[Json]:
        """Wait until so many members are bound."""

        async def bound() -> list[Json]:
            pods = await self.pods(gang)
            waiting = [each["metadata"]["name"] for each in pods if not is_bound(each)]
            assert not waiting, f"{waiting} wait"
            assert len(pods) == count, f"{len(pods)} members exist"
            return pods

        return await eventually(bound, f"all members of {gang} are bound")

    async def condition(self, name: str) -> str:
        """Return the message of our condition of a pod, "" for none."""
        found = await self.cluster.get("pods", name, self.namespace)
        conditions = found["status"].get("conditions", [])
        messages = (each["message"] for each in conditions if each["type"].startswith("stowplan"))
        return next(messages, "")

    async def events(self, reason: str) -> list[str]:
        """Return the messages of Events on PodGroups."""
        events = await self.cluster.list_all("events", self.namespace)
        return [each["message"] for each in events if each["reason"] == reason]


def gang_in(found: Json) -> str:
    """Return the gang that a pod names, "" for none."""
    labels: dict[str, str] = found["metadata"].get("labels") or {}
    return labels.get(POD_GROUP_LABEL, "")


def is_bound(found: Json) -> bool:
    """Return whether a pod has a node."""
    return bool(found["spec"].get("nodeName"))


def nominated(found: Json) -> str:
    """Return the node that a pod is nominated to, "" for none."""
    node: str = found["status"].get("nominatedNodeName", "")
    return node
