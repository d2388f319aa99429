from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.budget import Budget
from engine.cel.errors import BudgetExhaustedError, CelError
from engine.cel.functions import url as u
from engine.cel.functions.url import url
from engine.cel.values import DYN


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
