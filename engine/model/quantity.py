"""Kubernetes quantities: `500m`, `1.5Gi`, `2e3`, exact.

The rules are those of apimachinery's `resource.Quantity` (v1.36): parseQuantityString and
ParseQuantity for reading, CanonicalizeBytes for writing. A quantity holds at most nine fractional
digits, so an integer count of nano-units represents every one of them exactly.

No Python library reads them exactly, in all formats and within bounds. Whatever upstream accepts is
read here: what the API server stores must count. Two things differ on purpose. Upstream bounds no
value, and `1e1000000000` costs it a gigabyte; here a value of more than `MAX_DIGITS` digits
becomes the greatest one. Upstream lets values beyond int64 wrap when they are read as integers;
here they saturate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from engine.errors import QuantityError

# Names of resources and their families.
#
# The scheduler counts cpu, memory, ephemeral-storage and pods one by one, the *scalar* families by
# name, and silently ignores every other name.


CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources that every node offers."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME: Final = re.compile(
    rf"(?=[^/]{{1,244}}/){_LABEL}(?:\.{_LABEL})*/"
    r"(?=.{1,63}$)[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
"""`domain/name`; 244 is a DNS subdomain's 253 less `requests.`, which a quota puts before it."""


def is_scalar(name: str) -> bool:
    """Return whether the scheduler counts `name` besides cpu, memory, ephemeral-storage and pods.

    Other unprefixed names, such as `gpu`, are counted nowhere
    (pkg/scheduler/util/utils.go, IsScalarResourceName).
    """
    return (
        is_extended(name)
        or is_huge_pages(name)
        or is_prefixed_native(name)
        or name.startswith("attachable-volumes-")
    )


def is_extended(name: str) -> bool:
    """Return whether `name` is a vendor's: a qualified name outside Kubernetes' own domains.

    Source: pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName.
    """
    return (
        "/" in name  # false for most names, and ten times as fast as the rest
        and not is_prefixed_native(name)
        and not name.startswith("requests.")
        and _QUALIFIED_NAME.fullmatch(name) is not None
    )


def is_huge_pages(name: str) -> bool:
    """Return whether `name` is an amount of huge pages of one size."""
    return name.startswith("hugepages-")


def counts_bytes(name: str) -> bool:
    """Return whether `name` counts bytes, such as `memory` and `kubernetes.io/batch-memory`."""
    return name.endswith((MEMORY, EPHEMERAL_STORAGE)) or is_huge_pages(name)


def is_prefixed_native(name: str) -> bool:
    """Return whether `name` lies in `kubernetes.io/` or a domain that ends so."""
    return "kubernetes.io/" in name


INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

NANO: Final = -9
MILLI: Final = -3

MAX_TEXT: Final = 128
"""The longest text that is kept in memory, as the source of a quantity or in a cache."""

MAX_DIGITS: Final = 256
"""Digits of the greatest value in nano-units, which fits a float64; greater ones become it."""

_NANOS: Final = 10**9
_KIBI: Final = 1024
_GREATEST: Final = 10**MAX_DIGITS
_BINARY_CAP: Final = INT64_MAX * _NANOS
_INT64_DIGITS: Final = 19
_BINARY_PLACES: Final = 128  # as 2**-60 of a nano has 69, further ones only decide the rounding
_DIRECT_DIGITS: Final = 18
_DIRECT_BINARY_DIGITS: Final = 14
_CACHED_TEXTS: Final = 4_096
"""Cached texts: a cluster repeats a few thousand distinct ones.

Measured usage, which does not repeat, fills any cache: 4 times as many are 9 MiB more.
"""


class Format(StrEnum):
    """The style in which a quantity was written, and in which its canonical text is."""

    DECIMAL_SI = "DecimalSI"  # 12M
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


_DECIMAL_SUFFIXES: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
"""Suffix to power of ten."""

