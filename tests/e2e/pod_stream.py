"""Pods that are created at some pace, and when and where each was bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.e2e.cluster import CallError, Cluster, Json

_BOUND_WITHIN_SECONDS = 180


@dataclass(slots=True)
class Course:
    """What became of one pod.

    Attributes:
        created: when its creation was sent, seconds of the event loop.
        bound: when it was seen with a node; infinite until then.
        node: its node, empty until then.
        nominated: the node that it was nominated to last, empty for none.
        raw: the pod as it was created.
    """

    created: float
    bound: float = float("inf")
    node: str = ""
    nominated: str = ""
    raw: Json = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """From creation to binding."""
        return self.bound - self.created


class PodStream:
    """Creates pods and follows them.

    Args:
        cluster: as its admin.
        and_then: what is done with each pod once it is created.

    Attributes:
        courses: of all pods, by name, in the order of their creation.
    """

    def __init__(
        self, cluster: Cluster, and_then: Callable[[Json], Awaitable[None]] | None = None
    ) -> None:
        self.courses: dict[str, Course] = {}
        self._cluster = cluster
        self._and_then = and_then
        self._changed = asyncio.Event()

    async def burst(self, pods: Sequence[Json], clients: int) -> None:
        """Create pods as fast as some clients can, and wait until all are bound."""
        await self.create(pods, clients)
        await self.all_bound(pods)

    async def create(self, pods: Sequence[Json], clients: int) -> None:
        """Create pods as fast as some clients can."""
        left = iter(pods)

        async def client() -> None:
            for pod in left:
                await self._create(pod)

        await asyncio.gather(*(client() for _ in range(clients)))

    async def steady(self, pods: Sequence[Json], per_second: float) -> None:
        """Create pods at a pace, whatever becomes of earlier ones, and wait until all are bound."""
        loop = asyncio.get_running_loop()
        begin, creations = loop.time(), []
        for number, pod in enumerate(pods):
            await asyncio.sleep(begin + number / per_second - loop.time())
            creations.append(asyncio.create_task(self._create(pod)))
        await asyncio.gather(*creations)
        await self.all_bound(pods)

    async def idle(self, pods: Sequence[Json]) -> None:
        """Create each pod when the one before is bound."""
        for pod in pods:
            await self._create(pod)
            await self.all_bound([pod])

    async def all_bound(self, pods: Sequence[Json]) -> None:
        """Wait until pods are bound, or some time has passed."""
        names = [pod["metadata"]["name"] for pod in pods]
        with suppress(TimeoutError):  # they count as unbound
            async with asyncio.timeout(_BOUND_WITHIN_SECONDS):
                while not all(self.courses[name].node for name in names):
                    self._changed.clear()
                    await self._changed.wait()

    def observe(self, pod: Json) -> None:
        """Note what a watch says of a pod."""
        course = self.courses.get(pod["metadata"]["name"])
        if course is None:
            return
        course.nominated = pod["status"].get("nominatedNodeName") or course.nominated
        if not course.node and (node := pod["spec"].get("nodeName", "")):
            course.node, course.bound = node, asyncio.get_running_loop().time()
            self._changed.set()

    async def _create(self, pod: Json) -> None:
        course = Course(asyncio.get_running_loop().time())
        self.courses[pod["metadata"]["name"]] = course
        course.raw = await self._cluster.create(pod)
        if self._and_then is not None:
            await self._and_then(pod)


@asynccontextmanager
async def streaming(
    cluster: Cluster,
    namespace: str,
    *,
    and_then: Callable[[Json], Awaitable[None]] | None = None,
) -> AsyncIterator[PodStream]:
    """Yield a stream of pods for a namespace that has none; they are deleted afterwards."""
    stream = PodStream(cluster, and_then)
    listed: Mapping[str, Json] = await cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")

    async def follow(version: str) -> None:
        while True:  # the API server ends the watch of whoever lags behind in a burst
            async with cluster.watch("pods", namespace, resourceVersion=version) as events:
                async for event in events:
                    if event["type"] == "ERROR":
                        raise CallError(event["object"]["code"], "", event["object"]["message"])
                    stream.observe(event["object"])
                    version = event["object"]["metadata"]["resourceVersion"]

    following = asyncio.create_task(follow(listed["metadata"]["resourceVersion"]))
    try:
        yield stream
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await cluster.delete_all("pods", namespace, grace_seconds=0)
