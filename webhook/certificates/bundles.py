"""The `caBundle` of our own webhook configurations: the authorities that callers trust."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from cryptography import x509

from engine.model import api
from webhook.background import in_background
from webhook.certificates.authority import certificates_of
from webhook.cluster.client.connection import ApiError, Requests, change, find_as, object_changes
from webhook.cluster.objects import UNREADABLE
from webhook.cluster.timing import Backoff

_API = "/apis/admissionregistration.k8s.io/v1"
_GATHER_SECONDS = 0.2  # Helm installs one configuration after the other
_WATCH_AGAIN_SECONDS = 5.0

_log = logging.getLogger(__name__)


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: bytes | None = None


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig


class _Configuration(msgspec.Struct, frozen=True):
    metadata: api.ObjectMeta
    webhooks: list[_Webhook] | None = None


class CaBundles:
    """The bundles of webhook configurations, found by name.

    A missing one is no error: it may be installed later, and is looked up every time.
    """

    def __init__(
        self, connection: Requests, *, mutating: Iterable[str], validating: Iterable[str]
    ) -> None:
        self._connection = connection
        self._paths = [
            *(f"{_API}/mutatingwebhookconfigurations/{name}" for name in mutating),
            *(f"{_API}/validatingwebhookconfigurations/{name}" for name in validating),
        ]

    async def read(self) -> tuple[tuple[x509.Certificate, ...], ...]:
        """Return the trusted authorities of each webhook; none where a bundle is not PEM."""
        return tuple(
            [
                certificates_of(webhook.client_config.ca_bundle or b"")
                async for _, configuration in self._existing()
                for webhook in configuration.webhooks or ()
            ]
        )

    async def distribute(self, bundle: bytes, *, may_write: Callable[[], bool]) -> bool:
        """Write this bundle to every webhook of every existing configuration that lacks it.

        Nothing else in a configuration changes. Returns whether all of them have it now.
        """
        async for path, configuration in self._existing():
            version = configuration.metadata.resource_version
            encoded = base64.b64encode(bundle).decode()
            changes = [
                {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}
                for index, webhook in enumerate(configuration.webhooks or ())
                if webhook.client_config.ca_bundle != bundle
            ]
            if changes:
                if not may_write():
                    return False
                await change(self._connection, path, version, changes)
                _log.info("caBundle of %s changed", path.removeprefix(f"{_API}/"))
        return True

    @asynccontextmanager
    async def change_events(
        self, every_seconds: float
    ) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Yield a function that waits for the next change of a configuration, or for a timeout.

        It returns some moments after a change, as others may follow. While changes do not end, such
        as where another controller undoes ours, these moments grow up to `every_seconds`, which is
        the timeout, too. Without the right to watch, only the timeout counts.
        """
        changed = asyncio.Event()
        pauses = Backoff(_GATHER_SECONDS, every_seconds)

        async def next_change() -> None:
            try:
                async with asyncio.timeout(every_seconds):
                    await changed.wait()
            except TimeoutError:
                pauses.reset()
                return
            await asyncio.sleep(pauses.next())
            changed.clear()

        async with AsyncExitStack() as stack:
            for path in self._paths:
                in_background(stack, self._watch(path, changed.set))
            yield next_change

    async def _watch(self, path: str, changed: Callable[[], None]) -> None:
        """Call `changed` for each change, and at the start of each watch; never returns."""
        while True:
            try:
                async with object_changes(self._connection, path) as changes:
                    async for _ in changes:  # the configuration is then read again
                        changed()
            except (ApiError, *UNREADABLE) as error:
                _log.debug("%s not watched: %s", path.removeprefix(f"{_API}/"), error)
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)

    async def _existing(self) -> AsyncIterator[tuple[str, _Configuration]]:
        for path in self._paths:
            configuration = await find_as(self._connection, path, _Configuration)
            if configuration is not None:
                yield path, configuration
