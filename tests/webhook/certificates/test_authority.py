from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from webhook.certificates import Authority, bundle_of
from webhook.certificates.authority import certificates_of, is_for, is_signed_by, is_valid

NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NAMES = ("stowplan.system.svc", "127.0.0.1")


def verified(leaf: x509.Certificate, bundle: bytes, name: str, at: datetime) -> bool:
    """Whether a strict verifier accepts a certificate for a name at a moment."""
    builder = PolicyBuilder().store(Store(list(certificates_of(bundle)))).time(at)
    try:
        builder.build_server_verifier(x509.DNSName(name)).verify(leaf, [])
    except VerificationError:
        return False
    return True


def test_what_an_authority_issues_is_verified_through_it_within_its_time() -> None:
    authority = Authority.new(now=NOW, valid_for=10 * DAY)
    pair = authority.issue(NAMES, now=NOW, valid_for=3 * DAY)
    leaf = pair.leaf(NOW)
    assert verified(leaf, pair.ca_pem, NAMES[0], NOW)
    assert not verified(leaf, pair.ca_pem, "elsewhere.system.svc", NOW)
    assert not verified(leaf, pair.ca_pem, NAMES[0], NOW + 4 * DAY)


def test_a_caller_whose_clock_is_four_minutes_behind_accepts_it() -> None:
    authority = Authority.new(now=NOW, valid_for=10 * DAY)
    pair = authority.issue(NAMES, now=NOW, valid_for=DAY)
    assert verified(pair.leaf(NOW), pair.ca_pem, NAMES[0], NOW - timedelta(minutes=4))


def test_a_certificate_never_outlives_its_authority() -> None:
    authority = Authority.new(now=NOW, valid_for=10 * DAY)
    leaf = authority.issue(NAMES, now=NOW, valid_for=90 * DAY).leaf(NOW)
    assert leaf.not_valid_after_utc == NOW + 10 * DAY


def test_a_kept_authority_signs_as_before() -> None:
    first = Authority.new(now=NOW, valid_for=10 * DAY)
    kept = Authority.of(first.certificate, first.key_pem)
    assert kept is not None
    leaf = kept.issue(NAMES, now=NOW, valid_for=DAY).leaf(NOW)
    assert is_signed_by(leaf, first.certificate)


@pytest.mark.parametrize("what", ["nothing", "garbled", "another", "rsa"])
def test_an_authority_without_its_key_cannot_be_taken_up(what: str) -> None:
    certificate = Authority.new(now=NOW, valid_for=DAY).certificate
    key_pem = {
        "nothing": b"",
        "garbled": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "another": Authority.new(now=NOW, valid_for=DAY).key_pem,
        "rsa": rsa.generate_private_key(65_537, 2048).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        ),
    }[what]
    assert Authority.of(certificate, key_pem) is None


def test_two_authorities_made_at_one_moment_are_told_apart() -> None:
    one, other = (Authority.new(now=NOW, valid_for=DAY) for _ in range(2))
    leaf = other.issue(NAMES, now=NOW, valid_for=DAY).leaf(NOW)
    assert not is_signed_by(leaf, one.certificate)
    assert verified(leaf, bundle_of([one.certificate, other.certificate]), NAMES[0], NOW)


def test_a_bundle_keeps_its_order_and_each_authority_once() -> None:
    one, other = (Authority.new(now=NOW, valid_for=DAY).certificate for _ in range(2))
    assert certificates_of(bundle_of([other, one, other])) == (other, one)
    assert certificates_of(b"not PEM") == ()


def test_a_certificate_is_for_the_names_in_it() -> None:
    authority = Authority.new(now=NOW, valid_for=DAY)
    leaf = authority.issue(NAMES, now=NOW, valid_for=DAY).leaf(NOW)
    assert is_for(leaf, ["127.0.0.1"])
    assert not is_for(leaf, [*NAMES, "another"])
    assert not is_for(authority.certificate, NAMES)


def test_validity_ends_at_its_last_moment() -> None:
    certificate = Authority.new(now=NOW, valid_for=DAY).certificate
    assert is_valid(certificate, NOW)
    assert not is_valid(certificate, NOW + DAY)
    assert not is_valid(certificate, NOW - DAY)


def test_keys_are_not_shown() -> None:
    authority = Authority.new(now=NOW, valid_for=DAY)
    pair = authority.issue(NAMES, now=NOW, valid_for=DAY)
    assert "PRIVATE" not in repr(pair)
    assert "key" not in repr(authority)
