"""Events on an ElasticQuota."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.model.elastic_quota import ElasticQuota
from webhook.cluster.client.connection import ApiError, Connection

_CALL_SECONDS = 5.0
_LONGEST_MESSAGE = 1000  # the API server takes 1024
_LONGEST_NAME = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEvent:
    """An Event on a quota.

    Attributes:
        quota: it is about.
        reason: for programs, such as `QuotaExceeded`.
        action: what was done.
        message: for people; cut where it is too long.
        count: how many times it happened.
        since: the first time.
        until: the last time.
    """

    quota: ElasticQuota
    reason: str
    action: str
    message: str
    count: int = 1
    since: datetime
    until: datetime

    async def write(self, connection: Connection, identity: str) -> bool:
        """Create the Event; return whether that succeeded.

        Args:
            connection: to the API server.
            identity: of this process.
        """
        quota, body = self.quota, msgspec.json.encode(self._manifest(identity))
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await connection.write("POST", f"/api/v1/namespaces/{quota.namespace}/events", body)
        except (ApiError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            _log.warning("no Event on quota `%s/%s`: %s", quota.namespace, quota.name, reason)
            return False
        return True

    def _manifest(self, identity: str) -> dict[str, Any]:
        quota = self.quota
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{quota.name[:_LONGEST_NAME].rstrip('.-')}.",
                "namespace": quota.namespace,
            },
            "involvedObject": {
                "apiVersion": f"{quota.group}/v1alpha1",
                "kind": "ElasticQuota",
                "namespace": quota.namespace,
                "name": quota.name,
                "uid": quota.uid,
            },
            "type": "Warning",
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
