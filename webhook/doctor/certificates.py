"""Does the API server trust what we serve, and for how long?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from http import HTTPStatus

from cryptography import x509

from webhook.certificates import certificates_of
from webhook.certificates.authority import is_for, is_signed_by, is_valid
from webhook.cluster.client.connection import ApiError
from webhook.doctor.finding import Finding, Level
from webhook.doctor.installation import Installation, states
from webhook.doctor.objects import Configuration, PodSpec, Secret, Webhook

_SOON = timedelta(days=14)  # ours is renewed a month before its end
_RENEW = (
    "`SelfManaged`: the log of the Lease's holder says what keeps it from renewing. `CertManager`:"
    " `kubectl describe certificate`. `ExistingSecret`: put a new pair into the Secret"
)
_TRUST = (
    "`SelfManaged`: the Lease's holder writes `caBundle` within seconds, its log says why not, and"
    " another controller may write it back. Else put the issuer into `webhook.caBundle`"
)


async def certificates(at: Installation) -> AsyncIterator[Finding]:
    """Compare the certificate in the Secret, and what replicas serve, with each `caBundle`."""
    ours, now = await at.ours(), at.now()
    for configuration in ours.values():
        for finding in _authorities(configuration, now):
            yield finding
    leaf = await _kept(at)
    if isinstance(leaf, Finding):
        yield leaf
    elif leaf is not None:
        yield _time_left("the certificate in the Secret", leaf.not_valid_after_utc, now)
        for configuration in ours.values():
            for webhook in configuration.webhooks:
                yield _trusted(webhook, leaf, now)
    for name, state in states(await at.replicas()):
        yield _time_left(f"what {name} serves", state.certificate.expires_at, now)
        if state.certificate.is_trusted is False:
            message = f"the API server does not trust what {name} serves"
            yield Finding(Level.PROBLEM, message, _TRUST)


def _authorities(configuration: Configuration, now: datetime) -> Iterator[Finding]:
    for webhook in configuration.webhooks:
        trusted = certificates_of(webhook.client_config.ca_bundle)
        if not trusted:
            yield Finding(Level.PROBLEM, f"{webhook.name} has no usable `caBundle`", _TRUST)
        elif not any(is_valid(one, now) for one in trusted):
            yield Finding(Level.PROBLEM, f"all of the `caBundle` of {webhook.name} expired", _TRUST)


async def _kept(at: Installation) -> x509.Certificate | Finding | None:
    """Return the certificate in the Secret, or why there is none; None if no Secret is used."""
    deployment = await at.deployment()
    name = "" if deployment is None else _secret(deployment.spec.template.spec)
    if not name:
        return None
    title = f"Secret {at.namespace}/{name}"
    try:
        secret = await at.read(f"/api/v1/namespaces/{at.namespace}/secrets/{name}", Secret)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return Finding(Level.PROBLEM, f"there is no {title}", _RENEW)
        message = f"{title} is not looked at: {error.message}"
        return Finding(Level.NOTE, message, "replicas tell what they serve, see below")
    found = certificates_of(secret.data.certificate)
    return found[0] if found else Finding(Level.PROBLEM, f"{title} has no certificate", _RENEW)


def _secret(spec: PodSpec) -> str:
    mounted = (one.secret.secret_name for one in spec.volumes if one.secret and one.name == "tls")
    return spec.setting("STOWPLAN_CERTIFICATE_SECRET") or next(mounted, "")


def _trusted(webhook: Webhook, leaf: x509.Certificate, now: datetime) -> Finding:
    called = webhook.client_config
    issuers = certificates_of(called.ca_bundle)
    if not any(is_valid(one, now) and is_signed_by(leaf, one) for one in issuers):
        message = f"no authority in the `caBundle` of {webhook.name} signed the certificate"
        return Finding(Level.PROBLEM, message, _TRUST)
    if not is_for(leaf, [called.host]):
        message = f"the certificate is not for `{called.host}`, by which {webhook.name} is called"
        return Finding(Level.PROBLEM, message, "see `certificates.extraNames` of the chart")
    return Finding(Level.OK, f"{webhook.name} trusts the certificate, for `{called.host}`")


def _time_left(what: str, until: datetime, now: datetime) -> Finding:
    if until <= now:
        return Finding(Level.PROBLEM, f"{what} has expired at {until:%Y-%m-%d %H:%M} UTC", _RENEW)
    days = (until - now).days
    if until - now < _SOON:
        return Finding(Level.WARNING, f"{what} ends in {days} days, and was not renewed", _RENEW)
    return Finding(Level.OK, f"{what} is valid for {days} days")
