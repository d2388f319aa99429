"""What replicas of a Deployment ask for themselves holds, at whatever moment they are decided.

24 nodes in two zones are free, some busier than others; four are idle and have a soft taint: by
`balanced` alone these are the best, and among the others a few.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from engine.model.decision import ADVICE_ANNOTATION
from engine.model.gang import POD_GROUP_LABEL
from engine.model.hold import HOLD_GATE, RELEASED_ANNOTATION
from tests.e2e.cluster import Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.gangs import Gangs
from tests.e2e.installed import Installed, installed
from tests.e2e.metrics_server import MetricsServer
from tests.e2e.nodes import Nodes
from tests.e2e.test_binding import binding
from tests.e2e.workloads import deployment

pytestmark = pytest.mark.usefixtures("crds")

BALANCED = Path(__file__).parents[2] / "policies" / "balanced" / "policy.yaml"
ZONE = "topology.kubernetes.io/zone"
SOFT = {"key": "example.com/rather-not", "effect": "PreferNoSchedule"}
FREE, TAINTED, REPLICAS = 24, 4, 12


@dataclass(frozen=True, slots=True)
class Moment:
    """When pods are decided.

    Attributes:
        placement: of the policy.
        annotation: what each pod says of it.
        options: of `stowplan serve`.
        is_bound_by_us: whether the API server asks about bindings.
        is_gang: whether the replicas are one gang, for which room is reserved.
    """

    placement: str
    annotation: str
    options: tuple[tuple[str, str], ...] = ()
    is_bound_by_us: bool = True
    is_gang: bool = False

    @property
    def holds(self) -> bool:
        return ("hold", "true") in self.options


HOLD = (("hold", "true"), ("hold-seconds", "60"))
MOMENTS: Final = {
    "advice": Moment("{ at: Admission }", ADVICE_ANNOTATION, is_bound_by_us=False),
    "binding": Moment("{ at: Binding }", "stowplan.dev/binding"),
    "held for its turn, then binding": Moment(
        "{ at: Binding, releaseInOrder: true }", "stowplan.dev/binding", HOLD
    ),
    "held for preemption, then binding": Moment(
        "{ at: Binding, preemption: On }",
        "stowplan.dev/binding",
        (*HOLD, ("preemption", "true")),
    ),
    "gang": Moment("{ at: Binding }", RELEASED_ANNOTATION, HOLD, is_gang=True),
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
async def test_replicas_are_spread_keep_to_a_zone_and_off_soft_taints(
    moment: Moment,
    cluster: Cluster,
    control_plane: ControlPlane,
    metrics_api: MetricsServer,
    nodes: Nodes,
    namespace: str,
    tmp_path: Path,
) -> None:
    for number in range(FREE + TAINTED):
        is_free, name = number < FREE, f"node-{number:02}"
        labels, taints = {ZONE: "ab"[number % 2]}, () if is_free else (SOFT,)
        await nodes.add(name, {"cpu": "8"}, labels=labels, taints=taints)
        busy = 800 + number * 7 % FREE * 100 if is_free else 0  # 10 to 39 % of 8 cores
        metrics_api.nodes[name] = {"cpu": f"{busy}m", "memory": "1Gi"}
    await nodes.known(namespace)
    tainted = set(nodes.names[FREE:])
    in_b = {name for number, name in enumerate(nodes.names[:FREE]) if number % 2}
    stage = Stage(cluster, namespace)
    stock = set(await stage.nodes_of("stock"))
    assert stock.isdisjoint(tainted)
    async with stage.installed(control_plane, tmp_path, moment) as stowplan:
        await stowplan.knows_usage(FREE + TAINTED)
        spread = set(await stage.nodes_of("spread", moment))
        preferring = await stage.nodes_of("zonal", moment, affinity=_preferring("b"))
    print(f"nodes used: {len(stock)} by the scheduler alone, {len(spread)}, in zone b {preferring}")
    assert len(spread) >= len(stock) - 1
    assert spread.isdisjoint(tainted)
    assert in_b.issuperset(preferring)
    assert len(set(preferring)) >= REPLICAS / 2  # they arrive at once, and may share a decision


@dataclass(frozen=True, slots=True)
class Stage:
    """A namespace in which one Deployment after the other comes, and goes."""

    cluster: Cluster
    namespace: str

    @asynccontextmanager
    async def installed(
        self, control_plane: ControlPlane, folder: Path, moment: Moment
    ) -> AsyncIterator[Installed]:
        """Install stowplan with the policy `balanced`, deciding at a moment."""
        shipped, _, _ = BALANCED.read_text("utf-8").partition("  placement: ")
        text = f"{shipped}  placement: {moment.placement}\n"
        if moment.is_bound_by_us:
            async with binding(
                *(self.cluster, control_plane, folder, text), options=moment.options
            ) as stowplan:
                yield stowplan
            return
        (folder / "policy.yaml").write_text(text, encoding="utf-8")
        async with installed(
            self.cluster, control_plane, folder, [folder / "policy.yaml"]
        ) as stowplan:
            yield stowplan

    async def nodes_of(
        self, name: str, moment: Moment | None = None, affinity: Json | None = None
    ) -> Sequence[str]:
        """Return the nodes of small replicas, one for each, which are gone afterwards."""
        requests = {"cpu": "100m", "memory": "128Mi"}
        made = deployment(self.namespace, name, replicas=REPLICAS, requests=requests)
        template = made["spec"]["template"]
        template["spec"]["affinity"] = affinity or {}
        if moment is not None and moment.is_gang:
            await Gangs(self.cluster, self.namespace).define(name, REPLICAS)
            template["metadata"]["labels"][POD_GROUP_LABEL] = name
        if moment is not None and moment.holds:
            await eventually(lambda: self._is_held(template), "pods are held")
        await self.cluster.create(made)
        pods = await eventually(lambda: self._bound(name), f"{REPLICAS} replicas are bound")
        await self.cluster.delete("deployments", name, self.namespace)
        await eventually(lambda: self._gone(name), "the pods of the Deployment are gone")
        if moment is not None:
            assert all(moment.annotation in each["metadata"]["annotations"] for each in pods)
        if moment is not None and moment.is_gang:
            for each in pods:
                reserved = each["metadata"]["annotations"][RELEASED_ANNOTATION]
                assert reserved == each["spec"]["nodeName"]
        return [each["spec"]["nodeName"] for each in pods]

    async def _is_held(self, template: Json) -> bool:
        metadata = {**template["metadata"], "name": "tried", "namespace": self.namespace}
        tried = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        made = await self.cluster.create(tried, dry_run=True)
        return {"name": HOLD_GATE} in made["spec"].get("schedulingGates", ())

    async def _bound(self, name: str) -> list[Json]:
        pods = await self.cluster.list_all("pods", self.namespace, labelSelector=f"app={name}")
        bound = [each for each in pods if each["spec"].get("nodeName")]
        assert len(bound) == REPLICAS, f"{len(bound)} are bound"
        return bound

    async def _gone(self, name: str) -> bool:
        return not await self.cluster.list_all("pods", self.namespace, labelSelector=f"app={name}")


def _preferring(zone: str) -> Json:
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    preference = {"weight": 1, "preference": {"matchExpressions": [expression]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}}
