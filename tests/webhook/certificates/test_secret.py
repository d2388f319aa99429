from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tests.patience import PATIENCE_SECONDS
from tests.webhook.certificates.installed import NAMES, OURS, SECRET, Cluster, cluster
from webhook.certificates import Authority, TlsError, bundle_of
from webhook.certificates import secret as module
from webhook.certificates.secret import SecretSource, StoredSecret
from webhook.cluster.client.connection import ApiError
from webhook.serving.tls import LiveCertificate


async def test_a_secret_that_is_missing_is_created_with_our_label() -> None:
    async with cluster() as here:
        store = here.store()
        missing = await store.read()
        assert (missing.version, missing.is_ours) == ("", True)
        written = await store.write(missing, {"ca.key": b"\x00\xff"})
        assert written == await store.read()
        assert here.secret() == {"ca.key": b"\x00\xff"}
        labels = here.server.objects("secrets")[SECRET]["metadata"]["labels"]
        assert labels == {"app.kubernetes.io/managed-by": "stowplan"}


async def test_a_change_leaves_other_entries_and_labels_alone() -> None:
    async with cluster() as here:
        here.put_secret({"ca.key": b"old", "note": b"mine"})
        store = here.store()
        await store.write(await store.read(), {"ca.key": b"new"})
        assert here.secret() == {"ca.key": b"new", "note": b"mine"}


@pytest.mark.parametrize("exists", [False, True])
async def test_of_two_writers_that_read_the_same_the_second_is_refused(*, exists: bool) -> None:
    async with cluster() as here:
        if exists:
            here.put_secret({"ca.key": b"old"})
        one, other = here.store(), here.store()
        read = await one.read(), await other.read()
        await one.write(read[0], {"ca.key": b"one"})
        with pytest.raises(ApiError) as refused:
            await other.write(read[1], {"ca.key": b"other"})
        assert refused.value.status == 409
        assert here.secret() == {"ca.key": b"one"}


@pytest.mark.parametrize(
    ("kind", "data", "ours"),
    [
        ("Opaque", {}, True),  # made by a chart, so that we need not be allowed to create any
        ("Opaque", {"ca.key": b"x"}, True),
        ("Opaque", {"password": b"x"}, False),
        ("Opaque", {"tls.crt": b"x", "tls.key": b"x"}, False),
        ("kubernetes.io/tls", {"tls.crt": b"x", "tls.key": b"x", "ca.crt": b"x"}, False),
        ("kubernetes.io/tls", {"tls.crt": b"", "tls.key": b""}, False),
        ("kubernetes.io/tls", {"ca.key": b"x"}, False),
    ],
)
async def test_whose_a_secret_is_shows_in_its_type_and_entries(
    kind: str, data: dict[str, bytes], *, ours: bool
) -> None:
    async with cluster() as here:
        here.put_secret(data, kind)
        assert (await here.store().read()).is_ours is ours


async def test_a_secret_that_cannot_be_read_is_not_taken_for_a_missing_one() -> None:
    async with cluster() as here:
        here.server.fail_next(1, 503)
        with pytest.raises(ApiError):
            await here.store().read()


def test_entries_are_not_shown() -> None:
    assert "hidden" not in repr(StoredSecret(data={"ca.key": b"hidden"}))


DAY = timedelta(days=1)


def source_of(here: Cluster) -> SecretSource:
    return SecretSource(here.store(), here.bundles(), now=lambda: here.now)


async def live(here: Cluster, source: SecretSource) -> LiveCertificate:
    await source.first()
    return LiveCertificate(source, client_ca=None, now=lambda: here.now)


async def test_before_anything_was_made_there_is_nothing_to_serve() -> None:
    async with cluster(OURS) as here:
        source = source_of(here)
        assert not await source.refresh()
        with pytest.raises(TlsError, match="secret `system/stowplan-certificates`: no certificate"):
            source.pair()


async def test_a_replica_waits_for_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_REFRESH_SECONDS", 0.01)
    async with cluster(OURS) as here:
        expired = Authority.new(now=here.now - 9 * DAY, valid_for=DAY)
        pair = expired.issue(NAMES, now=here.now - 9 * DAY, valid_for=DAY)
        here.put_secret({"ca.key": b"", "tls.crt": pair.cert_pem, "tls.key": pair.key_pem})
        source = source_of(here)
        waiting = asyncio.ensure_future(source.first())
        await here.server.until(lambda: len(here.server.requests) > 5)
        assert not waiting.done()
        await here.rotation().step()
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert LiveCertificate(source, client_ca=None, now=lambda: here.now).bundle_matches


@pytest.mark.parametrize("what", ["gone", "emptied", "garbled", "unreachable"])
async def test_the_last_good_pair_is_served_when_the_secret_is_removed_or_broken(what: str) -> None:
    async with cluster(OURS) as here:
        await here.rotation().step()
        source = source_of(here)
        certificate = await live(here, source)
        before = certificate.current
        if what == "gone":
            here.server.delete("secrets", *SECRET)
        elif what == "unreachable":
            here.server.fail_next(1, 0)
        else:
            value = b"" if what == "emptied" else b"-----BEGIN"
            here.put_secret({**here.secret(), "tls.crt": value})
        if await source.refresh():
            await certificate.renew()
        assert certificate.current is before


