"""Certificates: validity, and trust of the API server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from cryptography import x509

from engine.errors import counted
from webhook.certificates import certificates_of
from webhook.certificates.authority import is_for, is_signed_by, is_valid
from webhook.cluster.client.connection import ApiError
from webhook.doctor.findings import Finding, note, ok, problem, warning
from webhook.doctor.installation import Installation
from webhook.doctor.objects import PodSpec, Secret, Webhook

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
