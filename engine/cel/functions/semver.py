"""Semantic versions: `semver('1.30.2').isLessThan(semver('v1.31', true))`.

Source: apiserver `pkg/cel/library/semverlib.go`, which parses with blang/semver v4; precedence is
section 11 of semver 2.0.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, INT, UINT_MAX, CelType, Opaque, to_int
from engine.errors import CelError

MAX_LENGTH: Final = 256  # characters

# At most the digits of 2**64: converting more takes time quadratic in their number.
_NUMBER: Final = "0|[1-9][0-9]{0,19}"
_IDENTIFIERS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_IDENTIFIERS}))?(?:\+{_IDENTIFIERS})?"
)
_IS_NUMBER: Final = re.compile(_NUMBER)

_Identifier: TypeAlias = tuple[int, int, str]
"""(0, number, "") or (1, 0, text): numbers come before texts, each in their own order."""


@dataclass(frozen=True, slots=True)
class Semver(Opaque):
    """A semantic version, without build metadata, which is checked but never distinguishes two."""

    core: tuple[int, int, int]  # major, minor, patch
    prerelease: tuple[_Identifier, ...]  # empty for a release
    cel_type: ClassVar[CelType] = CelType("kubernetes.Semver")

    @property
    def precedence(self) -> tuple[tuple[int, int, int], bool, tuple[_Identifier, ...]]:
        """Sort key: a release comes after all its prereleases."""
        return (self.core, not self.prerelease, self.prerelease)


def semver(text: str, normalize: bool = False) -> Semver:  # noqa: FBT001, FBT002 (as CEL calls it)
    """Parse a version.

    With `normalize` a leading `v`, leading zeros and a missing minor or patch number are accepted.
    """
    if len(text) > MAX_LENGTH:
        raise CelError(f"a semantic version is at most {MAX_LENGTH} characters long")
    match = _VERSION.fullmatch(_normalized(text) if normalize else text)
    if match is None:
        raise CelError(f"`{text}` is not a semantic version")
    major, minor, patch = (_number(digits, text) for digits in match.group(1, 2, 3))
    identifiers = match.group(4).split(".") if match.group(4) else ()
    return Semver((major, minor, patch), tuple(_identifier(part, text) for part in identifiers))


def _normalized(text: str) -> str:
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", maxsplit=2)]
    # A short version with a prerelease or build stays short, and is refused.
    if len(parts) < 3 and not set(parts[-1]) & set("+-"):  # noqa: PLR2004 (major, minor, patch)
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _without_zeros(part: str) -> str:
    """Return the part with the leading zeros of its number dropped; `00-rc.1` keeps one."""
    return re.sub(r"^0+(?=[0-9])", "", part)


def _number(digits: str, text: str) -> int:
    number = int(digits)
    if number > UINT_MAX:
        raise CelError(f"`{text}` has a number of more than 64 bits")
    return number


def _identifier(part: str, text: str) -> _Identifier:
    if not part.isdigit():
        return (1, 0, part)
    if not _IS_NUMBER.fullmatch(part):
        raise CelError(f"`{text}` has a number with leading zeros, or a too long one")
    return (0, _number(part, text), "")


def is_semver(text: str, normalize: bool = False) -> bool:  # noqa: FBT001, FBT002 (as CEL calls it)
    try:
        semver(text, normalize)
    except CelError:
        return False
    return True


def major(version: Semver) -> int:
    return to_int(version.core[0])


def minor(version: Semver) -> int:
    return to_int(version.core[1])


def patch(version: Semver) -> int:
    return to_int(version.core[2])


def compare_to(left: Semver, right: Semver) -> int:
    if left.precedence == right.precedence:
        return 0
    return -1 if is_less_than(left, right) else 1


def is_less_than(left: Semver, right: Semver) -> bool:
    return left.precedence < right.precedence


def is_greater_than(left: Semver, right: Semver) -> bool:
    return left.precedence > right.precedence


_TYPE: Final = Semver.cel_type

FUNCTIONS: Final = (
    Overload("semver", (str,), semver, result=_TYPE, folds=True),
    Overload("semver", (str, bool), semver, result=_TYPE, folds=True),
    Overload("isSemver", (str,), is_semver, result=BOOL),
    Overload("isSemver", (str, bool), is_semver, result=BOOL),
    Overload("major", (Semver,), major, member=True, result=INT),
    Overload("minor", (Semver,), minor, member=True, result=INT),
    Overload("patch", (Semver,), patch, member=True, result=INT),
    Overload("compareTo", (Semver, Semver), compare_to, member=True, result=INT),
    Overload("isLessThan", (Semver, Semver), is_less_than, member=True, result=BOOL),
    Overload("isGreaterThan", (Semver, Semver), is_greater_than, member=True, result=BOOL),
)
