"""The serving certificate of the bench, which changes in endurance runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from webhook.certificates import Authority

_NAMES = ("localhost", "127.0.0.1")
_AUTHORITY_DAYS = 2


class Certificates:
    """A serving pair in two files, renewed at will by an authority that stays."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        self._authority = Authority.new(now=now, valid_for=timedelta(days=_AUTHORITY_DAYS))
        self._issued = 0
        self.ca, self.cert, self.key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
        self.ca.write_bytes(self._authority.certificate.public_bytes(Encoding.PEM))
        self.renew()

    def renew(self) -> float:
        """Replace the pair; returns when the new one expires, seconds since 1970."""
        self._issued += 1
        now = datetime.now(UTC).replace(microsecond=0)
        until = timedelta(days=1, minutes=self._issued)
        pair = self._authority.issue(_NAMES, now=now, valid_for=until)
        for file, text in ((self.cert, pair.cert_pem), (self.key, pair.key_pem)):
            new = file.with_suffix(".new")
            new.write_bytes(text)
            new.replace(file)
        return (now + until).timestamp()

    @property
    def flags(self) -> list[str]:
        """How a server is told of the pair."""
        return [f"--tls-cert={self.cert}", f"--tls-key={self.key}"]
