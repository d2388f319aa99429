from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.budget import Budget
from engine.cel.functions import network as n
from engine.cel.functions import network as u
from engine.cel.functions.network import cidr, ip, url
from engine.cel.values import DYN
from engine.errors import BudgetExhaustedError, CelError


@pytest.mark.parametrize(
    ("text", "scheme", "host", "hostname", "port", "path"),
    [
        ("https://example.com:80/", "https", "example.com:80", "example.com", "80", "/"),
        ("HTTPS://example.com", "https", "example.com", "example.com", "", ""),
        ("https://[::1]:80/", "https", "[::1]:80", "::1", "80", "/"),
        ("https://[::1]/", "https", "[::1]", "::1", "", "/"),
        ("https://[fe80::1%25en0]/", "https", "[fe80::1%en0]", "fe80::1%en0", "", "/"),
        ("https://user:p%40ss@example.com/a", "https", "example.com", "example.com", "", "/a"),
        ("https://a@b@example.com/", "https", "example.com", "example.com", "", "/"),
        ("https://example.com:/", "https", "example.com:", "example.com", "", "/"),
        ("https://m%C3%BCnchen/", "https", "münchen", "münchen", "", "/"),
        ("postgres://a:1,b:2/db", "postgres", "a:1,b:2", "a:1,b", "2", "/db"),
        ("/path", "", "", "", "", "/path"),
        ("//example.com/path", "", "example.com", "example.com", "", "/path"),
        ("///path", "", "", "", "", "///path"),
        ("file:///etc/hosts", "file", "", "", "", "/etc/hosts"),
        ("mailto:someone@example.com", "mailto", "", "", "", ""),
        ("*", "", "", "", "", "*"),
    ],
)
def test_a_url_comes_apart(
    text: str, scheme: str, host: str, hostname: str, port: str, path: str
) -> None:
    value = url(text)
    assert u.is_url(text)
    assert u.get_scheme(value) == scheme
    assert u.get_host(value) == host
    assert u.get_hostname(value) == hostname
    assert u.get_port(value) == port
    assert u.get_escaped_path(value) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "../relative-path",
        "relative",
        "://example.com",
        ":",
        "1http://example.com",
        "#fragment",
        "?query",
        "/a\x00b",
        "/a\nb",
        "/a\x7f",
        "/%zz",
        "/%4",
        "https://a:b:c/",
        "https://a:1:2/",
        "https://a:b/",
        "https://a b/",
        "https://a%20b/",
        "https://a%zz/",
        "https://[::1/",
        "https://[::1]x/",
        "https://x[::1]/",
        "https://[]/",
        "https://[1.2.3.4]/",
        "https://[v1.a]/",
        "https://[fe80::1%25]/",
        "https://[fe80::1%en0]/",
        "https://us er@example.com/",
        "https://us%zzer@example.com/",
        "/\ud800",
        "/" + "a" * 100_000,
    ],
)
def test_anything_else_is_no_url(text: str) -> None:
    assert not u.is_url(text)
    with pytest.raises(CelError, match="not a URL"):
        url(text)


@pytest.mark.parametrize("text", ["//[/path", "/?a#%zz", "//a:b/"])
def test_some_urls_are_only_refused_when_they_are_taken_apart(text: str) -> None:
    # Without a scheme `//` begins a path for the one and a host for the other; and a fragment is
    # part of the query for the one.
    assert u.is_url(text)
    with pytest.raises(CelError, match="not a URL"):
        url(text)


