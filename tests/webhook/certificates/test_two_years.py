"""Two years of rotation with three replicas: at every step every caller verifies every replica."""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass, field
from datetime import timedelta

from cryptography import x509

from tests.webhook.certificates.installed import FOREIGN, NAMES, OURS, Cluster, cluster
from tests.webhook.certificates.test_authority import verified
from tests.webhook.handshakes import shaken_hands
from webhook.certificates.authority import certificates_of
from webhook.certificates.secret import SecretSource
from webhook.controllers.certificate_rotation import Rotation
from webhook.serving.tls import LiveCertificate

_NO_CHECK_TIME = 0x20_0000  # X509_V_FLAG_NO_CHECK_TIME: the years are simulated
_BUSY_STEP = timedelta(seconds=45)
_QUIET_STEP = timedelta(days=5)
_BUSY_STEPS = 6  # together longer than a new authority must be trusted before it is used
_YEARS = timedelta(days=730)


@dataclass(slots=True)
class Replica:
    """What one replica has: it may lead, it looks at the Secret, it serves."""

    rotation: Rotation
    source: SecretSource
    leads: bool = False
    certificate: LiveCertificate | None = None

    async def look(self, here: Cluster) -> None:
        await self.source.refresh()
        if self.certificate is None:
            self.certificate = LiveCertificate(self.source, client_ca=None, now=lambda: here.now)
        else:
            await self.certificate.renew()


def replica(here: Cluster) -> Replica:
    def leads() -> bool:
        return one.leads

    rotation = Rotation(
        here.store(), here.bundles(), names=NAMES, is_leader=leads, now=lambda: here.now
    )
    source = SecretSource(here.store(), here.bundles(), now=lambda: here.now)
    one = Replica(rotation, source)
    return one


def caller_trusting(bundle: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle.decode())
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT | _NO_CHECK_TIME
    return context


@dataclass(slots=True)
class Seen:
    """What came by in two years."""

    leaves: set[int] = field(default_factory=set)
    authorities: set[x509.Certificate] = field(default_factory=set)
    most_trusted: int = 0
    shortest_left: timedelta = timedelta.max
    handshakes: int = 0

    def check(self, here: Cluster, one: Replica, bundle: bytes) -> None:
        """Call a replica as an API server with this bundle does."""
        assert one.certificate is not None
        name = NAMES[0]
        shown = shaken_hands(one.certificate.current.context, caller_trusting(bundle), name)
        der = shown.getpeercert(binary_form=True)
        assert der is not None
        leaf = x509.load_der_x509_certificate(der)
        assert verified(leaf, bundle, name, here.now)
        self.handshakes += 1
        self.leaves.add(leaf.serial_number)
        trusted = certificates_of(bundle)
        self.authorities.update(trusted)
        self.most_trusted = max(self.most_trusted, len(trusted))
        self.shortest_left = min(self.shortest_left, leaf.not_valid_after_utc - here.now)


async def test_every_caller_verifies_every_replica_at_every_step_of_two_years() -> None:
    chance = random.Random(7)
    async with cluster(OURS, FOREIGN) as here:
        replicas = [replica(here) for _ in range(3)]
        foreign = here.configurations(FOREIGN)
        seen, end, busy = Seen(), here.now + _YEARS, 0
        known_to_callers: set[bytes] = set()
        while here.now < end:
            # 1. Any replica may lead next; it acts first, for the others may be slow to look.
            for one in replicas:
                one.leads = False
            leader = chance.choice(replicas)
            leader.leads = True
            written = len(here.writes())
            await leader.rotation.step()
            busy = _BUSY_STEPS if len(here.writes()) > written else busy - 1

            # 2. In busy times some replicas are behind, and so are some API servers.
            for one in replicas:
                if busy <= 0 or one.certificate is None or chance.random() < 0.5:
                    await one.look(here)
            told = set(here.bundles_of(OURS))
            for bundle in told | (known_to_callers or told):
                for one in replicas:
                    seen.check(here, one, bundle)
            assert all(one.certificate and one.certificate.bundle_matches for one in replicas)
            known_to_callers = told
            here.now += _BUSY_STEP if busy > 0 else _QUIET_STEP

        assert here.configurations(FOREIGN) == foreign
    # Authorities on days 0, 190, 380 and 570 (185, or the next step of five days after it).
    assert len(seen.authorities) == 4
    assert seen.most_trusted == 2
    # Each is in use for about 60 days, less where a new authority comes first.
    assert 12 <= len(seen.leaves) <= 16
    assert seen.shortest_left > timedelta(days=30) - _QUIET_STEP - timedelta(days=1)
    assert seen.handshakes > 500
