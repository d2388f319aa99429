"""Whether the webhook can do its work, and what it works with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from engine.model.time import SECOND, Micros
from engine.view import ClusterView
from webhook.live_policies import LivePolicies
from webhook.tls import LiveCertificate

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Health:
    """Gathers what readiness says; everything it needs was loaded before the server listened.

    Attributes:
        draining: set when the process was told to end.
    """

    def __init__(
        self,
        *,
        policies: LivePolicies,
        view: Callable[[], ClusterView],
        view_updated_at: Callable[[], Micros],
        certificate: LiveCertificate,
        now: Callable[[], Micros],
    ) -> None:
        self._policies = policies
        self._view = view
        self._view_updated_at = view_updated_at
        self._certificate = certificate
        self._now = now
        self.draining = False

    @property
    def view_age_seconds(self) -> float:
        """The time since the view last heard of the cluster."""
        return (self._now() - self._view_updated_at()) / SECOND

    def ready(self) -> bool:
        """Whether new reviews should be sent here."""
        moment = _EPOCH + timedelta(microseconds=self._now())
        return not self.draining and moment < self._certificate.current.expires_at

    def detail(self) -> dict[str, Any]:
        """Return what is loaded, as plain JSON values."""
        view = self._view()
        return {
            "ready": self.ready(),
            "draining": self.draining,
            "policies": {
                "loaded": len(self._policies.current.policies),
                "lastReloadError": self._policies.last_error,
            },
            "view": {
                "version": view.version,
                "nodes": int(view.valid.sum()),
                "ageSeconds": round(self.view_age_seconds, 3),
            },
            "certificate": {"expiresAt": self._certificate.current.expires_at.isoformat()},
        }