_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Suffix to power of two."""

_DECIMAL_BY_POWER: Final = {power: suffix for suffix, power in _DECIMAL_SUFFIXES.items()}
_BINARY_BY_POWER: Final = {power: suffix for suffix, power in _BINARY_SUFFIXES.items()}

_SUFFIX_LETTERS: Final = "".join({*"".join([*_DECIMAL_SUFFIXES, *_BINARY_SUFFIXES])})
_EVERYDAY_TEXT: Final = 20
_RATIOS: Final[dict[tuple[str, int], tuple[int, int]]] = {
    (suffix, scale): (10 ** max(power - scale, 0), 10 ** max(scale - power, 0))
    for suffix, power in _DECIMAL_SUFFIXES.items()
    for scale in (0, MILLI)
} | {
    (suffix, scale): (2**power * 10**-scale, 1)
    for suffix, power in _BINARY_SUFFIXES.items()
    for scale in (0, MILLI)
}
"""Factor and divisor of the digits (rounded up), by suffix and power of ten of the unit."""

# Sign, whole digits without leading zeros, fraction, suffix. Possessive throughout: like the
# scanner upstream it never goes back, so it is linear in the length of the text.
_PARTS: Final = re.compile(r"([+-]?+)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?+[0-9]*+)")
_EXPONENT: Final = re.compile(r"[eE]([+-]?)([0-9]+)")


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount; compared, sorted and hashed by value alone: `1Gi == 1024Mi`."""

    nanos: int  # the value in units of 1e-9
    # the style of the canonical text
    format: Format = field(default=Format.DECIMAL_SI, compare=False)
    # the text it was read from, if upstream writes that text back unchanged
    source: str | None = field(default=None, compare=False)
    # the power of ten of the units that upstream counts it in, as an int64; None where it keeps a
    # big decimal
    scale: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        """Return what upstream's `String` and JSON encoding give: source or canonical text."""
        return self.source if self.source is not None else self.canonical()

    def __add__(self, other: Quantity) -> Quantity:
        """Return the exact sum; a zero on the left takes the format on the right."""
        return self._with(self.nanos + other.nanos, other)

    def __sub__(self, other: Quantity) -> Quantity:
        """Return the exact difference; a zero on the left takes the format on the right."""
        return self._with(self.nanos - other.nanos, other)

    def _with(self, nanos: int, other: Quantity) -> Quantity:
        """Return the sum or difference, kept as upstream keeps it (`int64Amount.Add`)."""
        format_ = self.format if self.nanos else other.format
        if self.scale is None or other.scale is None:
            return Quantity(nanos, format_)
        if not other.nanos:
            return Quantity(nanos, format_, scale=self.scale)
        if not self.nanos:
            return Quantity(nanos, format_, scale=other.scale)
        scale = min(self.scale, other.scale)
        unit = 10 ** (scale - NANO)
        counts = (part // unit for part in (self.nanos, other.nanos, nanos))
        fits = all(INT64_MIN <= count <= INT64_MAX for count in counts)
        return Quantity(nanos, format_, scale=scale if fits else None)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    @property
    def is_integer(self) -> bool:
        """Whether upstream's `AsInt64` gives the value, which `value()` then is.

        It does not for what it keeps in fractions or as a big decimal, `1000m` and `1.5Gi` too.
        """
        counted = self.scale is not None and self.scale >= 0
        return counted and INT64_MIN <= self.nanos // _NANOS <= INT64_MAX

    def compare(self, other: Quantity) -> int:
        """Return -1, 0 or 1 as this is less than, equal to or greater than `other`."""
        return (self.nanos > other.nanos) - (self.nanos < other.nanos)

    def value(self) -> int:
        """Return the value in whole units, as `scaled_value` rounds and saturates."""
        return self.scaled_value(0)

    def milli_value(self) -> int:
        """Return the value in thousandths, as `scaled_value` rounds and saturates."""
        return self.scaled_value(MILLI)

    def scaled_value(self, scale: int) -> int:
        """Return the value in units of 10**scale, rounded away from zero, within int64."""
        return to_int64(_shifted(self.nanos, NANO - scale))

    def round_up(self, scale: int) -> tuple[Quantity, bool]:
        """Return the value rounded away from zero to units of 10**scale, and if that is exact."""
        if scale <= NANO:
            return self, True
        rounded = _shifted(self.nanos, NANO - scale) * 10 ** (scale - NANO)
        if rounded == self.nanos:
            return self, True
        return Quantity(rounded, self.format), False

    def canonical(self) -> str:
        """Return the text that all quantities of this value and format share.

        The mantissa is an integer and the suffix the greatest one that leaves it so. Binary
        values that are not whole, or below 1024, are written as decimal ones.
        """
        if self.nanos == 0:
            return "0"
        whole, fraction = divmod(self.nanos, _NANOS)
        if self.format is Format.BINARY_SI and fraction == 0 and abs(whole) >= _KIBI:
            return _binary_text(whole)
        digits = str(self.nanos)
        mantissa = digits.rstrip("0")
        exponent = NANO + len(digits) - len(mantissa)
        if self.format is Format.DECIMAL_EXPONENT:
            power = exponent - exponent % 3
            suffix = f"e{power}" if power else ""
        else:
            # Upstream has no suffix past exa and drops the power there; the value must survive.
            power = min(exponent - exponent % 3, 18)
            suffix = _DECIMAL_BY_POWER[power]
        return mantissa + "0" * (exponent - power) + suffix


def parse_quantity(text: str) -> Quantity:
    """Return the quantity written as `text`, as upstream's `ParseQuantity` reads it.

    Digits past the ninth after the point round away from zero, so that no amount becomes
    nothing; binary values are capped at 2**63-1 in magnitude, others at 10**`MAX_DIGITS` nanos.
    Takes time linear in the length of the text.
    """
    parts = _PARTS.fullmatch(text) if text else None
    if parts is None:
        raise QuantityError(f"{_quoted(text)} is not a quantity", kind="format")
    sign, whole, fraction, suffix = parts.groups(default="")
    format_, power = _meaning_of(suffix, text)
    digits = (whole or "0") + fraction

    # `direct`: upstream reads such a text without big numbers. It shows in what follows.
    if format_ is Format.BINARY_SI:
        direct = not fraction and len(digits) + power * 3 // 10 <= _DIRECT_BINARY_DIGITS
        places = 0
        nanos = _binary_nanos(whole, fraction, power)
        looks_canonical = int(digits[-3:]) % 8 != 0  # so is the whole number
        if 0 < nanos < _NANOS:
            format_ = Format.DECIMAL_SI
    else:
        places = _int32(power - len(fraction))
        direct = len(digits) <= _DIRECT_DIGITS and places >= NANO
        looks_canonical = places % 3 == 0 and digits[0] != "0" and not digits.endswith("000")
        nanos = _decimal_nanos(digits.lstrip("0"), places)

    if not direct and not text[: parts.start(4)].strip("+-."):
        raise QuantityError(f"{_quoted(text)} has no number before its suffix", kind="numeric")
    source = text if direct and looks_canonical and len(text) <= MAX_TEXT else None
    scale = min(places, MAX_DIGITS) if direct else None
    return Quantity(-nanos if sign == "-" else nanos, format_, source, scale)


def _decimal_nanos(digits: str, places: int) -> int:
    """Return `digits * 10**places` in nanos, rounded up; without leading zeros."""
    count = len(digits) + places - NANO  # digits of the result
    if not digits:
        return 0
    if count > MAX_DIGITS:
        return _GREATEST
    if count <= 0:
        return 1
    rounds_up = bool(digits[count:].strip("0"))
    scale: int = 10 ** max(count - len(digits), 0)
    return int(digits[:count]) * scale + rounds_up


def _binary_nanos(whole: str, fraction: str, power: int) -> int:
    """Return `whole.fraction * 2**power` in nanos, rounded up and capped."""
    if len(whole) > _INT64_DIGITS:
        return _BINARY_CAP
    if len(fraction) > _BINARY_PLACES:
        rest = fraction[_BINARY_PLACES:].strip("0")
        fraction = fraction[:_BINARY_PLACES] + ("1" if rest else "")
    mantissa = int(whole + fraction or "0")
    return min(_shifted(mantissa << power, -len(fraction) - NANO), _BINARY_CAP)


def quantity_of(value: str | float | None) -> Quantity:
    """Return the quantity that JSON `value` stands for: a string, a bare number or null (zero).

    White space around a string is dropped, as upstream's decoder does.
    """
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return _new_quantity(value)  # nothing bounds the length of texts in a cache
    return _quantity(value)


@lru_cache(maxsize=_CACHED_TEXTS)
def _quantity(value: str | float | None) -> Quantity:
    return _new_quantity(value)


def _new_quantity(value: str | float | None) -> Quantity:
    if value is None:
        return Quantity(0)
    if isinstance(value, str):
        return parse_quantity(value.strip())
    if isinstance(value, int) and abs(value) >= _GREATEST:
        return Quantity(_GREATEST if value > 0 else -_GREATEST)
    # The shortest text of a float reads back as the same value as the literal it came from.
    return parse_quantity(str(value))


def base_units(name: str, value: str | float | None) -> int:
    """Return an amount of resource `name` as the scheduler counts it, within int64.

    That is millicores for cpu and whole units for everything else; fractions round away from zero
    (pkg/scheduler/framework/types.go, Resource.Add).
    """
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return _new_quantity(value).scaled_value(_base_scale(name))
    return _scaled(value, _base_scale(name))


def in_base_units(name: str, nanos: int) -> int:
    """Return an exact amount of resource `name` in the units of `base_units`."""
    return to_int64(_shifted(nanos, NANO - _base_scale(name)))


def to_int64(value: int) -> int:
    """Return the nearest int64."""
    return min(max(value, INT64_MIN), INT64_MAX)


# The name stays out of the key: it comes from users, and nothing bounds its length.
@lru_cache(maxsize=_CACHED_TEXTS)
def _scaled(value: str | float | None, scale: int) -> int:
    everyday = _everyday(value, scale) if isinstance(value, str) else None
    return quantity_of(value).scaled_value(scale) if everyday is None else everyday


def _everyday(text: str, scale: int) -> int | None:
    """Return `parse_quantity(text).scaled_value(scale)` if the text is digits and a suffix.

    Nearly all measurements have this form, and differ from each other: a cache has none of them.
    """
    digits = text.rstrip(_SUFFIX_LETTERS)
    ratio = _RATIOS.get((text[len(digits) :], scale))
    if ratio is None or len(text) > _EVERYDAY_TEXT or not (digits.isascii() and digits.isdecimal()):
        return None
    times, by = ratio
    return min(-(-int(digits) * times // by), INT64_MAX)


def _base_scale(name: str) -> int:
    """Return the power of ten of a resource's base unit."""
    return MILLI if name == CPU else 0


def amount_text(name: str, amount: int) -> str:
    """Return an amount in base units (see `in_base_units`) as the canonical quantity text.

    Bytes are written in binary units where those are exact: `2Gi`, but `1500`; a vendor's resource
    counts bytes if its name implies it, such as `kubernetes.io/batch-memory`.
    """
    if name == CPU:
        return Quantity(amount * 10**6).canonical()
    style = Format.BINARY_SI if counts_bytes(name) else Format.DECIMAL_SI
    return Quantity(amount * _NANOS, style).canonical()


def _meaning_of(suffix: str, text: str) -> tuple[Format, int]:
    """Return the format and the power (of two for binary, of ten otherwise) of a suffix."""
    power = _DECIMAL_SUFFIXES.get(suffix)
    if power is not None:
        return Format.DECIMAL_SI, power
    power = _BINARY_SUFFIXES.get(suffix)
    if power is not None:
        return Format.BINARY_SI, power
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(f"{_quoted(text)} has an unknown suffix", kind="suffix")
    negative, digits = exponent.groups()
    digits = digits.lstrip("0")
    power = int(f"{negative}{digits or 0}") if len(digits) <= _INT64_DIGITS else INT64_MAX + 1
    if not INT64_MIN <= power <= INT64_MAX:
        raise QuantityError(f"{_quoted(text)} has too great an exponent", kind="suffix")
    return Format.DECIMAL_EXPONENT, _int32(power)


def _int32(power: int) -> int:
    """Return a power of ten as upstream holds it: the lowest 32 bits."""
    return (power + 2**31) % 2**32 - 2**31


def _binary_text(whole: int) -> str:
    """Return a whole number, at least 1024 in magnitude, with the greatest suffix dividing it."""
    power = 0
    while whole % _KIBI == 0 and power < max(_BINARY_BY_POWER):
        whole //= _KIBI
        power += 10
    return f"{whole}{_BINARY_BY_POWER[power] if power else ''}"


def _shifted(value: int, places: int) -> int:
    """Return `value * 10**places`, rounded away from zero."""
    factor: int = 10 ** abs(places)
    if places >= 0:
        return value * factor
    return -(-value // factor) if value > 0 else value // factor


CACHES: Final = (_quantity, _scaled)
"""Every cache of this module; none holds a text that is longer than `MAX_TEXT`."""


def _quoted(text: str) -> str:
    """Return the text for a message, cut short if it is longer than any quantity."""
    return f"`{text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + '...'}`"
