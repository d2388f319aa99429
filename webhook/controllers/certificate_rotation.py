"""What the holder of the Lease does so that callers can always verify what any replica serves.

    new authority -> every configuration trusts it -> a while -> new certificate by it
        -> a day -> the old authority is dropped

A new authority is trusted before anything signed by it is served, and the old one for as long as a
replica may still serve what it signed. Every turn starts from what the Secret and the
configurations hold, so the next holder goes on where the last one stopped, and whatever is
missing, spoilt or expired is made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

import msgspec
from cryptography import x509

from webhook.certificates.authority import (
    CLOCK_SKEW,
    Authority,
    bundle_of,
    certificates_of,
    is_for,
    is_signed_by,
)
from webhook.certificates.bundles import CaBundles
from webhook.certificates.key_pair import TlsError
from webhook.certificates.secret_store import (
    AUTHORITY_KEY,
    BUNDLE,
    CERTIFICATE,
    KEY,
    SecretStore,
    StoredSecret,
)
from webhook.cluster.client.connection import ApiError

_LOOK_EVERY_SECONDS = 10.0
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
    """What the Secret holds that can still be used.

    Attributes:
        trusted: authorities in its bundle that have not expired, in its order.
        signer: the first of them with its key; None if either is lost.
        leaf: the certificate in it; None if it cannot be served.
    """

    trusted: tuple[x509.Certificate, ...]
    signer: Authority | None
    leaf: x509.Certificate | None


def next_step(
    held: SecretContents, *, names: Iterable[str], now: datetime, is_settled: bool
) -> Step | None:
    """Return what must be done at a moment; None if nothing, or nothing yet.

    Args:
        held: what there is.
        names: what a certificate must be for.
        now: the moment.
        is_settled: whether all callers have trusted the signer for long enough to meet it.
    """
    # 1. Somebody must be able to sign, for longer than a certificate lasts.
    if held.signer is None:
        return Step.NEW_AUTHORITY
    signer, leaf = held.signer.certificate, held.leaf
    if signer.not_valid_after_utc - now < _AUTHORITY_RENEWED_BEFORE:
        return Step.NEW_AUTHORITY

    # 2. What is served must be by that signer, which callers must know before they see it.
    by_signer = leaf is not None and is_signed_by(leaf, signer)
    if (
        leaf is None
        or not by_signer
        or not is_for(leaf, names)
        or leaf.not_valid_after_utc - now < _LEAF_RENEWED_BEFORE
    ):
        is_alone = held.trusted == (signer,)  # nobody serves what another has signed
        return Step.NEW_LEAF if by_signer or is_alone or is_settled else None

    # 3. What was served before is served no more.
    made_at = leaf.not_valid_before_utc + CLOCK_SKEW
    if len(held.trusted) > 1 and now - made_at >= _TRUSTED_AFTER_USE:
        return Step.DROP_OLD
    return None


class Rotation:
    """Looks after the Secret and the bundles for all replicas.

    Args:
        store: where certificates are kept.
        bundles: whom callers trust.
        names: host names and addresses that callers use for the webhook.
        is_leader: whether we may write now.
        now: the time of day.
    """

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
        self._told_foreign = False

    async def run(self) -> None:
        """Take turns until cancelled: a duty of the holder of the Lease.

        A configuration that comes without its bundle has no caller that could call us, so a turn
        is taken when one changes, and now and then anyway.
        """
        async with self._bundles.change_events(_LOOK_EVERY_SECONDS) as occasion:
            while True:
                try:
                    await self.step()
                except (ApiError, msgspec.DecodeError) as error:
                    _log.warning("certificates are looked after again soon: %s", error)
                await occasion()

    async def step(self) -> None:
        """Do all that can be done now; every write is refused if somebody else was faster.

        Raises:
            ApiError: something could not be read or written.
        """
        stored = await self._store.read()
        if not stored.is_ours:
            self._tell_foreign()
            return
        for _ in Step:  # each at most once, should somebody else undo what we write
            if not self._is_leader():
                return
            held = self._holdings(stored)
            await self._distribute(held)
            step = next_step(
                held,
                names=self._names,
                now=self._now(),
                is_settled=self._is_settled(held),
            )
            if step is None or not self._is_leader():
                return
            stored = await self._store.write(stored, await self._changes(step, held))
            _log.info("%s: %s", self._store.title, step.value)

    def _holdings(self, stored: StoredSecret) -> SecretContents:
        now = self._now()
        kept = certificates_of(stored.of(BUNDLE))
        trusted = tuple(one for one in kept if now < one.not_valid_after_utc)
        try:
            leaf = self._store.pair_in(stored).leaf(now)
        except TlsError:
            leaf = None
        return SecretContents(
            trusted=trusted,
            signer=Authority.of(trusted[0], stored.of(AUTHORITY_KEY)) if trusted else None,
            leaf=leaf,
        )

    async def _distribute(self, held: SecretContents) -> None:
        """Tell callers whom to trust, and note since when all of them know the signer.

        A configuration that cannot be written does not keep a known signer from signing.
        """
        if held.signer is None:
            return
        signer, bundle = held.signer.certificate, bundle_of(held.trusted)
        try:
            is_known = await self._bundles.distribute(bundle, may_write=self._is_leader)
        except ApiError as error:
            _log.warning("caBundle not changed: %s", error)
            is_known = False
        if not is_known:
            self._trusted_since = None
        elif self._trusted_since is None or self._trusted_since[0] != signer:
            self._trusted_since = signer, self._now()

    def _is_settled(self, held: SecretContents) -> bool:
        if held.signer is None or self._trusted_since is None:
            return False
        known, since = self._trusted_since
        return known == held.signer.certificate and self._now() - since >= _TRUSTED_BEFORE_USE

    async def _changes(self, step: Step, held: SecretContents) -> dict[str, bytes]:
        """Return the entries of the Secret that a step changes."""
        now = self._now()
        if step is Step.NEW_AUTHORITY or held.signer is None:
            new = Authority.new(now=now, valid_for=_AUTHORITY_VALID_FOR)
            # Replicas may serve what a lost Secret held: its authorities are known to callers.
            known = [one for bundle in await self._bundles.read() for one in bundle]
            old = (one for one in (*held.trusted, *known) if now < one.not_valid_after_utc)
            return {BUNDLE: bundle_of([new.certificate, *old]), AUTHORITY_KEY: new.key_pem}
        if step is Step.NEW_LEAF:
            pair = held.signer.issue(self._names, now=now, valid_for=_LEAF_VALID_FOR)
            return {CERTIFICATE: pair.cert_pem, KEY: pair.key_pem}
        return {BUNDLE: bundle_of([held.signer.certificate])}

    def _tell_foreign(self) -> None:
        if not self._told_foreign:
            self._told_foreign = True
            _log.warning(
                "%s was not made by us: it is served, and whoever made it renews it and tells"
                " callers whom to trust",
                self._store.title,
            )


def names_of_service(service: str, namespace: str, extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what callers may call a Service, and further names or addresses."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}",
        service,
        *extra,
    )
