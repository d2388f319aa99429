"""Readiness of a replica, and the report of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.model.policy_resource import PlacementAt, PlacementOptions
from engine.model.time import SECOND, Micros, date
from engine.report import (
    BindingStatus,
    CertificateStatus,
    HeldStatus,
    PoliciesStatus,
    SourceReport,
    StatusReport,
    ViewStatus,
)
from webhook.cluster.cluster import Cluster
from webhook.cluster.watch.source_status import SourceStatus, age_seconds
from webhook.placement.live_policies import LivePolicies
from webhook.placement.policy_files import Acceptance
from webhook.serving.tls import LiveCertificate


@dataclass(kw_only=True, eq=False)
class Health:
    """Readiness and state; the certificate is loaded before the listeners start.

    A replica without a valid set of policies since its start is not ready: a rolling update stops
    at it, and those that have policies in force go on. It becomes ready once the files are valid.

    A stale source leaves the replica ready: rules that read it abstain, all others still decide. A
    replica that took itself out of service would advise no pod, and block every pod where quota is
    enforced. The report names what is stale.

    The kubelet's readiness probe is a TLS call already, so the replica makes none to itself. The
    parts that this probe ignores are checked on the certificate: its validity, and whether the
    authorities in the webhook configurations signed it.
    """

    policies: LivePolicies
    cluster: Cluster
    certificate: LiveCertificate
    now: Callable[[], Micros]
    modes: Mapping[str, str]
    reviews: Callable[[], Mapping[str, int]]
    held: Callable[[], HeldStatus] | None = None
    bindings: Callable[[], BindingStatus] | None = None

    def __post_init__(self) -> None:
        self.draining = False
        self.preparing = False  # set while caches are filled at the start, in long steps

    @property
    def view_age_seconds(self) -> float:
        """Time since the latest contact with any source of the view."""
        return (self.now() - self.cluster.last_contact()) / SECOND

    def ready(self) -> bool:
        """Whether new reviews should be sent here."""
        moment = date(self.now())
        is_valid = moment < self.certificate.current.expires_at
        is_trusted = self.certificate.bundle_matches is not False
        is_informed = self.cluster.is_synced and self.policies.is_loaded
        is_busy = self.preparing or self.draining
        return is_informed and is_valid and is_trusted and not is_busy

    def report(self) -> StatusReport:
        return StatusReport(
            ready=self.ready(),
            draining=self.draining,
            preparing=self.preparing,
            modes=self.modes,
            reviews=self.reviews(),
            policies=PoliciesStatus(
                loaded=len(self.policies.current.policies),
                digest=self.policies.digest,
                loaded_at=self.policies.loaded_at.isoformat(),
                last_reload_error=self.policies.last_error,
                holding=self._names(lambda placement: bool(placement.hold_reasons)),
                at_binding=self._names(lambda placement: placement.at is PlacementAt.BINDING),
                refused=tuple(
                    each.resource.policy_name
                    for each in self.policies.standings
                    if each.acceptance is not Acceptance.ACCEPTED
                ),
            ),
            view=ViewStatus(
                version=self.cluster.state.version,
                nodes=self.cluster.state.node_count,
                age_seconds=round(self.view_age_seconds, 3),
                stale=tuple(self.cluster.freshness().stale.values()),
            ),
            sources=tuple(self._source(source) for source in self.cluster.sources.values()),
            certificate=CertificateStatus(
                expires_at=self.certificate.current.expires_at.isoformat(),
                is_trusted=self.certificate.bundle_matches,
            ),
            held=None if self.held is None else self.held(),
            bindings=None if self.bindings is None else self.bindings(),
        )

    def _names(self, applies: Callable[[PlacementOptions], bool]) -> tuple[str, ...]:
        policies = self.policies.current.policies
        return tuple(policy.name for policy in policies if applies(policy.placement))

    def _source(self, source: SourceStatus) -> SourceReport:
        age = age_seconds(source, self.now())
        return SourceReport(
            name=source.name,
            required=source.required,
            present=source.present,
            synced=source.synced,
            age_seconds=None if age is None else round(age, 3),
            objects=source.objects,
            skipped=source.skipped,
            last_error=source.last_error,
        )
