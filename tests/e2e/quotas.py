"""Many clients at once in namespaces with an ElasticQuota, and what came of their pods."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Literal

from tests.e2e.cluster import CallError, Cluster, Json, eventually
from tests.e2e.control_plane import ControlPlane
from tests.e2e.installed import FailurePolicy, Installed, account, installed, review_of
from tests.e2e.link import Link, linked
from tests.e2e.ports import free_ports
from tests.e2e.replica import Replica
from tests.e2e.workloads import pod

GROUP = "scheduling.x-k8s.io"
ELASTIC_QUOTAS = Path(__file__).parent / "crds" / f"elasticquotas.{GROUP}.yaml"
"""The definition of the quotas."""

ROOM = 40
LARGE_ROOM = 300
"""So much that replicas take room ahead."""

CLIENTS = 100
RESERVATION_SECONDS = 61  # the shortest there is
Outcome = Literal["admitted", "denied", "refused", "failed"]
"""Of a creation: `denied` by the ElasticQuota, `refused` by the ResourceQuota after it."""

_LIMIT = "team"
_RESOURCE_QUOTA = "no-deadlines"
_BACK_WITHIN_SECONDS = 3 * RESERVATION_SECONDS


class Shop:
    """Namespaces with room for so many pods each, and the clients who create pods there.

    Args:
        cluster: as its admin.
        namespaces: which exist, without pods.
        room: for how many.
    """

    def __init__(self, cluster: Cluster, namespaces: Sequence[str], *, room: int = ROOM) -> None:
        self.namespaces = namespaces
        self._cluster = cluster
        self.room = room
        self._serial = itertools.count()

    async def limit(self, stowplan: Installed) -> None:
        """Create the quotas, and wait until all replicas know them."""
        known = len(await self._cluster.list_all(f"elasticquotas.{GROUP}"))
        await asyncio.gather(*(self._limit(namespace) for namespace in self.namespaces))
        await quotas_known(stowplan.replicas, known + len(self.namespaces))

    async def burst(
        self, *, each: int = 100, unwanted: bool = False, retry: bool = False
    ) -> Counter[Outcome]:
        """Create pods in each namespace, 100 clients in all at a time; returns all outcomes.

        Args:
            each: how many in a namespace.
            unwanted: whether the ResourceQuota of `refuse_deadlines` refuses every third.
            retry: whether clients try again while the failure policy decides, as controllers do:
                on a busy machine the API server gives up on some reviews.
        """
        free = asyncio.Semaphore(CLIENTS)

        async def create(namespace: str, number: int) -> list[Outcome]:
            with_deadline = unwanted and number % 3 == 0
            async with free:
                outcomes = [await self.create(namespace, with_deadline=with_deadline)]
                while retry and outcomes[-1] == "failed":
                    outcomes.append(await self.create(namespace, with_deadline=with_deadline))
                return outcomes

        wanted = itertools.product(range(each), self.namespaces)
        outcomes = await asyncio.gather(*(create(where, number) for number, where in wanted))
        return Counter(itertools.chain.from_iterable(outcomes))

    async def assert_filled_by(
        self, outcomes: Counter[Outcome], *, clients: int, ahead: int = 0
    ) -> None:
        """Assert that every client has an answer, and each namespace is filled to the last pod.

        A share that a failed attempt has reserved comes back: so many may be missing at first.

        Args:
            outcomes: of the burst.
            clients: how many pods were asked for.
            ahead: how many pods replicas may have reserved ahead, and return only after others were
                denied, on a busy machine.
        """
        room = self.room * len(self.namespaces)
        assert outcomes["admitted"] + outcomes["denied"] == clients
        assert room - outcomes["failed"] - ahead <= outcomes["admitted"] <= room
        await self.fills_up()
        assert await self.stored() == [self.room] * len(self.namespaces)

    async def burst_in_which(
        self, something_happens: Callable[[], None], *, each: int
    ) -> Counter[Outcome]:
        """Create pods as `burst` does; as soon as there is one, something happens."""
        before = sum(await self.stored())
        burst = asyncio.create_task(self.burst(each=each))
        while sum(await self.stored()) == before and not burst.done():
            pass
        something_happens()
        return await burst

    async def create(
        self, namespace: str, *, with_deadline: bool = False, dry_run: bool = False
    ) -> Outcome:
        """Create a pod, once, and return what came of it."""
        obj = nobodys_pod(namespace, f"pod-{next(self._serial)}")
        if with_deadline:
            obj["spec"]["activeDeadlineSeconds"] = 3_600
        try:
            await self._cluster.create(obj, dry_run=dry_run)
        except CallError as error:
            if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:  # the failure policy decided
                return "failed"
            if error.status != HTTPStatus.FORBIDDEN or "exceeded quota" not in error.message:
                raise
            return "refused" if _RESOURCE_QUOTA in error.message else "denied"
        return "admitted"

    async def stored(self) -> list[int]:
        """Return how many pods there are in each namespace."""
        lists = (self._cluster.list_all("pods", namespace) for namespace in self.namespaces)
        return [len(found) for found in await asyncio.gather(*lists)]

    async def overshoot(self) -> int:
        """Return how many pods there are too many, in all namespaces together."""
        return sum(max(0, count - self.room) for count in await self.stored())

    async def fills_up(self) -> None:
        """Wait until what is free can be used, to the last pod and no further."""

        async def full() -> bool:
            counts = dict(zip(self.namespaces, await self.stored(), strict=True))
            room = [namespace for namespace, count in counts.items() if count < self.room]
            await asyncio.gather(*(self.create(namespace) for namespace in room))
            return not room

        await eventually(full, "all that is free can be used", within=_BACK_WITHIN_SECONDS)
        denied = len(self.namespaces)
        assert (await self.burst(each=1, retry=True))["denied"] == denied

    async def refuse_deadlines(self) -> None:
        """Have pods with a deadline refused after the webhooks have admitted them."""
        for namespace in self.namespaces:
            await self._cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "ResourceQuota",
                    "metadata": {"name": _RESOURCE_QUOTA, "namespace": namespace},
                    "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]},
                }
            )

        async def refuses(namespace: str) -> bool:
            return await self.create(namespace, with_deadline=True, dry_run=True) == "refused"

        for namespace in self.namespaces:
            await eventually(partial(refuses, namespace), "the ResourceQuota is in force")

    async def _limit(self, namespace: str) -> None:
        await self._cluster.create(elastic_quota(namespace, {"cpu": f"{100 * self.room}m"}))


async def quotas_known(replicas: Sequence[Replica], count: int, group: str = GROUP) -> None:
    """Wait until each of some replicas has heard of so many quotas."""

    async def known() -> bool:
        details = await asyncio.gather(*(replica.detail() for replica in replicas))
        return all(
            source["objects"] == count
            for detail in details
            for source in detail["sources"]
            if source["name"] == f"elasticquotas.{group}"
        )

    await eventually(known, f"all replicas know {count} quotas")


@asynccontextmanager
async def enforced(
    cluster: Cluster,
    control_plane: ControlPlane,
    folder: Path,
    *,
    replicas: int = 3,
    failure_policy: FailurePolicy = "Fail",
) -> AsyncIterator[Installed]:
    """Install replicas that enforce quotas."""
    options = [("quota-reservation-seconds", str(RESERVATION_SECONDS))]
    async with installed(
        cluster,
        control_plane,
        folder,
        [],
        replicas=replicas,
        quotas=failure_policy,
        options=options,
    ) as stowplan:
        yield stowplan


@asynccontextmanager
async def one_on_a_link(
    stowplan: Installed, control_plane: ControlPlane, folder: Path
) -> AsyncIterator[Link]:
    """Replace the last replica by one that reaches the API server over a link."""
    async with linked(control_plane, account(control_plane)) as link:
        old = stowplan.replicas[-1]
        await asyncio.to_thread(old.stop)
        options = {**dict(stowplan.options), "kubeconfig": str(link.kubeconfig)}.items()
        reviews, metrics = free_ports(2)
        far = Replica("replica-far", folder, (reviews, metrics), list(options))
        stowplan.replicas[-1] = far  # it ends with the others
        stowplan.front.targets[-1] = far.port
        await asyncio.to_thread(far.start)
        yield link


async def limit(
    cluster: Cluster, stowplan: Installed, namespace: str, greatest: Mapping[str, str]
) -> None:
    """Create a quota, and wait until all replicas know it."""
    await cluster.create(elastic_quota(namespace, greatest))
    beyond = pod(namespace, "beyond", requests=dict.fromkeys(greatest, "1E"))

    async def known() -> bool:
        reviews = (one.review("/validate", review_of(beyond)) for one in stowplan.replicas)
        return not any(response["allowed"] for response in await asyncio.gather(*reviews))

    await eventually(known, f"all replicas know the quota of {namespace}")


def elastic_quota(namespace: str, greatest: Mapping[str, str]) -> Json:
    """Return a quota that sets `max` to the greatest amounts."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": _LIMIT, "namespace": namespace},
        "spec": {"max": dict(greatest)},
    }


def nobodys_pod(namespace: str, name: str) -> Json:
    """Return a pod of 100m that nobody schedules."""
    obj = pod(namespace, name, requests={"cpu": "100m"})
    obj["spec"]["schedulerName"] = "nobody"
    return obj
