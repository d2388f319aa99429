"""Network addresses: IP addresses, networks, and URLs as Go's `net/url` parses them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import ClassVar, Final, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from engine.cel.budget import MAX_TEXT, Budget
from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, INT, MAP, STRING, CelType, Opaque
from engine.errors import CelError

# URLs, parsed as by Go's `net/url`: `url(object.spec.host).getHostname()`.
#
# Sources: apiserver `pkg/cel/library/urls.go` and Go 1.26 `net/url`: a URL is absolute, or an
# absolute path. Python's `urllib.parse` accepts far more; only its percent-encoding is used.


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
    """A URL in components, which decide equality; escapes do not matter."""

    scheme: str  # in lower case; empty for an absolute path
    opaque: str = ""  # the rest if no slash follows the scheme, such as in `mailto:someone`
    user: tuple[bytes, ...] = ()  # name, `:` if there is a password, password: unescaped
    host: str | None = None  # with the port, unescaped; None without `//`
    path: str = ""  # escaped
    query: str | None = None  # raw; None without `?`
    fragment: bytes = b""  # unescaped
    cel_type: ClassVar[CelType] = CelType("kubernetes.URL")


def url(text: str) -> Url:
    # Parsed twice, as upstream: as in a request, where `#` has no meaning and `//` without a scheme
    # begins a path, and then as a reference, for the components.
    check_url(text)
    reference, _, fragment = text.partition("#")
    return _parse(reference, unquote_to_bytes(_escaped(fragment)), in_request=False)


def check_url(text: str) -> None:
    """Check that the text is an absolute URL or an absolute path."""
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
    """Return the text unchanged."""
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
    """Return all values of each key, unescaped and in order; malformed pairs are skipped."""
    pairs = (value.query or "").split("&")
    budget.check_items(len(pairs))
    values: dict[str, list[str]] = {}
    for pair in pairs:
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, text = pair.replace("+", " ").partition("=")
        values.setdefault(_unescaped(key), []).append(_unescaped(text))
    return values


URLS: Final = (
    Overload("url", (str,), url, result=Url.cel_type, folds=True),
    Overload("isURL", (str,), is_url, result=BOOL),
    Overload("getScheme", (Url,), get_scheme, member=True, result=STRING),
    Overload("getHost", (Url,), get_host, member=True, result=STRING),
    Overload("getHostname", (Url,), get_hostname, member=True, result=STRING),
    Overload("getPort", (Url,), get_port, member=True, result=STRING),
    Overload("getEscapedPath", (Url,), get_escaped_path, member=True, result=STRING),
    Overload("getQuery", (Url,), get_query, member=True, result=MAP, budgeted=True),
)

# IP addresses and networks: `cidr('10.0.0.0/8').containsIP(ip('10.1.2.3'))`.
#
# Sources: apiserver `pkg/cel/library/ip.go` and `cidr.go`, cel-go `ext/network.go`; the text forms
# are those of Go's `net/netip`. Leading zeros, zones (`fe80::1%eth0`) and IPv4 within IPv6
# (`::ffff:10.0.0.1`) are refused. The conformance suite of the language reads `::ffff:a00:1` as the
# IPv4 address in it, Kubernetes refuses it: `ip` follows the suite; `cidr` refuses it, because the
# prefix length would have a different meaning.


_LONGEST: Final = 45  # characters: six groups of four digits and a dotted IPv4 address
_PREFIX_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_BROADCAST: Final = IPv4Address("255.255.255.255")

_Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Ip(Opaque):
    address: _Address
    cel_type: ClassVar[CelType] = CelType("net.IP")


@dataclass(frozen=True, slots=True)
class Cidr(Opaque):
    """An address and the length of its network prefix in bits.

    The host bits remain: `10.0.0.1/8` has the address `10.0.0.1` and is not `10.0.0.0/8`.
    """

    address: _Address
    bits: int
    cel_type: ClassVar[CelType] = CelType("net.CIDR")

    def holds(self, address: _Address) -> bool:
        """Return whether the address is in the network; false for the other family."""
        host_bits = self.address.max_prefixlen - self.bits
        return (
            address.version == self.address.version
            and int(address) >> host_bits == int(self.address) >> host_bits
        )


def ip(text: str) -> Ip:
    address = _parsed(text)
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is None:
        return Ip(address)
    if "." in text:
        raise CelError(f"`{text}` is an IPv4 address within IPv6, which is not allowed")
    return Ip(mapped)


def _parsed(text: str) -> _Address:
    if len(text) > _LONGEST:
        raise CelError(f"an IP address is at most {_LONGEST} characters long")
    if "%" in text:
        raise CelError(f"`{text}` has a zone, which is not allowed")
    try:
        return ip_address(text)
    except ValueError as error:
        raise CelError(f"`{text}` is not an IP address") from error


def is_ip(text: str) -> bool:
    try:
        ip(text)
    except CelError:
        return False
    return True


def is_canonical(text: str) -> bool:
    """Return whether the text is the canonical form of its address (RFC 5952)."""
    return ip_to_string(ip(text)) == text


def ip_to_string(value: Ip) -> str:
    """Return the canonical form."""
    return str(value.address)


def family(value: Ip) -> int:
    """Return 4 or 6."""
    return value.address.version


def is_unspecified(value: Ip) -> bool:
    """Return whether it is `0.0.0.0` or `::`."""
    return value.address.is_unspecified


def is_loopback(value: Ip) -> bool:
    """Return whether it is in 127.0.0.0/8, or `::1`."""
    return value.address.is_loopback


def is_link_local_multicast(value: Ip) -> bool:
    """Return whether it is in 224.0.0.0/24, or IPv6 multicast of link-local scope."""
    if value.address.version == 4:  # noqa: PLR2004 (the family)
        return int(value.address) >> 8 == 0xE00000  # noqa: PLR2004 (224.0.0)
    # ff, any four flags, scope 2.
    return (int(value.address) >> 112) & 0xFF0F == 0xFF02  # noqa: PLR2004


def is_link_local_unicast(value: Ip) -> bool:
    """Return whether it is in 169.254.0.0/16 or fe80::/10."""
    return value.address.is_link_local


def is_global_unicast(value: Ip) -> bool:
    """Return whether it is none of: unspecified, loopback, multicast, link-local, broadcast.

    Private addresses count as global, as in Go.
    """
    address = value.address
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == _BROADCAST
    )


def cidr(text: str) -> Cidr:
    """Parse a network, host bits included."""
    before, _, after = text.rpartition("/")
    address = _parsed(before)
    if getattr(address, "ipv4_mapped", None) is not None:
        raise CelError(f"`{text}` is an IPv4 address within IPv6, which is not allowed")
    if not _PREFIX_LENGTH.fullmatch(after) or int(after) > address.max_prefixlen:
        raise CelError(f"`{before}` is not followed by a valid prefix length")
    return Cidr(address, int(after))


def is_cidr(text: str) -> bool:
    try:
        cidr(text)
    except CelError:
        return False
    return True


def cidr_to_string(value: Cidr) -> str:
    """Return the canonical address, `/` and the prefix length, host bits included."""
    return f"{value.address}/{value.bits}"


def contains_ip(network: Cidr, address: Ip) -> bool:
    return network.holds(address.address)


def contains_ip_text(network: Cidr, text: str) -> bool:
    """Return whether the address `text` is in the network; raises as `ip`."""
    return contains_ip(network, ip(text))


def contains_cidr(network: Cidr, other: Cidr) -> bool:
    return network.bits <= other.bits and network.holds(other.address)


def contains_cidr_text(network: Cidr, text: str) -> bool:
    """Return whether the network contains the network `text`; raises as `cidr`."""
    return contains_cidr(network, cidr(text))


def address_of(network: Cidr) -> Ip:
    """Return the address, host bits included."""
    return Ip(network.address)


def masked(network: Cidr) -> Cidr:
    """Return the network with its host bits zeroed."""
    host_bits = network.address.max_prefixlen - network.bits
    address = type(network.address)(int(network.address) >> host_bits << host_bits)
    return Cidr(address, network.bits)


def prefix_length(network: Cidr) -> int:
    return network.bits


FUNCTIONS: Final = (
    Overload("ip", (str,), ip, result=Ip.cel_type, folds=True),
    Overload("isIP", (str,), is_ip, result=BOOL),
    Overload("ip.isCanonical", (str,), is_canonical, result=BOOL),
    Overload("string", (Ip,), ip_to_string, result=STRING),
    Overload("family", (Ip,), family, member=True, result=INT),
    Overload("isUnspecified", (Ip,), is_unspecified, member=True, result=BOOL),
    Overload("isLoopback", (Ip,), is_loopback, member=True, result=BOOL),
    Overload("isLinkLocalMulticast", (Ip,), is_link_local_multicast, member=True, result=BOOL),
    Overload("isLinkLocalUnicast", (Ip,), is_link_local_unicast, member=True, result=BOOL),
    Overload("isGlobalUnicast", (Ip,), is_global_unicast, member=True, result=BOOL),
    Overload("cidr", (str,), cidr, result=Cidr.cel_type, folds=True),
    Overload("isCIDR", (str,), is_cidr, result=BOOL),
    Overload("string", (Cidr,), cidr_to_string, result=STRING),
    Overload("containsIP", (Cidr, Ip), contains_ip, member=True, result=BOOL),
    Overload("containsIP", (Cidr, str), contains_ip_text, member=True, result=BOOL),
    Overload("containsCIDR", (Cidr, Cidr), contains_cidr, member=True, result=BOOL),
    Overload("containsCIDR", (Cidr, str), contains_cidr_text, member=True, result=BOOL),
    Overload("ip", (Cidr,), address_of, member=True, result=Ip.cel_type),
    Overload("masked", (Cidr,), masked, member=True, result=Cidr.cel_type),
    Overload("prefixLength", (Cidr,), prefix_length, member=True, result=INT),
)