@pytest.mark.parametrize(
    ("path", "escaped"),
    [
        ("/path with spaces/", "/path%20with%20spaces/"),
        ("/a%2Fb", "/a%2Fb"),  # an escape that was written stays
        ("/a%2fb", "/a%2fb"),
        ("/a%2fb c", "/a/b%20c"),  # once something needs an escape, all is escaped anew
        ("/é", "/%C3%A9"),
        ("/(a)!*'[]", "/(a)!*'[]"),
        ("/(a) ", "/%28a%29%20"),
        ("/a?b", "/a"),
        ("/a#b", "/a"),
        ('/"<>', "/%22%3C%3E"),
        ("/$&+,/:;=@-_.~", "/$&+,/:;=@-_.~"),
    ],
)
def test_the_path_is_escaped_where_it_needs_to_be(path: str, escaped: str) -> None:
    assert u.get_escaped_path(url(path)) == escaped
    assert u.get_escaped_path(url("https://example.com" + path)) == escaped


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", {}),
        ("?", {}),
        ("?#a=b", {}),
        ("?k1=a&k2=b&k2=c", {"k1": ["a"], "k2": ["b", "c"]}),
        ("?key with spaces=value with spaces", {"key with spaces": ["value with spaces"]}),
        ("?a+b=c+d", {"a b": ["c d"]}),
        ("?a%2Bb=c%26d", {"a+b": ["c&d"]}),
        ("?a", {"a": [""]}),
        ("?=a", {"": ["a"]}),
        ("?a=b=c", {"a": ["b=c"]}),
        ("?a=1&&b=2&", {"a": ["1"], "b": ["2"]}),
        ("?a=1;b=2&c=3", {"c": ["3"]}),  # a semicolon makes a pair malformed
        ("?a=%zz&%z=1&c=3", {"c": ["3"]}),
        ("?a=b?c", {"a": ["b?c"]}),
        ("?m=%C3%BC", {"m": ["ü"]}),
    ],
)
def test_the_query_is_a_list_of_values_for_each_key(
    query: str, expected: dict[str, list[str]]
) -> None:
    assert u.get_query(Budget(), url("https://example.com/path" + query)) == expected


def test_a_query_of_very_many_pairs_is_refused() -> None:
    with pytest.raises(BudgetExhaustedError):
        u.get_query(Budget(), url("/?" + "a&" * 20_000))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("https://example.com/a", "HTTPS://example.com/a", True),
        ("https://%65x@a/", "https://ex@a/", True),
        ("/é", "/%C3%A9", True),
        ("/a#%62", "/a#b", True),
        ("https://a/", "https://a", False),
        ("https://a?", "https://a", False),
        ("https://u:@a/", "https://u@a/", False),
        ("file:///a", "file:/a", False),
        ("/a%2Fb", "/a/b", False),
    ],
)
def test_urls_are_equal_by_their_parts(one: str, other: str, *, expected: bool) -> None:
    assert (url(one) == url(other)) is expected


@given(
    st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True),
    st.integers(0, 65535),
    st.lists(st.from_regex(r"[A-Za-z0-9._~-]{1,5}", fullmatch=True), max_size=3),
)
def test_a_url_put_together_comes_apart_the_same(
    hostname: str, port: int, segments: list[str]
) -> None:
    path = "".join(f"/{segment}" for segment in segments)
    value = url(f"https://{hostname}:{port}{path}")
    assert u.get_hostname(value) == hostname
    assert u.get_port(value) == str(port)
    assert u.get_escaped_path(value) == path


PATH_CHARACTERS = st.characters(codec="utf-8", min_codepoint=32, exclude_characters="?#%\x7f")


@given(st.text(PATH_CHARACTERS, max_size=20))
def test_an_escaped_path_needs_no_more_escapes(path: str) -> None:
    escaped = u.get_escaped_path(url("x:/a" + path))
    assert escaped.isascii()
    assert u.get_escaped_path(url("x:" + escaped)) == escaped


@pytest.mark.parametrize(
    "expression",
    [
        "url(x).getQuery() == {'a': ['1', '2']} && url(x).getPort() == '8443'",
        "isURL(x) && type(url(x)) == kubernetes.URL",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "https://example.com:8443/?a=1&a=2"}) is True


ADDRESSES = st.ip_addresses().filter(lambda address: getattr(address, "ipv4_mapped", None) is None)


