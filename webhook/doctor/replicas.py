"""Replicas: readiness, policies, certificates, and the sources of what they know of the cluster."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from engine.errors import counted
from engine.model.kinds import DISRUPTION_BUDGETS, WATCHED_FOR_EVICTION
from engine.report import StatusReport
from webhook.certificates import certificates_of
from webhook.certificates.authority import is_for, is_signed_by, is_valid
from webhook.cluster.client.connection import ApiError
from webhook.doctor.findings import Finding, note, ok, problem, warning
from webhook.doctor.installation import Installation, Replica
from webhook.doctor.objects import PodSpec, Secret, Service, Webhook

_ALL: Final = "::"  # as by default: IPv4 as well
_BOTH: Final = frozenset({"IPv4", "IPv6"})


def addresses(installation: Installation) -> Iterator[Finding]:
    """Compare the first family of each Service that the API server asks with that of `host`."""
    host = installation.setting("HOST") or _ALL
    asked = {webhook.client_config.service for webhook in installation.own_webhooks}
    services = [service for service in asked if service is not None]
    for each in sorted(services, key=lambda service: (service.namespace, service.name)):
        name = f"{each.namespace}/{each.name}"
        path = f"/api/v1/namespaces/{each.namespace}/services/{each.name}"
        service = installation.find(path, Service)
        if service is None:
            yield problem(
                f"there is no Service {name}: the API server reaches no replica",
                "`helm upgrade` with `--reset-then-reuse-values` brings it back",
            )
            continue
        families, listened = service.spec.ip_families, _families(host)
        if not families or not listened:
            continue
        first = families[0]  # that of the address which the API server connects to
        if first in listened:
            yield ok(f"the API server reaches Service {name} by {first}, as replicas listen")
        else:
            yield problem(
                f"the API server reaches Service {name} by {first}, and replicas listen on"
                f" {next(iter(listened))} alone, on `{host}`",
                "leave `settings.host` out: then they listen on every address of both families",
            )


def _families(host: str) -> frozenset[str]:
    """Return the families that a replica listens on; none where it is not known."""
    if host == _ALL:
        return _BOTH
    try:
        return frozenset({f"IPv{ipaddress.ip_address(host).version}"})
    except ValueError:
        return frozenset()


_AGAIN = "the kubelet brings a changed ConfigMap within two minutes; else look at the replica's log"
_FOR_EVICTIONS: Final = frozenset(kind.name for kind in (DISRUPTION_BUDGETS, *WATCHED_FOR_EVICTION))
_USAGE_SOURCES = ("nodemetrics.slo.koordinator.sh", "metrics.k8s.io", "prometheus")
_QUOTAS = "elasticquotas."


def replicas(installation: Installation) -> Iterator[Finding]:
    """Check each replica, and compare their policies."""
    deployment = installation.deployment
    if deployment is None:
        name, namespace = installation.release, installation.namespace
        yield warning(
            f"there is no Deployment `{name}` in namespace {namespace}",
            "give both with `--release` and `--namespace`; `helm list --all-namespaces` knows them",
        )
    running = installation.replicas
    if not running:
        message = "no replica runs: pods get no advice"
        yield problem(message, "`kubectl describe` their pods; see the runbook")
        return
    for replica in running:
        yield _condition(replica)
    yield from _policies(installation.statuses)
    control = installation.control
    wanted = sum(each.spec.replicas for each in (deployment, control) if each is not None)
    if len(running) < wanted:
        message = f"{len(running)} of {wanted} replicas run"
        yield warning(message, "`kubectl describe` the Deployment and its pods")


def _condition(replica: Replica) -> Finding:
    status = replica.status
    if status is None:
        return warning(
            f"{replica.name} does not answer: {replica.error}",
            "it does not listen yet, a network policy keeps the API server away, or you lack the"
            " right to `get` `pods/proxy`",
        )
    if status.draining:
        return note(f"{replica.name} is ending")
    if not status.ready:
        unsynced = (source for source in status.sources if source.required and not source.synced)
        names = ", ".join(source.name for source in unsynced)
        if names:
            why = f": it has not read {names}"
        elif status.policies.last_reload_error and not status.policies.loaded:
            why = ": its policies have mistakes"
        elif status.preparing:
            why = ": it has just started, and fills its caches"
        else:
            why = ""
        message = f"{replica.name} is not ready{why}"
        return problem(message, "see the sources, the certificates, and its log")
    return ok(f"{replica.name} is ready and knows {counted(status.view.nodes, 'node')}")


def _policies(replicas: Sequence[tuple[str, StatusReport]]) -> Iterator[Finding]:
    for name, status in replicas:
        if status.policies.last_reload_error:
            first = status.policies.last_reload_error.splitlines()[0]
            used = "old policies" if status.policies.loaded else "no policies"
            message = f"{name} uses {used}, the new ones have mistakes: {first}"
            yield warning(message, "`stowplan lint` shows all; fix the ConfigMap")
    digests = {status.policies.digest for _, status in replicas}
    if len(digests) > 1:
        shown = ", ".join(f"{name} {status.policies.digest[:8]}" for name, status in replicas)
        yield warning(f"replicas use different policies: {shown}", _AGAIN)
    elif replicas:
        _, first_status = replicas[0]
        loaded = first_status.policies.loaded
        enforces = first_status.modes.get("placement", "Enforce") == "Enforce"
        if not loaded and enforces:
            message = "no policy is loaded, so no pod gets advice"
            yield warning(message, "name some: see `policies` of the chart")
        else:
            yield ok(f"all replicas use the same policies ({loaded})")


def sources(installation: Installation) -> Iterator[Finding]:
    """Check the sources of the first replica that answers, and staleness on all of them."""
    answered = installation.statuses
    if not answered:
        message = "no replica reports its sources"
        yield warning(message, "see the replicas above")
        return
    yield from _sources(answered[0][1])
    for name, status in answered:
        for stale in status.view.stale:
            message = f"{name}: {stale}, so rules that read them abstain"
            yield warning(message, "see StowplanViewStale in the runbook")


def _sources(status: StatusReport) -> Iterator[Finding]:
    for source in status.sources:
        if source.present and source.synced:
            yield ok(f"{source.name}: {counted(source.objects, 'object')}")
        elif source.required:
            message = f"{source.name} cannot be read: {source.last_error or 'not read yet'}"
            yield problem(message, "see the rights below, and `rbac.create`")
        elif source.name in _FOR_EVICTIONS:
            why = source.last_error or "not read yet"
            message = f"nobody is evicted for pods that wait: {source.name} cannot be read: {why}"
            yield problem(message, "see the rights below, and `rbac.create`")
    present = {source.name for source in status.sources if source.present}
    if present.isdisjoint(_USAGE_SOURCES):
        yield warning(
            "nothing measures the usage of nodes: rules that read it have no effect",
            "install metrics-server or Koordinator, or set `settings.prometheusUrl`",
        )
    if not any(name.startswith(_QUOTAS) for name in present):
        yield note(
            "there is no ElasticQuota in this cluster, so no quota is enforced",
            "`crds.elasticQuota.install: IfAbsent` of the chart brings the definition",
        )


_SOON = timedelta(days=14)  # ours is renewed a month before its end
_RENEW = (
    "`SelfManaged`: the log of the Lease's holder says what keeps it from renewing. `CertManager`:"
    " `kubectl describe certificate`. `ExistingSecret`: put a new pair into the Secret"
)
_TRUST = (
    "`SelfManaged`: the Lease's holder writes `caBundle` within seconds, its log says why not, and"
    " another controller may write it back. Else put the issuer into `webhook.caBundle`"
)


def certificates(installation: Installation) -> Iterator[Finding]:
    """Compare the certificates in the Secret and of replicas with each `caBundle`."""
    now = installation.now()
    for webhook in installation.own_webhooks:
        trusted = certificates_of(webhook.client_config.ca_bundle)
        if not trusted:
            yield problem(f"{webhook.name} has no usable `caBundle`", _TRUST)
        elif not any(is_valid(authority, now) for authority in trusted):
            yield problem(f"all of the `caBundle` of {webhook.name} expired", _TRUST)
    leaf = _stored(installation)
    if isinstance(leaf, Finding):
        yield leaf
    elif leaf is not None:
        yield _time_left("the certificate in the Secret", leaf.not_valid_after_utc, now)
        for webhook in installation.own_webhooks:
            yield _trusted(webhook, leaf, now)
    for name, status in installation.statuses:
        expires_at = datetime.fromisoformat(status.certificate.expires_at)
        yield _time_left(f"the certificate of {name}", expires_at, now)
        if status.certificate.is_trusted is False:
            yield problem(f"the API server does not trust the certificate of {name}", _TRUST)


def _stored(installation: Installation) -> x509.Certificate | Finding | None:
    """Return the certificate in the Secret, or why there is none; None if no Secret is used."""
    namespace, name = installation.namespace, _secret(installation.spec)
    if not name:
        return None
    title = f"Secret {namespace}/{name}"
    try:
        secret = installation.find(f"/api/v1/namespaces/{namespace}/secrets/{name}", Secret)
    except ApiError as error:
        message = f"{title} is not checked: {error.message}"
        return note(message, "the certificates of replicas are, see below")
    if secret is None:
        return problem(f"there is no {title}", _RENEW)
    found = certificates_of(secret.data.certificate)
    return found[0] if found else problem(f"{title} has no certificate", _RENEW)


def _secret(spec: PodSpec) -> str:
    mounted = (
        volume.secret.secret_name
        for volume in spec.volumes
        if volume.secret and volume.name == "tls"
    )
    return spec.setting("STOWPLAN_CERTIFICATE_SECRET") or next(mounted, "")


def _trusted(webhook: Webhook, leaf: x509.Certificate, now: datetime) -> Finding:
    client = webhook.client_config
    issuers = certificates_of(client.ca_bundle)
    if not any(is_valid(issuer, now) and is_signed_by(leaf, issuer) for issuer in issuers):
        message = f"no authority in the `caBundle` of {webhook.name} signed the certificate"
        return problem(message, _TRUST)
    if not is_for(leaf, [client.host]):
        message = f"the certificate is not for `{client.host}`, by which {webhook.name} is called"
        return problem(message, "see `certificates.extraNames` of the chart")
    return ok(f"{webhook.name} trusts the certificate, for `{client.host}`")


def _time_left(title: str, until: datetime, now: datetime) -> Finding:
    if until <= now:
        return problem(f"{title} expired at {until:%Y-%m-%d %H:%M} UTC", _RENEW)
    days = counted((until - now).days, "day")
    if until - now < _SOON:
        return warning(f"{title} expires in {days}, and was not renewed", _RENEW)
    return ok(f"{title} is valid for {days}")
