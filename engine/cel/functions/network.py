"""IP addresses and networks: `cidr('10.0.0.0/8').containsIP(ip('10.1.2.3'))`.

Sources: apiserver `pkg/cel/library/ip.go` and `cidr.go`, cel-go `ext/network.go`; the text forms
are those of Go's `net/netip`. Leading zeros, zones (`fe80::1%eth0`) and IPv4 within IPv6
(`::ffff:10.0.0.1`) are refused. The conformance suite of the language reads `::ffff:a00:1` as the
IPv4 address in it, Kubernetes refuses it: `ip` follows the suite; `cidr` refuses it, because the
prefix length would have a different meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import ClassVar, Final, TypeAlias

from engine.cel.errors import CelError
from engine.cel.functions.registry import Overload
from engine.cel.values import BOOL, INT, STRING, CelType, Opaque

_LONGEST: Final = 45  # characters: six groups of four digits and a dotted IPv4 address
_PREFIX_LENGTH: Final = re.compile(r"0|[1-9][0-9]{0,2}")
_BROADCAST: Final = IPv4Address("255.255.255.255")

_Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Ip(Opaque):
    """An IPv4 or IPv6 address."""

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
    """Parse an address.

    Raises:
        CelError: it is not one, or has a zone or a dotted IPv4 address within IPv6.
    """
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
    """Return whether `ip` accepts the text."""
    try:
        ip(text)
    except CelError:
        return False
    return True


def is_canonical(text: str) -> bool:
    """Return whether the text is the canonical form of its address (RFC 5952).

    Raises:
        CelError: it is not an address.
    """
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
    """Parse a network, host bits included.

    Raises:
        CelError: it is not one, or has a zone or IPv4 within IPv6.
    """
    before, _, after = text.rpartition("/")
    address = _parsed(before)
    if getattr(address, "ipv4_mapped", None) is not None:
        raise CelError(f"`{text}` is an IPv4 address within IPv6, which is not allowed")
    if not _PREFIX_LENGTH.fullmatch(after) or int(after) > address.max_prefixlen:
        raise CelError(f"`{before}` is not followed by a valid prefix length")
    return Cidr(address, int(after))


def is_cidr(text: str) -> bool:
    """Return whether `cidr` accepts the text."""
    try:
        cidr(text)
    except CelError:
        return False
    return True


def cidr_to_string(value: Cidr) -> str:
    """Return the canonical address, `/` and the prefix length, host bits included."""
    return f"{value.address}/{value.bits}"


def contains_ip(network: Cidr, address: Ip) -> bool:
    """Return whether the address is in the network."""
    return network.holds(address.address)


def contains_ip_text(network: Cidr, text: str) -> bool:
    """Return whether the address `text` is in the network; raises as `ip`."""
    return contains_ip(network, ip(text))


def contains_cidr(network: Cidr, other: Cidr) -> bool:
    """Return whether the network contains all addresses of the other."""
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
    """Return the length of the network prefix in bits."""
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
