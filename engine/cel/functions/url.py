"""URLs, parsed as by Go's `net/url`: `url(object.spec.host).getHostname()`.

Sources: apiserver `pkg/cel/library/urls.go` and Go 1.26 `net/url`: a URL is absolute, or an
absolute path. Python's `urllib.parse` accepts far more; only its percent-encoding is used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import ClassVar, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from engine.cel.budget import MAX_TEXT, Budget
from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, MAP, STRING, CelType, Opaque

_NOT_TEXT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]*")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
# Escapes in a host are for what is not ASCII, and for the percent sign of a zone.
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"-]|[^\x00-\x7f]|%[89A-Fa-f].|%25)*")
_ADDRESS: Final = re.compile(r"([0-9A-Fa-f:.]+)(?:%25[A-Za-z0-9._~-]+)?")  # RFC 6874
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@/%\[\]-]*")
_UNESCAPED_IN_PATH: Final = "$&+,/:;=@"  # beside letters, digits and `-._~`


@dataclass(frozen=True, slots=True)
class Url(Opaque):
    """A URL in components, which decide equality; escapes do not matter.

    Attributes:
        scheme: in lower case; empty for an absolute path.
        opaque: the rest if no slash follows the scheme, such as in `mailto:someone`.
        user: name, `:` if there is a password, password: unescaped.
        host: with the port, unescaped; None without `//`.
        path: escaped.
        query: raw; None without `?`.
        fragment: unescaped.
    """

    scheme: str
    opaque: str = ""
    user: tuple[bytes, ...] = ()
    host: str | None = None
    path: str = ""
    query: str | None = None
    fragment: bytes = b""
    cel_type: ClassVar[CelType] = CelType("kubernetes.URL")


def url(text: str) -> Url:
    """Parse a URL.

    Raises:
        CelError: it is neither an absolute URL nor an absolute path.
    """
    # Parsed twice, as upstream: as in a request, where `#` has no meaning and `//` without a scheme
    # begins a path, and then as a reference, for the components.
    check_url(text)
    reference, _, fragment = text.partition("#")
    return _parse(reference, unquote_to_bytes(_escaped(fragment)), in_request=False)


def check_url(text: str) -> None:
    """Check that the text is an absolute URL or an absolute path.

    Raises:
        CelError: it is neither.
    """
    if len(text) > MAX_TEXT:
        raise CelError(f"not a URL: longer than {MAX_TEXT} characters")
    _parse(text, b"", in_request=True)


def is_url(text: str) -> bool:
    """Return whether the text is an absolute URL or an absolute path."""
    try:
        check_url(text)
    except CelError:
        return False
    return True


def _parse(text: str, fragment: bytes, *, in_request: bool) -> Url:
    if _NOT_TEXT.search(text):
        raise CelError("not a URL: a control character, or half a surrogate pair")
    if text == "*":
        return Url("", path="*", fragment=fragment)
    if text.startswith(":"):
        raise CelError("not a URL: no scheme before the colon")
    scheme = ""
    if match := _SCHEME.match(text):
        scheme, text = match.group(1).lower(), text[match.end() :]
    rest, mark, after_mark = text.partition("?")
    query = after_mark if mark else None
    if not rest.startswith("/"):
        if not scheme:
            raise CelError("not a URL: neither absolute nor an absolute path")
        return Url(scheme, opaque=rest, query=query, fragment=fragment)

    user: tuple[bytes, ...] = ()
    host = None
    if rest.startswith("//") and (scheme or not (in_request or rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        userinfo, at, host = authority.rpartition("@")
        host = _host(scheme, host)
        user = _user(userinfo) if at else ()
    return Url(scheme, "", user, host, _path(rest), query, fragment)


def _escaped(text: str) -> str:
    """Return the text unchanged.

    Raises:
        CelError: a percent sign is not followed by two digits.
    """
    if _BAD_ESCAPE.search(text):
        raise CelError("not a URL: an invalid escape")
    return text


def _user(text: str) -> tuple[bytes, ...]:
    if not _USER.fullmatch(_escaped(text)):
        raise CelError("not a URL: an invalid user name or password")
    return tuple(map(unquote_to_bytes, text.partition(":")))


def _host(scheme: str, text: str) -> str:
    """Return the host, with its port, unescaped."""
    opening = text.rfind("[")
    if opening > 0:
        raise CelError("not a URL: a bracket within the host")
    if opening == 0:
        address, closing, port = text[1:].rpartition("]")
        if not closing or not _PORT.fullmatch(port):
            raise CelError("not a URL: no `]` with at most a port after the host")
        return f"[{_bracketed(address)}]{port}"
    # The URL of a database may have several hosts, each with a port; that of a web page has one.
    colon = text.find(":") if scheme in {"http", "https"} else text.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(text[colon:]):
        raise CelError("not a URL: an invalid port")
    if not _HOST.fullmatch(_escaped(text)):
        raise CelError("not a URL: an invalid character in the host")
    return _unescaped(text)


def _bracketed(text: str) -> str:
    """Return the IPv6 address between brackets, its zone unescaped."""
    match = _ADDRESS.fullmatch(text)
    try:
        IPv6Address(match.group(1) if match else "")
    except AddressValueError as error:
        raise CelError("not a URL: brackets around something other than an IPv6 address") from error
    return _unescaped(text)


def _path(text: str) -> str:
    """Return the path unchanged if it needs no escapes, else escaped again."""
    if _PATH.fullmatch(_escaped(text)):
        return text
    return quote_from_bytes(unquote_to_bytes(text), safe=_UNESCAPED_IN_PATH)


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text).decode(errors="replace")


def get_scheme(value: Url) -> str:
    """Return the scheme in lower case, or an empty string."""
    return value.scheme


def get_host(value: Url) -> str:
    """Return the host with its port, IPv6 in brackets, or an empty string."""
    return value.host or ""


def get_hostname(value: Url) -> str:
    """Return the host without port and brackets, or an empty string."""
    host = get_host(value)
    colon = host.rfind(":")
    if colon >= 0 and _PORT.fullmatch(host[colon:]):
        host = host[:colon]
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def get_port(value: Url) -> str:
    """Return the port, or an empty string."""
    _, colon, port = get_host(value).rpartition(":")
    return port if colon and _PORT.fullmatch(colon + port) else ""


def get_escaped_path(value: Url) -> str:
    """Return the path with escapes, or an empty string."""
    return value.path


def get_query(budget: Budget, value: Url) -> dict[str, list[str]]:
    """Return all values of each key, unescaped and in order; malformed pairs are skipped.

    Raises:
        BudgetExhaustedError: there are too many pairs.
    """
    pairs = (value.query or "").split("&")
    budget.check_items(len(pairs))
    values: dict[str, list[str]] = {}
    for pair in pairs:
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, text = pair.replace("+", " ").partition("=")
        values.setdefault(_unescaped(key), []).append(_unescaped(text))
    return values


FUNCTIONS: Final = (
    Overload("url", (str,), url, result=Url.cel_type, folds=True),
    Overload("isURL", (str,), is_url, result=BOOL),
    Overload("getScheme", (Url,), get_scheme, member=True, result=STRING),
    Overload("getHost", (Url,), get_host, member=True, result=STRING),
    Overload("getHostname", (Url,), get_hostname, member=True, result=STRING),
    Overload("getPort", (Url,), get_port, member=True, result=STRING),
    Overload("getEscapedPath", (Url,), get_escaped_path, member=True, result=STRING),
    Overload("getQuery", (Url,), get_query, member=True, result=MAP, budgeted=True),
)
