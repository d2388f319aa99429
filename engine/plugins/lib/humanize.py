"""Amounts in words, for the inputs of a formula: `10 of 8 cores`, `1.5 GiB`, `12 s old`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.model.resource_names import CPU, counts_bytes
from engine.model.time import SECOND, Micros
from engine.view import ClusterView, Sum

_MILLI: Final = 1000
_KIBI: Final = 1024
_BYTE_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
_MOST_DECIMALS: Final = 3


def amount_words(resource: str, amount: float) -> str:
    """Return an amount in base units as people write it: `1.5 cores`, `16 GiB`, `3`."""
    divisor, unit = _scale(resource, amount)
    return f"{number_words(amount / divisor)} {unit}".rstrip()


def part_words(resource: str, part: float, whole: float) -> str:
    """Return what part of a whole is taken, both in base units: `10 of 8 cores`."""
    divisor, unit = _scale(resource, max(abs(part), abs(whole)))
    taken, all_ = number_words(part / divisor), number_words(whole / divisor)
    return f"{taken} of {all_} {unit}".rstrip()


def requests_words(
    view: ClusterView, sums: Sum, row: int, own: Mapping[str, int]
) -> dict[str, str]:
    """Return what the pods of a node request with one more, of what it offers: `cpu requests`.

    Args:
        view: the cluster.
        sums: those of requests that count.
        row: the node.
        own: what the one more requests, by the resources to tell of.
    """
    return {
        f"{name} requests": part_words(
            name,
            int(view.amount(view.sums[sums], name)[row]) + amount,
            int(view.amount(view.allocatable, name)[row]),
        )
        for name, amount in own.items()
    }


def number_words(number: float) -> str:
    """Return a number with three decimals at most."""
    return f"{number:.{_MOST_DECIMALS}f}".rstrip("0").rstrip(".")


def report_words(view: ClusterView, row: int, now: Micros) -> str:
    """Return how old the usage report of a node is."""
    if view.usages[row] is None:
        return "none"
    reported_at = int(view.metric_time[row])
    return f"{(now - reported_at) // SECOND} s old" if reported_at else "without a time"


def _scale(resource: str, amount: float) -> tuple[int, str]:
    """Return what to divide an amount by, and the unit that it then is in."""
    if resource == CPU:
        return _MILLI, "core" if amount == _MILLI else "cores"
    if not counts_bytes(resource):
        return 1, ""
    power = 0
    while abs(amount) >= _KIBI ** (power + 1) and power + 1 < len(_BYTE_UNITS):
        power += 1
    return _KIBI**power, _BYTE_UNITS[power]
