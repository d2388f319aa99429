"""stowplan on the control plane: replicas, what they may do, and the API server that asks them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import yaml

from engine.view import ClusterState
from tests.e2e.chart import of_kind, rendered
from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.front import Front, fronting
from tests.e2e.ports import free_ports
from tests.e2e.replica import Replica
from tests.e2e.reviewer import rule
from tests.e2e.serving import LOCAL
from tests.e2e.workloads import pod
from webhook.cluster import Cluster as FollowedCluster
from webhook.cluster.client.connection import connected
from webhook.cluster.cluster import live_cluster
from webhook.cluster.timing import Clock
from webhook.cluster.watch.event_applier import EventApplier
from webhook.serving.composition import wall_clock

NAMESPACE = "stowplan-system"
NAME = "stowplan"
SECRET = "stowplan-certificate"  # noqa: S105 (its name)
FailurePolicy = Literal["Ignore", "Fail"]

_SYNC_SECONDS = 60
_TIMEOUT_SECONDS = 5  # so long that no test of decisions depends on how busy the machine is
_MANIFEST = Path(__file__).with_name("install.yaml")
_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
_GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
_LEFT_ALONE = ["kube-system", "kube-public", "kube-node-lease", NAMESPACE]


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

    async def knows_usage(self, nodes: int) -> None:
        """Wait until every replica knows the usage of so many nodes, by metrics.k8s.io."""

        async def known() -> bool:
            details = [await replica.detail() for replica in self.replicas]
            sources = [source for detail in details for source in detail["sources"]]
            usage = [source for source in sources if source["name"] == "metrics.k8s.io"]
            assert [source["objects"] for source in usage] == [nodes] * len(self.replicas), usage
            return True

        await eventually(known, f"the usage of {nodes} nodes is known")

    async def policies(self) -> list[Json]:
        """Return what each replica says about its policies."""
        return [(await replica.detail())["policies"] for replica in self.replicas]

    async def reviews(self, path: str = "mutate") -> int:
        """Return how many pods were brought to the replicas that are alive."""
        alive = [replica for replica in self.replicas if replica.running]
        counts = await asyncio.gather(*(replica.reviews(path) for replica in alive))
        return sum(sum(count.values()) for count in counts)


async def leader_of(cluster: Cluster, stowplan: Installed) -> Replica:
    """Return the replica that holds the Lease, as soon as one does."""

    async def found() -> Replica | None:
        lease = await cluster.get("leases", NAME, NAMESPACE)
        holder = lease["spec"].get("holderIdentity")
        assert holder, "nobody holds the Lease"
        running = (replica for replica in stowplan.replicas if replica.running)
        return next((replica for replica in running if f"{holder} leads" in replica.text()), None)

    leader = await eventually(found, "a replica leads")
    if leader is None:
        raise AssertionError("`eventually` returns what is true")
    return leader


def account(control_plane: ControlPlane) -> Path:
    """Return a kubeconfig of the service account that replicas run as."""
    return control_plane.kubeconfig(_ACCOUNT, _GROUPS)


@asynccontextmanager
async def installed(  # noqa: PLR0913 - named parts, most of them left out
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    policies: Sequence[Path],
    *,
    replicas: int = 1,
    quotas: FailurePolicy | None = None,
    options: Sequence[tuple[str, str]] = (),
    kubeconfig: Path | None = None,
    admission_policies: bool = False,
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
        kubeconfig: of the account, where replicas shall not reach the API server directly.
        admission_policies: whether those of the chart judge what replicas write, as they do for
            whoever installs it; else it takes less of the API server's time.
    """
    usual = {
        "kubeconfig": kubeconfig or account(control_plane),
        "certificate-secret": SECRET,
        "certificate-names": LOCAL,
        "webhook-configurations": NAME,
        "quota-mode": "Enforce" if quotas else "Off",
        "usage-poll-seconds": 5,
        "drain-seconds": 1,
        "control": "true",
    }
    given = dict(options)
    pairs = [(name, str(value)) for name, value in usual.items() if name not in given]
    pairs += [("policies", str(path)) for path in policies]
    every = tuple(pairs) + tuple(options)
    running = [_replica(f"replica-{number}", folder, every) for number in range(replicas)]
    await _apply(cluster)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_gone, cluster, "secrets", SECRET, NAMESPACE)
        for record in ("reclaim", "outcome"):
            stack.push_async_callback(_gone, cluster, "configmaps", f"{NAME}-{record}", NAMESPACE)
        # A holder that was killed did not let go of it, and the next one would wait.
        stack.push_async_callback(_gone, cluster, "leases", NAME, NAMESPACE)
        front = await stack.enter_async_context(fronting([replica.port for replica in running]))
        stowplan = Installed(running, front, every, folder)
        stack.push_async_callback(_stop, running)
        url, holds = f"https://{LOCAL}:{front.port}", given.get("hold") == "true"
        binds = given.get("binding") == "true"
        admission = list(_configurations(url, quotas, holds=holds, binds=binds))
        if admission_policies:
            admission += _policies_of_chart(quotas, holds=holds, binds=binds)
        for resource, manifest in admission:
            await cluster.create(manifest)
            stack.push_async_callback(_gone, cluster, resource, manifest["metadata"]["name"])
        await asyncio.gather(*(asyncio.to_thread(one.start) for one in running))
        paths = ["mutate", *(["validate"] if quotas else [])]
        await eventually(
            lambda: _is_asked(cluster, stowplan, paths), "the API server asks stowplan"
        )
        yield stowplan


