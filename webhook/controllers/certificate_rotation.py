"""Rotation of authorities and certificates by the leader, so that callers can verify every replica.

    new authority -> every configuration trusts it -> a while -> new certificate by it
        -> a day -> the old authority is dropped

A new authority is trusted before anything signed by it is served, and the old one for as long as a
replica may still serve what it signed. Every step starts from the Secret and the configurations, so
the next leader goes on where the last one stopped, and whatever is missing, unusable or expired is
made anew. No library does this: cert-manager, which may be used instead, is a service of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import msgspec
from cryptography import x509

from webhook.certificates.authority import (
    CLOCK_SKEW,
    Authority,
    TlsError,
    bundle_of,
    certificates_of,
    is_for,
    is_signed_by,
)
from webhook.certificates.bundles import CaBundles
from webhook.certificates.secret import (
    AUTHORITY_KEY,
    BUNDLE,
    CERTIFICATE,
    KEY,
    SecretStore,
    StoredSecret,
)
from webhook.cluster.client.connection import ApiError

_STEP_EVERY_SECONDS = 10.0
_AUTHORITY_VALID_FOR = timedelta(days=365)  # as Kyverno's
_AUTHORITY_RENEWED_BEFORE = timedelta(days=180)  # two authorities half a year apart, as YuniKorn's
_LEAF_VALID_FOR = timedelta(days=90)  # always fits into what is left of its authority
_LEAF_RENEWED_BEFORE = timedelta(days=30)  # renewed at 60 days, as Kubewarden's
_TRUSTED_BEFORE_USE = timedelta(minutes=2)  # API servers notice a configuration in seconds
_TRUSTED_AFTER_USE = timedelta(days=1)  # replicas look every few seconds; one may be cut off

_log = logging.getLogger(__name__)


class Step(Enum):
    """A change of the Secret."""

    NEW_AUTHORITY = "a new authority, trusted beside the old ones"
    NEW_LEAF = "a new certificate to serve"
    DROP_OLD = "old authorities are trusted no more"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretContents:
    """The usable contents of the Secret."""

    # authorities in its bundle that have not expired, in its order
    trusted: tuple[x509.Certificate, ...]
    signer: Authority | None  # the first of them with its key; None if either is missing
    leaf: x509.Certificate | None  # the certificate in it; None if it cannot be served


def next_step(
    contents: SecretContents, *, names: Iterable[str], now: datetime, is_settled: bool
) -> Step | None:
    """Return the change that is due; None if none is, or not yet."""
    # 1. There must be a signer, for longer than a certificate lasts.
    if contents.signer is None:
        return Step.NEW_AUTHORITY
    signer, leaf = contents.signer.certificate, contents.leaf
    if signer.not_valid_after_utc - now < _AUTHORITY_RENEWED_BEFORE:
        return Step.NEW_AUTHORITY

    # 2. The served leaf must be by that signer, which callers must trust before.
    by_signer = leaf is not None and is_signed_by(leaf, signer)
    if (
        leaf is None
        or not by_signer
        or not is_for(leaf, names)
        or leaf.not_valid_after_utc - now < _LEAF_RENEWED_BEFORE
    ):
        is_alone = contents.trusted == (signer,)  # no replica serves what another has signed
        return Step.NEW_LEAF if by_signer or is_alone or is_settled else None

    # 3. Old authorities are dropped once no replica serves what they signed.
    made_at = leaf.not_valid_before_utc + CLOCK_SKEW
    if len(contents.trusted) > 1 and now - made_at >= _TRUSTED_AFTER_USE:
        return Step.DROP_OLD
    return None


class Rotation:
    """Updates the Secret and the bundles on behalf of all replicas."""

    def __init__(
        self,
        store: SecretStore,
        bundles: CaBundles,
        *,
        names: Iterable[str],
        is_leader: Callable[[], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._names = tuple(names)
        self._is_leader = is_leader
        self._now = now
        self._trusted_since: tuple[x509.Certificate, datetime] | None = None
        self._warned_foreign = False

    async def run(self) -> None:
        """Take steps until cancelled: a duty of the leader.

        The callers of a configuration without a bundle cannot reach us, so a step follows each
        change of a configuration, and now and then anyway.
        """
        async with self._bundles.change_events(_STEP_EVERY_SECONDS) as next_change:
            while True:
                try:
                    await self.step()
                except (ApiError, msgspec.DecodeError) as error:
                    _log.warning("certificates not updated, next attempt soon: %s", error)
                await next_change()

    async def step(self) -> None:
        """Make all changes that are due; the API server refuses a write if another was faster."""
        stored = await self._store.read()
        if not stored.is_ours:
            self._warn_foreign()
            return
        for _ in Step:  # each at most once, even if another writer undoes ours
            if not self._is_leader():
                return
            contents = self._contents(stored)
            await self._distribute(contents)
            step = next_step(
                contents,
                names=self._names,
                now=self._now(),
                is_settled=self._is_settled(contents),
            )
            if step is None or not self._is_leader():
                return
            stored = await self._store.write(stored, await self._changes(step, contents))
            _log.info("%s: %s", self._store.title, step.value)

    def _contents(self, stored: StoredSecret) -> SecretContents:
        now = self._now()
        bundle = certificates_of(stored.of(BUNDLE))
        trusted = tuple(_unexpired(bundle, now))
        try:
            leaf = self._store.pair_in(stored).leaf(now)
        except TlsError:
            leaf = None
        return SecretContents(
            trusted=trusted,
            signer=Authority.of(trusted[0], stored.of(AUTHORITY_KEY)) if trusted else None,
            leaf=leaf,
        )

    async def _distribute(self, contents: SecretContents) -> None:
        """Write the bundles, and record since when all callers trust the signer.

        A configuration that cannot be written does not keep a trusted signer from signing.
        """
        if contents.signer is None:
            return
        signer, bundle = contents.signer.certificate, bundle_of(contents.trusted)
        try:
            is_trusted = await self._bundles.distribute(bundle, may_write=self._is_leader)
        except ApiError as error:
            _log.warning("caBundle not changed: %s", error)
            is_trusted = False
        if not is_trusted:
            self._trusted_since = None
        elif self._trusted_since is None or self._trusted_since[0] != signer:
            self._trusted_since = signer, self._now()

    def _is_settled(self, contents: SecretContents) -> bool:
        if contents.signer is None or self._trusted_since is None:
            return False
        signer, since = self._trusted_since
        return signer == contents.signer.certificate and self._now() - since >= _TRUSTED_BEFORE_USE

    async def _changes(self, step: Step, contents: SecretContents) -> dict[str, bytes]:
        now = self._now()
        if step is Step.NEW_AUTHORITY or contents.signer is None:
            new = Authority.new(now=now, valid_for=_AUTHORITY_VALID_FOR)
            # Replicas may serve the pair of a lost Secret: its authorities are in the bundles.
            known = [authority for bundle in await self._bundles.read() for authority in bundle]
            old = _unexpired((*contents.trusted, *known), now)
            return {BUNDLE: bundle_of([new.certificate, *old]), AUTHORITY_KEY: new.key_pem}
        if step is Step.NEW_LEAF:
            pair = contents.signer.issue(self._names, now=now, valid_for=_LEAF_VALID_FOR)
            return {CERTIFICATE: pair.cert_pem, KEY: pair.key_pem}
        return {BUNDLE: bundle_of([contents.signer.certificate])}

    def _warn_foreign(self) -> None:
        if not self._warned_foreign:
            self._warned_foreign = True
            _log.warning(
                "%s was not made by us: it is served, and its maker has to renew it and to write"
                " the bundles",
                self._store.title,
            )


def _unexpired(
    certificates: Iterable[x509.Certificate], now: datetime
) -> Iterator[x509.Certificate]:
    return (certificate for certificate in certificates if now < certificate.not_valid_after_utc)
