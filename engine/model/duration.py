"""Go duration texts (`5m0s`, `1.5h`), as Kubernetes writes them in metav1.Duration fields."""

from __future__ import annotations

import re
from decimal import Decimal

from engine.errors import StowplanError

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]{0,18}(?:\.[0-9]{0,18})?)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_MOST = 2**63 - 1
_LONGEST = 128


class DurationError(StowplanError, ValueError):
    """A text that is not a Go duration."""


def parse_duration(text: str) -> int:
    """Return the nanoseconds of a Go duration.

    An empty text is zero, as an absent field is.

    Raises:
        DurationError: the text is not a duration, or it exceeds 64 bits.
    """
    if text in ("", "0"):
        return 0
    sign, digits = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    total, at = Decimal(0), 0
    while at < len(digits) <= _LONGEST:
        part = _PART.match(digits, at)
        if part is None or part[1] in ("", "."):
            break
        total += Decimal(part[1]) * _UNITS[part[2]]
        at = part.end()
    if at == 0 or at != len(digits) or total > _MOST:
        raise DurationError(f"`{text[:_LONGEST]}` is not a duration such as `5m` or `1h30m`")
    return sign * int(total)