@asynccontextmanager
async def listener(kubeconfig: Path) -> AsyncIterator[FollowedCluster]:
    """Yield what a replica knows of the cluster, here in this process."""
    clock = Clock(now=wall_clock)
    async with (
        connected(kubeconfig, None) as connection,
        live_cluster(connection, EventApplier(ClusterState(), now=wall_clock), clock) as cluster,
    ):
        async with asyncio.timeout(_SYNC_SECONDS):
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


def _configurations(
    url: str, quotas: FailurePolicy | None, *, holds: bool, binds: bool
) -> Iterator[tuple[str, Json]]:
    """Yield the webhook configurations, without a `caBundle`: that is stowplan's to write.

    What the API server asks about quotas is the chart's to say, so that no test asks about more.
    """
    webhook = {
        "name": "mutate.stowplan.dev",
        "clientConfig": {"url": f"{url}/mutate"},
        "rules": [rule("", ["pods"], "CREATE")],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": _LEFT_ALONE}
            ]
        },
        "sideEffects": "NoneOnDryRun",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "timeoutSeconds": _TIMEOUT_SECONDS,
    }
    binding = {
        **webhook,
        "name": "bind.stowplan.dev",
        "clientConfig": {"url": f"{url}/bind"},
        "rules": [rule("", ["pods/binding", "bindings"], "CREATE")],
    }
    mutating = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook, *([binding] if binds else [])],
    }
    yield "mutatingwebhookconfigurations", mutating
    if quotas:
        values = {
            "webhook.url": url,
            "quota": {"failurePolicy": quotas, "timeoutSeconds": _TIMEOUT_SECONDS},
            "hold": {"enabled": holds},
        }
        manifests = rendered(namespace=NAMESPACE, release=NAME, values=values)
        kind = "ValidatingWebhookConfiguration"
        yield f"{kind.lower()}s", of_kind(manifests, kind)


def _policies_of_chart(
    quotas: FailurePolicy | None, *, holds: bool, binds: bool
) -> Iterator[tuple[str, Json]]:
    """Yield the chart's policies for the account of the replicas, with their bindings."""
    plurals = {
        "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    }
    values = {
        "certificates.secretName": SECRET,
        "binding.enabled": binds,
        "control.mode": "Embedded",
        "hold.enabled": holds,
        "quota.mode": "Enforce" if quotas else "Off",
    }
    for manifest in rendered(namespace=NAMESPACE, release=NAME, values=values):
        if manifest["kind"] in plurals:
            yield plurals[manifest["kind"]], manifest


async def _is_asked(cluster: Cluster, stowplan: Installed, paths: Sequence[str]) -> bool:
    """Try to create a pod; return whether any replica was asked about it, at each path.

    The API server takes up the configurations one by one.
    """
    await cluster.create(pod("default", "tried"), dry_run=True)
    return all([await stowplan.reviews(path) for path in paths])


async def _apply(cluster: Cluster) -> None:
    """Create what is not there yet."""
    for obj in yaml.safe_load_all(_MANIFEST.read_text(encoding="utf-8")):
        try:
            await cluster.create(obj)
        except CallError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise


async def _gone(cluster: Cluster, resource: str, name: str, namespace: str | None = None) -> None:
    """Delete what may not be there any more."""
    try:
        await cluster.delete(resource, name, namespace)
    except CallError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise


async def _stop(replicas: Iterable[Replica]) -> None:
    for replica in replicas:
        replica.resume()  # one that hangs hears no signal
    await asyncio.gather(*(asyncio.to_thread(one.stop) for one in replicas))
