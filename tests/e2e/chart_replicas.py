"""Replicas as the chart starts them: with the settings, the policies and the account it gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from tests.e2e.advice import first_choice
from tests.e2e.chart import Release, of_kind, rendered
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import fronting
from tests.e2e.ports import free_ports
from tests.e2e.replica import Replica
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod

_OF_THE_MACHINE = {"client-ca", "namespace", "pod-ips", "policies"} | {
    "metrics-host",
    "metrics-port",
    "port",
    "probe-port",
    "dashboard-port",
}
_QUICKER = {"usage-poll-seconds": "5"}


def chart_replicas(
    release: Release,
    control_plane: ControlPlane,
    folder: Path,
    *,
    count: int,
    values: dict[str, object],
    program: Sequence[str] = (),
    more: Sequence[tuple[str, str]] = (),
) -> list[Replica]:
    """Return replicas of a release that answer reviews, not yet started.

    Args:
        release: as installed.
        control_plane: it is on.
        folder: an empty one, for policies and logs.
        count: how many.
        values: the release was installed with.
        program: what runs `stowplan`, if not that of this Python.
        more: settings that depend on this machine, such as files that a pod would mount.
    """
    process = _Process("webhook", release, control_plane, folder, values)
    return process.replicas(count, program, more)


def chart_control(
    release: Release,
    control_plane: ControlPlane,
    folder: Path,
    *,
    values: dict[str, object],
    count: int = 1,
    program: Sequence[str] = (),
    more: Sequence[tuple[str, str]] = (),
) -> list[Replica]:
    """Return the processes of which one leads, not yet started; arguments as of the replicas."""
    process = _Process("control", release, control_plane, folder, values)
    return process.replicas(count, program, more)


@dataclass(frozen=True, slots=True)
class _Process:
    """A Deployment of the chart, whose containers run on this machine."""

    component: str
    release: Release
    control_plane: ControlPlane
    folder: Path
    values: dict[str, object]

    def replicas(
        self, count: int, program: Sequence[str], more: Sequence[tuple[str, str]]
    ) -> list[Replica]:
        namespace = self.release.namespace
        manifests = rendered(
            namespace=namespace,
            release=self.release.name,
            chart=self.release.chart,
            values=self.values,
        )
        policies = self.folder / "policies"
        policies.mkdir(parents=True)
        for name, text in of_kind(manifests, "ConfigMap")["data"].items():
            (policies / name).write_text(text, encoding="utf-8")
        pod_spec = of_kind(manifests, "Deployment", self.component)["spec"]["template"]["spec"]
        (container,) = (one for one in pod_spec["containers"] if one["name"] == self.component)
        user = f"system:serviceaccount:{namespace}:{pod_spec['serviceAccountName']}"
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        command, *flags = container["args"]
        options = (
            ("kubeconfig", str(self.control_plane.kubeconfig(user, groups))),
            ("namespace", namespace),
            ("policies", str(policies)),
            *_QUICKER.items(),
            *((flag.removeprefix("--"), "true") for flag in flags),
            *_settings(container),
            *more,
        )
        return [
            Replica(
                f"{self.folder.name}-{number}",
                self.folder,
                (ports[0], ports[1]),
                (*options, ("probe-port", str(ports[2]))),
                program,
                command,
            )
            for number, ports in enumerate(free_ports(3) for _ in range(count))
        ]


def _settings(container: Json) -> Iterator[tuple[str, str]]:
    """Yield the settings in the environment of a container, as flags."""
    for variable in container["env"]:
        option = variable["name"].removeprefix("STOWPLAN_").lower().replace("_", "-")
        if option not in _OF_THE_MACHINE:
            for value in variable["value"].split(","):
                yield option, value


def values_beside(url: str, prefers: str, **more: object) -> dict[str, object]:
    """Return values for replicas that run beside the cluster, not in it."""
    score = {"name": "chosen", "expression": f"node.name == '{prefers}' ? 100 : 0"}
    policy = {
        "apiVersion": "stowplan.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "chosen"},
        "spec": {"scores": [score]},
    }
    return {
        "replicas": 0,
        "control.replicas": 0,
        "placement.mode": "Enforce",
        "quota.mode": "Enforce",
        "webhook.url": url,
        "certificates.extraNames": [LOCAL],
        "policies.shipped": [],
        "policies.inline": {"chosen": policy},
        "shutdown.drainSeconds": 10,
        # Strict: whatever is admitted, somebody has counted.
        "quota.failurePolicy": "Fail",
        "quota.timeoutSeconds": 5,
        "placement.timeoutSeconds": 5,
        **more,
    }


@asynccontextmanager
async def running(replicas: Sequence[Replica]) -> AsyncIterator[None]:
    """Run replicas until the block is left; those that were ended within stay so."""
    try:
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in replicas))
        yield
    finally:
        for replica in replicas:
            replica.resume()
        await asyncio.gather(*(asyncio.to_thread(one.stop) for one in replicas))


async def _choice(cluster: Cluster, namespace: str) -> str:
    """Return the node that a new pod is advised to take; empty while it is refused."""
    try:
        return first_choice(await cluster.create(pod(namespace, "tried"), dry_run=True))
    except CallError:
        return ""


async def becomes(cluster: Cluster, namespace: str, node: str) -> None:
    """Wait until new pods are advised to take a node."""

    async def chosen() -> bool:
        return await _choice(cluster, namespace) == node

    await eventually(chosen, f"pods are advised to take {node}")


@asynccontextmanager
async def one_beside(  # noqa: PLR0913 - named parts, two of them left out
    release: Release,
    control_plane: ControlPlane,
    cluster: Cluster,
    folder: Path,
    *,
    namespace: str,
    prefers: str,
    program: Sequence[str] = (),
    address: str = LOCAL,
) -> AsyncIterator[Replica]:
    """Run one replica of a release, and control, until the block is left; pods are advised then.

    Args:
        release: as installed; it is changed to be asked beside the cluster.
        control_plane: it is on.
        cluster: as its admin.
        folder: for a folder with policies and logs.
        namespace: where pods are tried.
        prefers: the node that they are advised to take.
        program: what runs `stowplan`, if not that of this Python.
        address: of this machine, where the API server asks.
    """
    async with fronting([], address=address, to=address) as front:
        url = URL.build(scheme="https", host=address, port=front.port)
        names = {"certificates.extraNames": [address]}
        values = values_beside(str(url).removesuffix("/"), prefers, **names)
        await release.change(**values)
        (replica,) = chart_replicas(
            *(release, control_plane, folder / "one"),
            count=1,
            values=values,
            program=program,
            more=[("host", "::")],
        )
        control = chart_control(
            release, control_plane, folder / "control", values=values, program=program
        )
        async with running([replica, *control]):
            front.targets = [replica.port]
            await becomes(cluster, namespace, prefers)
            yield replica
