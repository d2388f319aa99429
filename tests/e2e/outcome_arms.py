"""Who places the pods of `bench_outcome`: the arms, and what each of them sets up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.model.well_known import CREATION_CONDITION
from tests.e2e.chart import of_kind, rendered
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.installed import NAME, Installed, installed, leader_of
from tests.e2e.outcome_figures import STOCK, THRESHOLD
from tests.e2e.outcome_workload import EXPECTED_PERCENT, Load
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL

COMPILED, COMPILED_STRONG = "compiled-1", "compiled-100"
ADVICE, BINDING, DEAD, BALANCED = "advice", "binding", "dead", "balanced"
ADVICE_BY_LOAD = "advice-by-load"
ARMS: Final = {
    STOCK: "the stock scheduler",
    COMPILED: "LoadAware's formula as a plugin of the scheduler, of weight 1",
    COMPILED_STRONG: "the same, of weight 100",
    ADVICE: "placement at Admission",
    ADVICE_BY_LOAD: "the same, without the scheduler's own scores (schedulerScores: Off)",
    BINDING: "placement at Binding",
    BALANCED: "the same, by the change of variance of load (strategy Balanced)",
    DEAD: "the same, but every replica is killed: what the stock scheduler does must be left",
}
"""What each arm is."""

_POLICY = """
apiVersion: stowplan.dev/v1alpha1
kind: PlacementPolicy
metadata: {{name: by-load}}
spec:
  filters: [{{plugin: LoadAware, args: {{usageThresholds: {{cpu: {threshold}}}}}}}]
  scores: [{{plugin: LoadAware, args: {{resourceWeights: {{cpu: 1}}, strategy: {strategy}}}}}]
  placement: {{at: {at}{more}}}
"""
_AT: Final = {
    ADVICE: "Admission",
    ADVICE_BY_LOAD: "Admission",
    BINDING: "Binding",
    BALANCED: "Binding",
    DEAD: "Binding",
}
_OPTIONS: Final = {
    "Admission": (),
    "Binding": (("binding", "true"),),
}
_WEIGHTS: Final = {COMPILED: 1, COMPILED_STRONG: 100}
_MEASURED_LOAD = "MeasuredLoad"  # see controlplane/measured_load.go
_BINDING_SECONDS = 5
_COUNTS = ("moved", "kept", "denied", "escaped", "lost")
_ADVISED = ("placed", "shared")


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm that is set up.

    Attributes:
        stowplan: as it is installed, None where it is not.
    """

    stowplan: Installed | None = None

    @property
    def processes(self) -> list[Replica]:
        """Those of stowplan that run."""
        return [one for one in (self.stowplan.replicas if self.stowplan else ()) if one.running]

    async def counts(self) -> dict[str, int]:
        """Return what became of bindings since stowplan started, nothing where it has no say.

        Where it advises, how many pods were advised: on a busy machine others pass without.
        """
        told = await self._told()
        if not told:
            reviews = [await one.reviews("mutate") for one in self.processes]
            advised = sum(one.get(name, 0) for one in reviews for name in _ADVISED)
            return {"advised": advised} if self.processes else {}
        return {name: sum(one.get(name, 0) for one in told) for name in _COUNTS}

    async def settled(self) -> bool:
        """Return whether no replica keeps pods where they are for a while, as after a start."""
        return not any(one.get("paused") for one in await self._told())

    async def _told(self) -> list[Json]:
        """Return what each replica says about bindings, if it is asked about them."""
        return [told for one in self.processes if (told := (await one.detail()).get("bindings"))]


def policy_of(arm: str, folder: Path) -> Path:
    """Return a file with the policy of an arm."""
    path = folder / f"{arm}.yaml"
    strategy = "Balanced" if arm == BALANCED else "LeastAllocated"
    more = ', schedulerScores: "Off"' if arm == ADVICE_BY_LOAD else ""
    text = _POLICY.format(
        at=_AT[arm], more=more, threshold=round(THRESHOLD * 100), strategy=strategy
    )
    path.write_text(text, "utf-8")
    return path


