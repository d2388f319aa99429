"""stowplan on the control plane: replicas, what they may do, and the API server that asks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from engine.view import ClusterState
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane, free_ports
from tests.e2e.front import Front, fronting
from tests.e2e.replica import Replica
from tests.e2e.reviewer import PHASES, rule
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod
from webhook.cluster.connection import connected
from webhook.cluster.intake import Intake
from webhook.cluster.live import LiveCluster, live_cluster
from webhook.cluster.pace import Clock
from webhook.server import wall_clock

NAMESPACE = "stowplan-system"
NAME = "stowplan"
SECRET = "stowplan-certificate"  # noqa: S105 (its name)
FailurePolicy = Literal["Ignore", "Fail"]

_MANIFEST = Path(__file__).with_name("install.yaml")
_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
_LEFT_ALONE = ["kube-system", "kube-public", "kube-node-lease", NAMESPACE]
_CONFIGURATIONS = tuple(f"{phase.lower()}webhookconfigurations" for phase in PHASES)


@dataclass(frozen=True, slots=True)
class Installed:
    """stowplan as it runs.

    Attributes:
        replicas: the processes.
        front: where the API server sends its reviews.
        options: what every replica was started with.
        folder: for logs.
    """

    replicas: list[Replica]
    front: Front
    options: tuple[tuple[str, str], ...]
    folder: Path

    @asynccontextmanager
    async def another(self) -> AsyncIterator[Replica]:
        """Yield one more replica, which the API server does not ask."""
        name = f"replica-{len(list(self.folder.glob('*.log')))}"
        replica = _replica(name, self.folder, self.options)
        try:
            await asyncio.to_thread(replica.start)
            yield replica
        finally:
            await asyncio.to_thread(replica.stop)

    async def reviews(self) -> int:
        """Return how many pods were brought to the replicas that are alive."""
        alive = [replica for replica in self.replicas if replica.running]
        counts = await asyncio.gather(*(replica.reviews() for replica in alive))
        return sum(sum(count.values()) for count in counts)


def account(control_plane: ControlPlane) -> Path:
    """Return a kubeconfig of the service account that replicas run as."""
    return control_plane.kubeconfig(_ACCOUNT, _GROUPS)


@asynccontextmanager
async def installed(  # noqa: PLR0913 (what a test may choose)
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    policies: Sequence[Path],
    *,
    replicas: int = 1,
    quotas: FailurePolicy | None = None,
    options: Sequence[tuple[str, str]] = (),
) -> AsyncIterator[Installed]:
    """Install stowplan until the block is left.

    Args:
        cluster: as its admin.
        control_plane: it runs beside.
        folder: an empty one, for logs.
        policies: files or folders.
        replicas: how many.
        quotas: what the API server does without an answer about quotas; None asks for none.
        options: more of `stowplan serve`.
    """
    usual = {
        "kubeconfig": account(control_plane),
        "certificate-secret": SECRET,
        "certificate-names": LOCAL,
        "webhook-configurations": NAME,
        "quota-mode": "Enforce" if quotas else "Off",
        "usage-poll-seconds": 5,
        "reload-seconds": 0.5,
        "drain-seconds": 1,
    }
    pairs = [(name, str(value)) for name, value in usual.items()]
    pairs += [("policies", str(path)) for path in policies]
    every = tuple(pairs) + tuple(options)
    running = [_replica(f"replica-{number}", folder, every) for number in range(replicas)]
    await _apply(cluster)
    async with fronting([replica.port for replica in running]) as front:
        stowplan = Installed(running, front, every, folder)
        try:
            for configuration in _configurations(f"https://{LOCAL}:{front.port}", quotas):
                await cluster.create(configuration)
            await asyncio.gather(*(asyncio.to_thread(one.start) for one in running))
            await eventually(lambda: _asked(cluster, stowplan), "the API server asks stowplan")
            yield stowplan
        except BaseException:
            for replica in running:
                print(f"--- {replica.name}\n{replica.tail()}")  # pytest shows it with the failure
            raise
        finally:
            for resource in _CONFIGURATIONS:
                await _gone(cluster, resource, NAME)
            for replica in running:
                replica.resume()
            await asyncio.gather(*(asyncio.to_thread(one.stop) for one in running))
            await _gone(cluster, "secrets", SECRET, NAMESPACE)


@asynccontextmanager
async def listener(kubeconfig: Path) -> AsyncIterator[LiveCluster]:
    """Yield what a replica knows of the cluster, here in this process."""
    clock = Clock(now=wall_clock)
    async with (
        connected(kubeconfig, None) as connection,
        live_cluster(connection, Intake(ClusterState(), now=wall_clock), clock) as cluster,
    ):
        await cluster.synced()
        yield cluster


def review_of(obj: Json, uid: str = "00000000-0000-4000-8000-000000000001") -> Json:
    """Return the review of a pod's creation, as a dry run."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": obj["metadata"].get("name", ""),
            "namespace": obj["metadata"]["namespace"],
            "operation": "CREATE",
            "userInfo": {"username": "admin"},
            "object": obj,
            "oldObject": None,
            "dryRun": True,
        },
    }


def _replica(name: str, folder: Path, options: Sequence[tuple[str, str]]) -> Replica:
    reviews, metrics = free_ports(2)
    return Replica(name, folder, (reviews, metrics), options)


async def _apply(cluster: Cluster) -> None:
    """Create what is not there yet."""
    for obj in yaml.safe_load_all(_MANIFEST.read_text(encoding="utf-8")):
        with suppress_status(409):
            await cluster.create(obj)


async def _gone(cluster: Cluster, resource: str, name: str, namespace: str | None = None) -> None:
    with suppress_status(404):
        await cluster.delete(resource, name, namespace)


class suppress_status(suppress):  # noqa: N801 (used as a function)
    """Take one refusal of the API server for an answer."""

    def __init__(self, status: int) -> None:
        super().__init__(CallError)
        self._status = status
