from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.functions import semver as s
from engine.cel.functions.semver import semver
from engine.cel.values import DYN
from engine.errors import CelError

NUMBERS = st.integers(0, 3)
IDENTIFIERS = st.one_of(NUMBERS.map(str), st.sampled_from(["a", "b", "-", "0a", "rc", "10", "9"]))


@st.composite
def versions(draw: st.DrawFn) -> s.Semver:
    core = ".".join(str(draw(NUMBERS)) for _ in range(3))
    prerelease = ".".join(draw(st.lists(IDENTIFIERS, max_size=3)))
    return semver(f"{core}-{prerelease}" if prerelease else core)


@pytest.mark.parametrize(
    "text",
    [
        "1.2.3",
        "0.0.0",
        "1.2.3-beta.1+build.1",
        "1.0.0-0.3.7",
        "1.0.0-x-y-z.--",
        "1.0.0-0a",
        "1.0.0+001",
        "1.0.0+a-b",
        "18446744073709551615.0.0",  # 2**64 - 1
    ],
)
def test_a_semantic_version_is_accepted(text: str) -> None:
    assert s.is_semver(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1.1",
        "v1.0.0",
        "01.01.01",
        "1.02.3",
        " 1.0.0",
        "1. 0.0",
        "1.0.0 ",
        "1.0.0\n",
        "1.2.3.4",
        "1.0.0-",
        "1.0.0+",
        "1.0.0-a..b",
        "1.0.0-01",
        "1.0.0+a+b",
        "1.0.0-é",
        "\u0661.0.0",  # an Arabic digit
        "200K",
        "18446744073709551616.0.0",  # 2**64
        "1.0.0-99999999999999999999",
        "1.0." + "9" * 10_000,
        "1.0.0-" + "a" * 10_000,
    ],
)
def test_anything_else_is_not_a_version(text: str) -> None:
    assert not s.is_semver(text)
    with pytest.raises(CelError):
        semver(text)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [
        ("v1.0.0", "1.0.0"),
        ("v1.0", "1.0.0"),
        ("1", "1.0.0"),
        ("v01.01", "1.1.0"),
        ("01.01.01", "1.1.1"),
        ("000.00.0", "0.0.0"),
        ("1.2.03-rc.1", "1.2.3-rc.1"),
        ("1.2.00-rc.1", "1.2.0-rc.1"),
    ],
)
def test_normalising_forgives_prefix_zeros_and_missing_numbers(text: str, same_as: str) -> None:
    assert semver(text, normalize=True) == semver(same_as)
    assert not s.is_semver(text)


@pytest.mark.parametrize(
    "text", ["", "vv1.0.0", "V1.0.0", " 1.0.0", "1.0.0 ", "1.1-rc", "1+b", "1-a.2", "1..0", "v"]
)
def test_normalising_forgives_nothing_else(text: str) -> None:
    assert not s.is_semver(text, normalize=True)


def test_the_order_is_the_one_of_the_specification() -> None:
    ordered = [
        "0.9.9",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "1.0.1",
        "1.2.0",
        "1.10.0",
        "2.0.0-0",
    ]
    for position, text in enumerate(ordered):
        for other_position, other in enumerate(ordered):
            expected = (position > other_position) - (position < other_position)
            assert s.compare_to(semver(text), semver(other)) == expected


def test_build_metadata_does_not_distinguish_versions() -> None:
    assert semver("1.0.0+a") == semver("1.0.0+b")
    assert s.compare_to(semver("1.0.0+a"), semver("1.0.0+b")) == 0


def test_the_numbers_can_be_read() -> None:
    version = semver("1.2.3-rc.4")
    assert (s.major(version), s.minor(version), s.patch(version)) == (1, 2, 3)


def test_a_number_that_is_no_int_cannot_be_read() -> None:
    with pytest.raises(CelError, match="overflow"):
        s.major(semver("9223372036854775808.0.0"))


@given(versions(), versions(), versions())
def test_the_order_is_total(one: s.Semver, other: s.Semver, third: s.Semver) -> None:
    assert s.compare_to(one, other) == -s.compare_to(other, one)
    assert (s.compare_to(one, other) == 0) is (one == other)
    if s.is_less_than(one, other) and s.is_less_than(other, third):
        assert s.is_less_than(one, third)


@given(versions())
def test_a_version_comes_before_the_next_release(version: s.Semver) -> None:
    major, minor, patch = version.core
    assert s.is_less_than(version, semver(f"{major}.{minor}.{patch + 1}"))


@pytest.mark.parametrize(
    "expression",
    [
        "semver(x).isLessThan(semver('v1.31', true)) && semver(x).minor() == 30",
        "isSemver(x) && type(semver(x)) == kubernetes.Semver",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "1.30.2"}) is True
