"""The serving pair in the Secret, as every replica reads it, and whether callers trust it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec
from cryptography import x509

from webhook.certificates.authority import is_signed_by, is_valid
from webhook.certificates.bundles import CaBundles
from webhook.certificates.key_pair import KeyPair, TlsError
from webhook.certificates.secret_store import CERTIFICATE, SecretStore
from webhook.cluster.client.connection import ApiError

_REFRESH_SECONDS = 10.0
_FIRST_REFRESH_SECONDS = 0.5

_log = logging.getLogger(__name__)


class SecretSource:
    """A `CertificateSource` that reads a Secret now and then, whoever writes it.

    Without the Secret, or without the API server, the pair that was read last remains.

    Args:
        store: the Secret.
        bundles: the authorities that callers trust.
        now: the time of day.
    """

    def __init__(
        self, store: SecretStore, bundles: CaBundles, *, now: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._now = now
        self._pair: KeyPair | None = None
        self._trusted: tuple[tuple[x509.Certificate, ...], ...] = ()

    def pair(self) -> KeyPair:
        """Return the pair that was read last.

        Raises:
            TlsError: there was none yet.
        """
        if self._pair is None:
            raise TlsError(f"{self._store.title}: no certificate in it yet")
        return self._pair

    def is_trusted(self, chain: Sequence[x509.Certificate]) -> bool | None:
        """Whether each webhook in our configurations trusts an issuer in `chain`.

        None if there is no such configuration, or none has been read yet.
        """
        if not self._trusted:
            return None
        now = self._now()
        return all(
            any(
                is_valid(authority, now) and is_signed_by(link, authority)
                for authority in bundle
                for link in chain
            )
            for bundle in self._trusted
        )

    async def refresh(self) -> bool:
        """Read Secret and bundles once; return whether the pair has changed."""
        before = self._pair
        try:
            stored = await self._store.read()
            if stored.of(CERTIFICATE):
                self._pair = self._store.pair_in(stored)
            self._trusted = await self._bundles.read()
        except (ApiError, msgspec.DecodeError) as error:
            _log.warning("certificates could not be read: %s", error)
        return self._pair != before

    async def first(self) -> None:
        """Wait until there is a pair that can be served: the leader may have to make it first."""
        await self.refresh()
        while (problem := self._problem()) is not None:
            _log.debug("waiting for a certificate: %s", problem)
            await asyncio.sleep(_FIRST_REFRESH_SECONDS)
            await self.refresh()

    async def watch(self, changed: Callable[[], Awaitable[object]]) -> None:
        """Call `changed` after each change of the pair; the bundles have been read by then."""
        async with self._bundles.change_events(_REFRESH_SECONDS) as next_change:
            while True:
                await next_change()
                if await self.refresh():
                    await changed()

    def _problem(self) -> TlsError | None:
        """Return the reason why the pair cannot be served now."""
        try:
            self.pair().leaf(self._now())
        except TlsError as error:
            return error
        return None