@st.composite
def networks(draw: st.DrawFn) -> n.Cidr:
    address = draw(ADDRESSES)
    return n.Cidr(address, draw(st.integers(0, address.max_prefixlen)))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "0.0.0.0"),  # noqa: S104 (nothing listens here)
        ("::", "::"),
        ("2001:DB8::ABCD", "2001:db8::abcd"),
        ("2001:db8::0:0:0:abcd", "2001:db8::abcd"),
        ("1:0:0:2:0:0:0:3", "1:0:0:2::3"),  # the longest run of zeros
        ("0:0:1:0:0:1:1:1", "::1:0:0:1:1:1"),  # the first of two equal ones
        ("1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"),  # never a single zero
        ("::1.2.3.4", "::102:304"),
        ("::ffff:c0a8:1", "192.168.0.1"),  # IPv4 in the hexadecimal form
    ],
)
def test_an_address_has_one_canonical_form(text: str, canonical: str) -> None:
    assert n.ip_to_string(ip(text)) == canonical
    assert n.is_canonical(text) is (text == canonical)
    assert ip(text) == ip(canonical)
    assert n.is_ip(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3",
        "192.168.0.1.0",
        "127.0.0.256",
        "127.0.0.01",
        "1.2.3.4\n",
        " 1.2.3.4",
        "1.2.3.\u0664",  # an Arabic digit
        "1.2.3.4/24",
        ":::1",
        "1::2::3",
        "::12345",
        "1:2:3:4:5:6:7:8:9",
        "1:2:3:4::5:6:7:8",
        "fe80::1%en0",
        "fe80::1%",
        "::ffff:192.168.0.1",
        "0" * 100_000,
    ],
)
def test_anything_else_is_no_address(text: str) -> None:
    assert not n.is_ip(text)
    with pytest.raises(CelError):
        ip(text)
    with pytest.raises(CelError):
        n.is_canonical(text)


KINDS = {
    "unspecified": n.is_unspecified,
    "loopback": n.is_loopback,
    "link-local multicast": n.is_link_local_multicast,
    "link-local unicast": n.is_link_local_unicast,
    "global": n.is_global_unicast,
}


@pytest.mark.parametrize(
    ("text", "family", "kind"),
    [
        ("0.0.0.0", 4, "unspecified"),  # noqa: S104 (nothing listens here)
        ("::", 6, "unspecified"),
        ("127.255.0.1", 4, "loopback"),
        ("::1", 6, "loopback"),
        ("224.0.0.1", 4, "link-local multicast"),
        ("224.0.1.1", 4, None),  # multicast beyond the link
        ("ff02::1", 6, "link-local multicast"),
        ("ff12::1", 6, "link-local multicast"),  # a transient group of the same scope
        ("ff05::1", 6, None),
        ("169.254.169.254", 4, "link-local unicast"),
        ("fe80::1", 6, "link-local unicast"),
        ("febf::1", 6, "link-local unicast"),
        ("fec0::1", 6, "global"),
        ("fd80::1", 6, "global"),
        ("192.168.0.1", 4, "global"),
        ("8.8.8.8", 4, "global"),
        ("2001:db8::abcd", 6, "global"),
        ("255.255.255.255", 4, None),
        ("::ffff:a00:1", 4, "global"),  # 10.0.0.1
    ],
)
def test_an_address_is_of_at_most_one_kind(text: str, family: int, kind: str | None) -> None:
    address = ip(text)
    assert n.family(address) == family
    assert [name for name, is_kind in KINDS.items() if is_kind(address)] == [kind] * bool(kind)


def test_the_families_never_equal() -> None:
    assert ip("::102:304") != ip("1.2.3.4")


@pytest.mark.parametrize(
    "text", ["192.168.0.0/16", "192.168.0.1/16", "::1/128", "10.0.0.0/0", "2001:db8::/33"]
)
def test_a_network_is_read_with_its_host_bits(text: str) -> None:
    assert n.cidr_to_string(cidr(text)) == text
    assert n.is_cidr(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "10.0.0.0",
        "10.0.0.0/",
        "/8",
        "192.168.0.0/33",
        "::1/129",
        "10.0.0.0/08",
        "10.0.0.0/+8",
        "10.0.0.0/ 8",
        "10.0.0.0/8\n",
        "10.0.0.0/\u0668",  # an Arabic digit
        "10.0.0.0/8/8",
        "10.0.0.0/255.0.0.0",
        "010.0.0.0/8",
        "fe80::1%en0/24",
        "fe80::/64%en0",
        "::ffff:192.168.0.1/24",
        "::ffff:c0a8:1/120",
        "10.0.0.0/" + "9" * 100_000,
    ],
)
def test_anything_else_is_no_network(text: str) -> None:
    assert not n.is_cidr(text)
    with pytest.raises(CelError):
        cidr(text)


