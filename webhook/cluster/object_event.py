"""Events on objects, for `kubectl describe`."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from engine.model.elastic_quota import ElasticQuota
from webhook.cluster.client.connection import ApiError, Connection

_CALL_SECONDS = 5.0
_LONGEST_MESSAGE = 1000  # the API server takes 1024
_LONGEST_NAME = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """An object in a namespace, as an Event names it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


def pod_reference(namespace: str, name: str, uid: str) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=uid)


def quota_reference(quota: ElasticQuota) -> ObjectReference:
    return ObjectReference(
        api_version=f"{quota.group}/v1alpha1",
        kind="ElasticQuota",
        namespace=quota.namespace,
        name=quota.name,
        uid=quota.uid,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    about: ObjectReference  # the object
    type: Literal["Normal", "Warning"] = "Warning"  # whether it is something that should not be
    reason: str  # for programs, such as `QuotaExceeded`
    action: str  # what was done
    message: str  # for people; cut where it is too long
    count: int = 1  # how many times it happened
    since: datetime  # the first time
    until: datetime  # the last time

    async def write(self, connection: Connection, identity: str) -> bool:
        about, body = self.about, msgspec.json.encode(self._manifest(identity))
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await connection.write("POST", f"/api/v1/namespaces/{about.namespace}/events", body)
        except (ApiError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            place = f"{about.namespace}/{about.name}"
            _log.warning("no Event on %s `%s`: %s", about.kind, place, reason)
            return False
        return True

    def _manifest(self, identity: str) -> dict[str, Any]:
        about = self.about
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{about.name[:_LONGEST_NAME].rstrip('.-')}.",
                "namespace": about.namespace,
            },
            "involvedObject": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "type": self.type,
            "reason": self.reason,
            "action": self.action,
            "message": self.message[:_LONGEST_MESSAGE],
            "count": self.count,
            "firstTimestamp": _wire_time(self.since),
            "lastTimestamp": _wire_time(self.until),
            "source": {"component": "stowplan", "host": identity},
            "reportingComponent": "stowplan",
            "reportingInstance": identity,
        }


def _wire_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
