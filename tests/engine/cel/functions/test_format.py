from __future__ import annotations

import base64
import re
import uuid
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cel import Environment, compile_program
from engine.cel.functions.format import FORMATS, named, validate
from engine.cel.values import ABSENT, DYN, present

VALID = {
    "dns1123Label": ["a", "my-label-name", "0", "a--b", "a" * 63],
    "dns1123Subdomain": ["a", "example.com", "a-b.c-d.0", "apiextensions.k8s.io", "a." * 126 + "a"],
    "dns1035Label": ["a", "my-label-name", "a0", "a" * 63],
    "qualifiedName": ["a", "MyName", "my.name", "123-abc", "example.com/My_Name", "a/b"],
    "dns1123LabelPrefix": ["my-label-prefix-", "a-", "a", "a--"],
    "dns1123SubdomainPrefix": ["mysubdomain.prefix.-", "example.com", "a-"],
    "dns1035LabelPrefix": ["my-label-prefix-", "a-"],
    "labelValue": ["", "my-cool-label-Value", "MyValue", "my_value", "12345", "a..b"],
    "uri": ["http://example.com", "/absolute/path", "mailto:a@b"],
    "uuid": [
        "123e4567-e89b-12d3-a456-426614174000",
        "123E4567E89B12D3A456426614174000",
    ],
    "byte": ["aGVsbG8=", "aGVsbG8h", "aGVsbA==", "/+/+"],
    "date": ["2021-01-01", "2020-02-29", "0000-02-29", "9999-12-31"],
    "datetime": [
        "2021-01-01T00:00:00Z",
        "2020-02-29t23:59:59.123456789z",
        "2021-01-01T00:00:00+05:30",
    ],
}

INVALID = {
    "dns1123Label": ["", "-", "a-", "-a", "A", "a.b", "a_b", "contains a space", "a\n", "é"],
    "dns1123Subdomain": ["", ".", "a.", ".a", "a..b", "a-.b", "A", "a" * 254],
    "dns1035Label": ["", "0a", "a-", "a.b", "a" * 64],
    "qualifiedName": ["", "/", "/a", "a/", "a/b/c", "Example.com/a", "a b", "-a", "a" * 64],
    "dns1123LabelPrefix": ["", "-", "contains a space-", "é-", "a" * 65],
    "dns1123SubdomainPrefix": ["", "-", "a...-", "contains a space-"],
    "dns1035LabelPrefix": ["", "0-x", "contains a space-"],
    "labelValue": ["-a", "a-", "a b", "my-cool-label-Value!!\n\n!!!", "a" * 64, "é"],
    "uri": ["", "relative", "https://a:b:c/", "http://a b/"],
    "uuid": ["", "123e4567", "123e4567-e89b-12d3-a456-42661417400g", "{" + "0" * 32 + "}"],
    "byte": ["", "aGVsbG8", "aGVsbG8==", "aGVsb_8=", "====", "a===", "aGVsbG8=\n"],
    "date": [
        "",
        "2020-01-32",
        "2021-02-29",
        "1900-02-29",
        "2021-13-01",
        "2021-00-01",
        "2021-01-00",
    ],
    "datetime": [
        "2020-01-32T00:00:00Z",
        "2020-01-01",
        "2020-01-01T00:00:00",
        "2020-01-01 00:00:00Z",
        "2020-01-01T24:00:00Z",
        "2020-01-01T00:60:00Z",
        "2020-01-01T00:00:60Z",
        "2020-01-01T00:00:00.Z",
        "2020-01-01T00:00:00ZT",
        "",
    ],
}


def cases(table: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(name, text) for name, texts in table.items() for text in texts]


@pytest.mark.parametrize(("name", "text"), cases(VALID))
def test_a_valid_text_leaves_nothing_to_say(name: str, text: str) -> None:
    assert validate(FORMATS[name], text) == ABSENT


@pytest.mark.parametrize(("name", "text"), cases(INVALID))
def test_an_invalid_text_gets_a_reason(name: str, text: str) -> None:
    found = validate(FORMATS[name], text)
    assert found.present
    assert isinstance(found.value, list)
    assert all(isinstance(message, str) and message for message in found.value)


def test_every_format_has_cases() -> None:
    assert set(VALID) == set(INVALID) == set(FORMATS)


SUBDOMAIN_RULE = (
    "lower case letters, digits, `-` and `.`, and each part between dots must start and end with"
    " a letter or digit"
)
NAME_RULE = "letters, digits, `-`, `_` and `.`, and start and end with a letter or digit"


def test_each_broken_rule_is_reported() -> None:
    found = validate(FORMATS["qualifiedName"], "Prefix/" + "_" * 64)
    assert found == present(
        [
            f"prefix must consist of {SUBDOMAIN_RULE}",
            "name must be no more than 63 bytes",
            f"name must consist of {NAME_RULE}",
        ]
    )


def test_lengths_count_bytes() -> None:
    # 32 characters of two bytes each: 64.
    assert validate(FORMATS["labelValue"], "é" * 32).value[0] == "must be no more than 63 bytes"  # type: ignore[index]


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_by_its_name_and_equals_no_other(name: str) -> None:
    assert named(name) == present(FORMATS[name])
    assert [other for other in FORMATS if FORMATS[other] == FORMATS[name]] == [name]


def test_an_unknown_format_is_absent() -> None:
    assert named("dns1123label") == ABSENT


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("text", ["a-" * 50_000, "a" * 100_000 + "!", "0." * 50_000, "-" * 100_000])
def test_a_hostile_text_is_refused_in_one_pass(name: str, text: str) -> None:
    assert validate(FORMATS[name], text).present


LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@given(st.text("a0-.A", max_size=8))
def test_labels_and_subdomains_follow_the_pattern_of_rfc_1123(text: str) -> None:
    assert (not validate(FORMATS["dns1123Label"], text).present) is bool(LABEL.fullmatch(text))
    is_subdomain = all(LABEL.fullmatch(part) for part in text.split("."))
    assert (not validate(FORMATS["dns1123Subdomain"], text).present) is is_subdomain


@given(st.binary(min_size=1, max_size=20), st.uuids())
def test_what_encoders_write_is_valid(data: bytes, some_uuid: uuid.UUID) -> None:
    assert validate(FORMATS["byte"], base64.b64encode(data).decode()) == ABSENT
    assert validate(FORMATS["uuid"], str(some_uuid)) == ABSENT


@given(st.dates(), st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_dates_that_exist_are_valid(day: date, moment: datetime, minutes_east: int) -> None:
    assert validate(FORMATS["date"], day.isoformat()) == ABSENT
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes_east)))
    assert validate(FORMATS["datetime"], zoned.isoformat()) == ABSENT


@pytest.mark.parametrize(
    "expression",
    [
        "format.dns1123Label().validate(x) == optional.none()",
        "format.named('uuid').value().validate(x).value().size() == 1",
    ],
)
def test_the_functions_are_part_of_the_language(expression: str) -> None:
    program = compile_program(expression, Environment(variables={"x": DYN}))
    assert program.evaluate({"x": "my-name"}) is True