async def test_whether_callers_trust_us_follows_the_configurations() -> None:
    async with cluster() as here:
        await here.rotation().step()
        source = source_of(here)
        certificate = await live(here, source)
        assert certificate.bundle_matches is None  # nobody was told to call us
        here.configure(OURS)
        await source.refresh()
        assert certificate.bundle_matches is False
        await here.rotation().step()
        await source.refresh()
        assert certificate.bundle_matches is True
        here.now += 365 * DAY  # the authority in the bundle expires
        assert certificate.bundle_matches is False


async def until_bundle_matches(certificate: LiveCertificate, *, says: bool) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while certificate.bundle_matches is not says:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)


async def test_a_bundle_that_changes_is_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 3600)
    async with cluster() as here:
        await here.rotation().step()
        certificate = await live(here, source_of(here))
        watching = asyncio.ensure_future(certificate.watch())
        await here.server.until(lambda: here.server.watches() == 2)
        here.configure(OURS)
        await until_bundle_matches(certificate, says=False)
        await here.rotation().step()
        await until_bundle_matches(certificate, says=True)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_one_webhook_that_does_not_trust_us_is_enough_not_to_match() -> None:
    async with cluster(OURS) as here:
        await here.rotation().step()
        stored = here.configurations(OURS)[0]
        stored["webhooks"][1]["clientConfig"]["caBundle"] = ""
        here.server.replace(stored)
        assert (await live(here, source_of(here))).bundle_matches is False


async def test_callers_that_trust_a_certificate_higher_up_in_the_chain_trust_us() -> None:
    async with cluster(OURS) as here:
        root = Authority.new(now=here.now, valid_for=2 * DAY)
        between = Authority.new(now=here.now, valid_for=2 * DAY)
        signed = cross_signed(between, root)
        pair = between.issue(NAMES, now=here.now, valid_for=DAY)
        chain = pair.cert_pem + bundle_of([signed])
        here.put_secret({"tls.crt": chain, "tls.key": pair.key_pem}, "kubernetes.io/tls")
        root_pem = bundle_of([root.certificate])
        await here.bundles().distribute(root_pem, may_write=lambda: True)
        assert (await live(here, source_of(here))).bundle_matches is True


def cross_signed(authority: Authority, by: Authority) -> x509.Certificate:
    """Return the certificate of an authority as another one vouches for it."""
    own = authority.certificate
    return (
        x509.CertificateBuilder()
        .subject_name(own.subject)
        .issuer_name(by.certificate.subject)
        .public_key(authority.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
        .sign(by.key, hashes.SHA256())
    )


async def test_the_pair_of_somebody_else_is_served() -> None:
    async with cluster(OURS) as here:
        pair = Authority.new(now=here.now, valid_for=DAY).issue(NAMES, now=here.now, valid_for=DAY)
        theirs = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
        here.put_secret(theirs, "kubernetes.io/tls")
        certificate = await live(here, source_of(here))
        assert certificate.current.expires_at == here.now + DAY
        assert certificate.bundle_matches is False


@asynccontextmanager
async def listening(context: ssl.SSLContext) -> AsyncIterator[int]:
    """Listen on a free port, answering each line with a line; yields the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def call(here: Cluster, port: int) -> AsyncIterator[Call]:
    """Connect as an API server does that trusts our configurations."""
    trust = ssl.create_default_context(cadata=here.bundles_of(OURS)[0].decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    yield Call(reader, writer)
    writer.close()
    await writer.wait_closed()


@dataclass(frozen=True, slots=True)
class Call:
    """An open connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def shown(self) -> bytes:
        """Return the certificate that the server has shown."""
        der: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return der

    async def is_answered(self) -> bool:
        self.writer.write(b"hello\n")
        return await self.reader.readline() == b"hello\n"


async def test_a_listening_server_shows_the_new_certificate_to_new_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_REFRESH_SECONDS", 0.01)
    async with cluster(OURS) as here, AsyncExitStack() as stack:
        here.now = datetime.now(UTC)
        await here.rotation().step()
        certificate = await live(here, source_of(here))
        port = await stack.enter_async_context(listening(certificate.current.context))
        before = await stack.enter_async_context(call(here, port))

        watching = asyncio.ensure_future(certificate.watch())
        here.put_secret({**here.secret(), "tls.crt": b"", "tls.key": b""})
        old = certificate.current
        await here.rotation().step()
        await here.server.until(lambda: certificate.current is not old)

        after = await stack.enter_async_context(call(here, port))
        assert await after.is_answered()
        assert await before.is_answered()  # it was kept open
        assert after.shown() != before.shown()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
