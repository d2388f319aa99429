"""The version of the API server: how its scheduler counts depends on it."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from engine.model.kubernetes_version import kubernetes_version_of
from engine.view import ClusterState
from webhook.cluster.client.connection import ApiError, Connection
from webhook.cluster.timing import Clock

LOOK_AGAIN_SECONDS: Final = 600.0
"""An API server is upgraded under our feet, now and then."""

_PATH: Final = "/version"

_log = logging.getLogger(__name__)


class ClusterVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the API server says of itself, as snapshots keep it."""

    api_version: str = "stowplan.dev/v1alpha1"
    kind: str = "ClusterVersion"
    git_version: str = ""


CLUSTER_VERSION: Final = ("stowplan.dev", "ClusterVersion")
"""API group and `kind` of it in a snapshot."""


async def read_version(connection: Connection) -> str:
    """Return the `gitVersion` of the API server."""
    return msgspec.json.decode(await connection.get(_PATH), type=ClusterVersion).git_version


class VersionReader:
    """Keeps the version of a cluster as its API server says it.

    Pods that are known stay counted as they were; the next event of each counts by the new version.
    """

    def __init__(self, connection: Connection, state: ClusterState, clock: Clock) -> None:
        # set once there was an answer, or a failure: until then no pod should be counted
        self.tried: Final = asyncio.Event()
        self._connection = connection
        self._state = state
        self._clock = clock

    async def run(self) -> None:
        """Read it from time to time, for ever; without an answer the last one stays."""
        while True:
            try:
                version = kubernetes_version_of(await read_version(self._connection))
            except (ApiError, msgspec.DecodeError) as error:
                _log.warning("the version of the API server cannot be read: %s", error)
            else:
                if version != self._state.kubernetes:
                    _log.info("pods are counted as Kubernetes %d.%d does", *version)
                    self._state.set_kubernetes(version)
            finally:
                self.tried.set()
            await self._clock.sleep(LOOK_AGAIN_SECONDS)
