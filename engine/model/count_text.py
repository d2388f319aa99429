"""Numbers of things as people write them, in messages and reports."""

from __future__ import annotations


def counted(number: int, name: str, plural: str = "") -> str:
    """Return a number of things: `1 pod`, `1,200 pods`, `2 policies`.

    Args:
        number: how many there are.
        name: of one of them.
        plural: of several; the name with an `s`, if not given.
    """
    return f"{number:,} {name if number == 1 else plural or f'{name}s'}"