@dataclass(frozen=True, slots=True)
class Stage:
    """Where arms are set up.

    Attributes:
        control_plane: beside which.
        cluster: as its admin.
        folder: for policies and logs.
        replicas: of stowplan.
    """

    control_plane: ControlPlane
    cluster: Cluster
    folder: Path
    replicas: int

    @asynccontextmanager
    async def arm(self, name: str, loads: Mapping[str, Load], namespace: str) -> AsyncIterator[Arm]:
        """Have pods placed as an arm does until the block is left.

        Args:
            name: one of `ARMS`.
            loads: of all nodes.
            namespace: of the pods.
        """
        if name in _WEIGHTS:
            async with self.control_plane.scheduling_by(_compiled(loads, _WEIGHTS[name])):
                yield Arm()
        elif name in _AT:
            async with self._installed(name, len(loads), namespace) as stowplan:
                yield Arm(stowplan)
        else:
            yield Arm()

    @asynccontextmanager
    async def _installed(self, arm: str, nodes: int, namespace: str) -> AsyncIterator[Installed]:
        """Install stowplan, with the timeouts of the chart and the policies that judge it."""
        folder = self.folder / f"{arm}-{len(list(self.folder.iterdir()))}"
        await asyncio.to_thread(folder.mkdir)
        async with AsyncExitStack() as stack:
            stowplan = await stack.enter_async_context(
                installed(
                    self.cluster,
                    self.control_plane,
                    folder,
                    [policy_of(arm, folder)],
                    options=_OPTIONS[_AT[arm]],
                    replicas=self.replicas,
                    admission_policies=True,
                )
            )
            await self._configure([_with_timeout(await asyncio.to_thread(_chart_timeout))])
            await stowplan.knows_usage(nodes)
            if _AT[arm] == "Binding":
                leader = await leader_of(self.cluster, stowplan)
                front = await stack.enter_async_context(fronting([leader.port]))
                await self._configure(_led_by(f"https://{LOCAL}:{front.port}/bind"))
                await eventually(lambda: self._is_asked(stowplan, namespace), "bindings are asked")
            if arm == DEAD:
                for replica in stowplan.replicas:
                    await asyncio.to_thread(replica.kill)
            yield stowplan

    async def _configure(self, patch: list[Json]) -> None:
        kind = "mutatingwebhookconfigurations"
        await self.cluster.patch(kind, NAME, patch, how="json")

    async def _is_asked(self, stowplan: Installed, namespace: str) -> bool:
        """Bind a pod that is not there, as a dry run; return whether stowplan was asked."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "tried", "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "tried"},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/tried/binding"
        with suppress(CallError):
            await self.cluster.call("POST", path, binding, params={"dryRun": "All"})
        return await stowplan.reviews("bind") > 0


def _compiled(loads: Mapping[str, Load], weight: int) -> Json:
    """Return a scheduler's configuration that has LoadAware's formula beside all it does."""
    args = {
        "nodes": {
            name: {"used": load.used, "requested": load.requested} for name, load in loads.items()
        },
        "thresholdPercent": THRESHOLD * 100,
        "expectedPercent": EXPECTED_PERCENT,
    }
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": _MEASURED_LOAD, "weight": weight}]}},
        "pluginConfig": [{"name": _MEASURED_LOAD, "args": args}],
    }
    return {"profiles": [profile]}


def _chart_timeout() -> int:
    """Return how many seconds the API server waits for an answer on a new pod, by the chart."""
    configuration = of_kind(rendered(), "MutatingWebhookConfiguration")
    seconds: int = configuration["webhooks"][0]["timeoutSeconds"]
    return seconds


def _with_timeout(seconds: int) -> Json:
    return {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": seconds}


def _led_by(url: str) -> list[Json]:
    """Return a patch by which the API server asks the leader about bindings alone.

    With the webhooks of the chart the leader itself sees to it that nobody is asked about new pods.
    """
    path, unasked = "/webhooks/1", [{"name": CREATION_CONDITION, "expression": "false"}]
    return [
        {"op": "add", "path": "/webhooks/0/matchConditions", "value": unasked},
        {"op": "test", "path": f"{path}/name", "value": "bind.stowplan.dev"},
        {"op": "replace", "path": f"{path}/clientConfig/url", "value": url},
        {"op": "replace", "path": f"{path}/timeoutSeconds", "value": _BINDING_SECONDS},
    ]
