"""Where the serving certificate comes from: files, the Secret of the replicas, or this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret_source import SecretSource
from webhook.certificates.secret_store import SecretStore
from webhook.cluster.client.connection import Connection
from webhook.controllers.certificate_rotation import Rotation
from webhook.serving.server import ANY_ADDRESS
from webhook.serving.tls import CertificateFiles, CertificateSource, SelfSigned
from webhook.settings import Settings


def local_certificate(settings: Settings, today: datetime) -> CertificateSource:
    """Return the source that needs no cluster: files, or a self-signed certificate."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        every = settings.reload_seconds
        return CertificateFiles(settings.tls_cert, settings.tls_key, every_seconds=every)
    host = () if settings.host in ANY_ADDRESS else (settings.host,)
    return SelfSigned(now=today, names=(*host, *settings.certificate_names))


def stored_certificate(
    connection: Connection,
    settings: Settings,
    secret: str,
    *,
    is_leader: Callable[[], bool],
    today: Callable[[], datetime],
) -> tuple[SecretSource, Rotation]:
    """Return the source that reads a Secret, and the controller that renews it.

    Args:
        connection: to the API server.
        settings: the settings.
        secret: name of the Secret.
        is_leader: whether this replica leads.
        today: the time of day.
    """
    store = SecretStore(connection, namespace=settings.namespace, name=secret)
    configurations = settings.webhook_configurations
    bundles = CaBundles(connection, mutating=configurations, validating=configurations)
    rotation = Rotation(
        store, bundles, names=settings.certificate_names, is_leader=is_leader, now=today
    )
    return SecretSource(store, bundles, now=today), rotation
