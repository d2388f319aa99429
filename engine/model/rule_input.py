"""One value that a rule was given for a node, as numbers for machines and as words for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from engine.model.resource_names import CPU, counts_bytes

Number: TypeAlias = int | float

_MILLI: Final = 1000
_KIBI: Final = 1024
_BYTE_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_MOST_DECIMALS: Final = 3


class Unit(StrEnum):
    """The unit of a number, the base unit of what it measures."""

    NONE = ""
    COUNT = "count"
    MILLICORES = "millicores"
    BYTES = "bytes"
    BYTES_PER_SECOND = "bytes/s"
    PERCENT = "percent"
    SECONDS = "seconds"  # an age


class RuleInput(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A named number with its unit, a text, or several of these.

    Attributes:
        name: of the value, such as `cpu usage`.
        value: the number, None for a text.
        unit: of `value`, `capacity`, `pod` and `deviation`.
        capacity: the whole that `value` is a part of.
        pod: the part of `value` that the pod adds.
        deviation: the standard deviation of `value` over time.
        allowed_percent: the highest `value` that passes, in percent of `capacity`.
        percent_of_nodes: the share of all nodes that have it.
        text: the value where it is no number: a label, taints, `none`.
        parts: the values it consists of: amounts of several resources, or those of each container.
    """

    name: str
    value: Number | None = None
    unit: Unit = Unit.NONE
    capacity: Number | None = None
    pod: Number | None = None
    deviation: Number | None = None
    allowed_percent: Number | None = None
    percent_of_nodes: Number | None = None
    text: str | None = None
    parts: tuple[RuleInput, ...] = ()

    def describe(self) -> str:
        """Return the value in words: `10 of 8 cores, 3.4 cores of it this pod, 65 % allowed`."""
        if self.parts:
            separator = "; " if any(part.parts for part in self.parts) else ", "
            return separator.join(f"{part.name} {part.describe()}".lstrip() for part in self.parts)
        if self.value is None:
            return self.text or ""
        words = [_quantity(self.unit, self.value, self.capacity)]
        if self.pod is not None:
            words.append(f"{_quantity(self.unit, self.pod)} of it this pod")
        if self.deviation is not None:
            words.append(f"deviation {_quantity(self.unit, self.deviation)}")
        if self.allowed_percent is not None:
            words.append(f"{self.allowed_percent} % allowed")
        if self.percent_of_nodes is not None:
            words.append(f"on {self.percent_of_nodes:.0f}% of nodes")
        return ", ".join(words)


RuleInputs: TypeAlias = tuple[RuleInput, ...]
"""The inputs of one rule for one node, in reading order."""


def unit_of(resource: str) -> Unit:
    """Return the base unit of a resource."""
    if resource == CPU:
        return Unit.MILLICORES
    return Unit.BYTES if counts_bytes(resource) else Unit.COUNT


def _quantity(unit: Unit, value: Number, whole: Number | None = None) -> str:
    """Return a number as people write it, with three decimals at most: `1.5 GiB`, `10 of 8 cores`.

    A part and its whole share the unit of the larger.
    """
    divisor, name = _scale(unit, value if whole is None else max(abs(value), abs(whole)))
    numbers = [value / divisor] if whole is None else [value / divisor, whole / divisor]
    texts = (f"{number:.{_MOST_DECIMALS}f}".rstrip("0").rstrip(".") for number in numbers)
    return f"{' of '.join(texts)} {name}".rstrip()


def _scale(unit: Unit, value: Number) -> tuple[int, str]:
    """Return the divisor of a number, and the name of its unit then."""
    match unit:
        case Unit.MILLICORES:
            return _MILLI, "core" if value == _MILLI else "cores"
        case Unit.BYTES | Unit.BYTES_PER_SECOND:
            power = 0
            while abs(value) >= _KIBI ** (power + 1) and power + 1 < len(_BYTE_UNITS):
                power += 1
            return _KIBI**power, _BYTE_UNITS[power] + ("/s" if unit is not Unit.BYTES else "")
        case Unit.PERCENT:
            return 1, "%"
        case Unit.SECONDS:
            return 1, "s old"
        case Unit.NONE | Unit.COUNT:
            return 1, ""
