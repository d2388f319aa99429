"""Whether the webhook can do its work, and what it works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from engine.model.time import SECOND, Micros, date
from engine.view import ClusterState, Freshness
from webhook.cluster.watch.source_status import SourceStatus, age_seconds
from webhook.placement.live_policies import LivePolicies
from webhook.serving.tls import LiveCertificate

_NO_SOURCES: Final[Mapping[str, SourceStatus]] = MappingProxyType({})


class Health:
    """Gathers what readiness says; policies and certificate were loaded before we listened.

    A source that has become too old to judge by leaves us ready: rules that read it abstain and
    all others are still worth asking, while a webhook that takes itself away advises nobody, and a
    quota check that takes itself away may block every pod. What is stale is told all the same.

    That callers get through by TLS is not tried by calling ourselves: the probe that asks whether
    we are ready is such a call, over the same socket and with the same certificate. What it does
    not look at is judged here from the certificate itself: its time, and whether the authorities
    in our webhook configurations signed it.

    Args:
        policies: the policies in force.
        state: the cluster as it is known. No view of it is asked for: probes come all the time,
            also while the first list is read, when each view is much work.
        view_updated_at: when the view last heard of the cluster, of whatever source.
        certificate: the one in use.
        now: the time of day.
        sources: what feeds the view, by name; none for a recorded cluster.
        freshness: how old what they told is.
        also: what else `detail` tells, as plain JSON values.

    Attributes:
        draining: set when the process was told to end.
    """

    def __init__(  # noqa: PLR0913 - named parts, joined in one place
        self,
        *,
        policies: LivePolicies,
        state: ClusterState,
        view_updated_at: Callable[[], Micros],
        certificate: LiveCertificate,
        now: Callable[[], Micros],
        sources: Mapping[str, SourceStatus] = _NO_SOURCES,
        freshness: Callable[[], Freshness] = Freshness,
        also: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._policies = policies
        self._state = state
        self._view_updated_at = view_updated_at
        self._certificate = certificate
        self._now = now
        self._sources = sources
        self._freshness = freshness
        self._also = also
        self.draining = False

    @property
    def view_age_seconds(self) -> float:
        """The time since the view last heard of the cluster."""
        return (self._now() - self._view_updated_at()) / SECOND

    def ready(self) -> bool:
        """Whether new reviews should be sent here."""
        moment = date(self._now())
        synced = all(source.sync_settled for source in self._sources.values())
        in_time = moment < self._certificate.current.expires_at
        is_trusted = self._certificate.bundle_matches is not False
        return synced and in_time and is_trusted and not self.draining

    def detail(self) -> dict[str, Any]:
        """Return what is loaded, as plain JSON values."""
        return {
            "ready": self.ready(),
            "draining": self.draining,
            **self._also(),
            "policies": {
                "loaded": len(self._policies.current.policies),
                "digest": self._policies.digest,
                "loadedAt": self._policies.loaded_at.isoformat(),
                "lastReloadError": self._policies.last_error,
            },
            "view": {
                "version": self._state.version,
                "nodes": self._state.node_count,
                "ageSeconds": round(self.view_age_seconds, 3),
                "stale": list(self._freshness().stale.values()),
            },
            "sources": [self._source(source) for source in self._sources.values()],
            "certificate": {
                "expiresAt": self._certificate.current.expires_at.isoformat(),
                "isTrusted": self._certificate.bundle_matches,
            },
        }

    def _source(self, source: SourceStatus) -> dict[str, Any]:
        age = age_seconds(source, self._now())
        return {
            "name": source.name,
            "required": source.required,
            "present": source.present,
            "synced": source.synced,
            "ageSeconds": None if age is None else round(age, 3),
            "objects": source.objects,
            "skipped": source.skipped,
            "lastError": source.last_error,
        }
