"""Amounts as people read them."""

from __future__ import annotations

from engine.model.rule_input import RuleInput, unit_of

_WHOLE = 100


def amount(value: int | None, resource: str, whole: int | None = None) -> str:
    """Return an amount in base units as people write it: `1.5 GiB`, `5.8 of 8 cores`.

    Args:
        value: None for nothing known.
        resource: its name.
        whole: what it is a part of, None for nothing.
    """
    if value is None:
        return "unknown"
    return RuleInput("", value, unit_of(resource), capacity=whole).describe()


def percent(part: int | None, whole: int | None) -> float | None:
    """Return a part in percent of a whole, to a tenth; None where either is unknown or nothing."""
    if part is None or not whole:
        return None
    return round(_WHOLE * part / whole, 1)


def points(value: float | None, *, signed: bool = False) -> str:
    """Return points of scores to a tenth; with their sign where they are a difference."""
    if value is None:
        return "unknown"
    return f"{value:+.1f}" if signed else f"{value:.1f}"


def moment_text(iso: str) -> str:
    """Return a moment in ISO 8601 of UTC as people read it: `2026-03-02 10:00:00 UTC`."""
    moment, offset, _ = iso.partition("+00:00")
    return f"{moment.replace('T', ' ')} UTC" if offset else iso
