"""Named formats of strings: `format.dns1123Label().validate(name)` is absent if the name is valid.

Sources: apiserver `pkg/cel/library/format.go` for the names, apimachinery `util/validation` and
`api/validate/content` for the Kubernetes ones, kube-openapi `strfmt` for the others. Messages
differ from upstream's. Its `datetime` also accepts some texts that are not RFC 3339 (any separator
before the fraction, anything after a second `t`); this one does not.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Final

from engine.cel.functions.network import check_url
from engine.cel.functions.registry import Overload
from engine.cel.values import ABSENT, OPTIONAL, CelType, Opaque, OptionalValue, present
from engine.errors import CelError

_LABEL_LENGTH: Final = 63  # bytes
_SUBDOMAIN_LENGTH: Final = 253

# Each pattern matches a text in at most one way, so matching is linear without RE2.
_LABEL: Final = re.compile(r"[a-z0-9]+(?:-+[a-z0-9]+)*")
_SUBDOMAIN: Final = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_OLD_LABEL: Final = re.compile(r"[a-z][a-z0-9]*(?:-+[a-z0-9]+)*")
_NAME: Final = re.compile(r"[A-Za-z0-9]+(?:[-_.]+[A-Za-z0-9]+)*")
_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-?[0-9A-Fa-f]{4}){3}-?[0-9A-Fa-f]{12}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_DATE: Final = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])-([0-9]{2})")
_TIME: Final = re.compile(
    r"(?:[01][0-9]|2[0-3])(?::[0-5][0-9]){2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True, slots=True)
class Format(Opaque):
    """A format by its name; `check` returns the problems of a text, none if it is valid."""

    name: str
    check: Callable[[str], list[str]] = field(compare=False)
    cel_type: ClassVar[CelType] = CelType("kubernetes.NamedFormat")


def _check(text: str, pattern: re.Pattern[str], longest: int, rule: str) -> list[str]:
    problems = []
    if len(text.encode(errors="replace")) > longest:
        problems.append(f"must be no more than {longest} bytes")
    if not pattern.fullmatch(text):
        problems.append(f"must consist of {rule}")
    return problems


def _dns1123_label(text: str) -> list[str]:
    rule = "lower case letters, digits and `-`, and start and end with a letter or digit"
    return _check(text, _LABEL, _LABEL_LENGTH, rule)


def _dns1123_subdomain(text: str) -> list[str]:
    rule = (
        "lower case letters, digits, `-` and `.`, and each part between dots must start and end"
        " with a letter or digit"
    )
    return _check(text, _SUBDOMAIN, _SUBDOMAIN_LENGTH, rule)


def _dns1035_label(text: str) -> list[str]:
    rule = "lower case letters, digits and `-`, start with a letter and end with a letter or digit"
    return _check(text, _OLD_LABEL, _LABEL_LENGTH, rule)


_NAME_RULE: Final = "letters, digits, `-`, `_` and `.`, and start and end with a letter or digit"


def _label_value(text: str) -> list[str]:
    return _check(text, _NAME, _LABEL_LENGTH, _NAME_RULE) if text else []


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    problems = [f"prefix {problem}" for problem in _dns1123_subdomain(prefix)] if slash else []
    return problems + [
        f"name {problem}" for problem in _check(name, _NAME, _LABEL_LENGTH, _NAME_RULE)
    ]


def _prefix_of(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a prefix of names, which may end in a dash."""

    def checked(text: str) -> list[str]:
        # A letter replaces the last two bytes, as upstream: this decides what may precede the dash.
        ends_in_dash = len(text) > 1 and text.endswith("-") and text[-2:].isascii()
        return check(f"{text[:-2]}a" if ends_in_dash else text)

    return checked


def _uri(text: str) -> list[str]:
    try:
        check_url(text)
    except CelError as error:
        return [str(error)]
    return []


def _uuid(text: str) -> list[str]:
    return [] if _UUID.fullmatch(text) else ["is not a UUID"]


def _byte(text: str) -> list[str]:
    valid = len(text) % 4 == 0 and _BASE64.fullmatch(text)
    return [] if valid else ["is not base64"]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    return 1 <= day <= calendar.monthrange(year, month)[1]


def _date(text: str) -> list[str]:
    return [] if _is_date(text) else ["is not a date such as 2006-01-02"]


def _datetime(text: str) -> list[str]:
    date, separator, time = text[:10], text[10:11], text[11:]
    valid = _is_date(date) and separator in ("T", "t") and _TIME.fullmatch(time)
    return [] if valid else ["is not a date and time such as 2006-01-02T15:04:05Z"]


FORMATS: Final = {
    name: Format(name, check)
    for name, check in {
        "dns1123Label": _dns1123_label,
        "dns1123Subdomain": _dns1123_subdomain,
        "dns1035Label": _dns1035_label,
        "qualifiedName": _qualified_name,
        "dns1123LabelPrefix": _prefix_of(_dns1123_label),
        "dns1123SubdomainPrefix": _prefix_of(_dns1123_subdomain),
        "dns1035LabelPrefix": _prefix_of(_dns1035_label),
        "labelValue": _label_value,
        "uri": _uri,
        "uuid": _uuid,
        "byte": _byte,
        "date": _date,
        "datetime": _datetime,
    }.items()
}
"""All formats, by name."""


def named(name: str) -> OptionalValue:
    format_ = FORMATS.get(name)
    return ABSENT if format_ is None else present(format_)


def validate(format_: Format, text: str) -> OptionalValue:
    """Return the list of problems of the text, absent if it is valid."""
    problems = format_.check(text)
    return present(problems) if problems else ABSENT


def _constant(format_: Format) -> Callable[[], Format]:
    return lambda: format_


FUNCTIONS: Final = (
    Overload("format.named", (str,), named, result=OPTIONAL),
    *(
        Overload(f"format.{name}", (), _constant(format_), result=Format.cel_type, folds=True)
        for name, format_ in FORMATS.items()
    ),
    Overload("validate", (Format, str), validate, member=True, result=OPTIONAL),
)