@pytest.mark.parametrize(
    ("network", "address", "expected"),
    [
        ("192.168.0.0/24", "192.168.0.1", True),
        ("192.168.0.0/24", "192.168.0.255", True),
        ("192.168.0.0/24", "192.168.1.0", False),
        ("192.168.0.77/24", "192.168.0.1", True),  # host bits do not count
        ("0.0.0.0/0", "255.255.255.255", True),
        ("10.0.0.1/32", "10.0.0.2", False),
        ("2001:db8::/32", "2001:db8::1", True),
        ("2001:db8::/32", "2001:dc8::1", False),
        ("2001:db8::/32", "192.168.1.1", False),
        ("::/0", "1.2.3.4", False),
    ],
)
def test_a_network_contains_addresses_of_its_family(
    network: str, address: str, *, expected: bool
) -> None:
    assert n.contains_ip(cidr(network), ip(address)) is expected
    assert n.contains_ip_text(cidr(network), address) is expected


@pytest.mark.parametrize(
    ("network", "other", "expected"),
    [
        ("192.168.0.0/24", "192.168.0.0/25", True),
        ("192.168.0.0/24", "192.168.0.0/23", False),
        ("192.168.0.0/16", "192.168.10.0/24", True),
        ("192.168.1.0/24", "192.168.2.0/24", False),
        ("10.0.0.0/8", "10.0.0.0/8", True),
        ("10.1.2.3/8", "10.9.9.9/16", True),
        ("2001:db8::/32", "2001:db8::/33", True),
        ("2001:db8::/32", "2001:db8::/31", False),
        ("::/0", "10.0.0.0/8", False),
    ],
)
def test_a_network_contains_smaller_ones(network: str, other: str, *, expected: bool) -> None:
    assert n.contains_cidr(cidr(network), cidr(other)) is expected
    assert n.contains_cidr_text(cidr(network), other) is expected


def test_a_text_that_is_no_address_cannot_be_looked_for() -> None:
    with pytest.raises(CelError):
        n.contains_ip_text(cidr("10.0.0.0/8"), "10.0.0.0/8")
    with pytest.raises(CelError):
        n.contains_cidr_text(cidr("10.0.0.0/8"), "10.0.0.1")


def test_masking_zeroes_the_host_bits() -> None:
    # 2001:db8:1:: has bits set after the first 32.
    assert n.masked(cidr("2001:db8:1::/32")) == cidr("2001:db8::/32")
    assert n.masked(cidr("192.168.0.1/24")) == cidr("192.168.0.0/24")
    assert n.masked(cidr("192.168.0.1/24")) != cidr("192.168.0.1/24")


@given(ADDRESSES)
def test_an_address_survives_its_text(address: IPv4Address | IPv6Address) -> None:
    assert ip(str(address)) == n.Ip(address)
    assert n.is_canonical(n.ip_to_string(n.Ip(address)))


@given(networks())
def test_a_network_contains_itself_and_its_address(network: n.Cidr) -> None:
    assert n.contains_ip(network, n.address_of(network))
    assert n.contains_cidr(network, network)
    assert n.contains_cidr(n.masked(network), network)
    assert cidr(n.cidr_to_string(network)) == network
    assert n.prefix_length(n.masked(network)) == n.prefix_length(network)


@given(networks(), networks(), ADDRESSES)
def test_what_is_in_a_contained_network_is_in_the_container(
    network: n.Cidr, other: n.Cidr, address: IPv4Address | IPv6Address
) -> None:
    if n.contains_cidr(network, other) and n.contains_ip(other, n.Ip(address)):
        assert n.contains_ip(network, n.Ip(address))


@pytest.mark.parametrize(
    "expression",
    [
        "cidr('10.0.0.0/8').containsIP(x) && string(ip(x)) == x && ip.isCanonical(x)",
        "type(ip(x)) == net.IP && cidr(x + '/8').ip() == ip(x)",
    ],
)
def test_the_functions_are_part_of_the_language_in_network(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "10.1.2.3"}) is True
