from __future__ import annotations

import pytest

from engine.documents.yaml_tree import Source, read_trees
from engine.errors import InvalidFileError


def _report(text: str) -> str:
    with pytest.raises(InvalidFileError) as caught:
        read_trees(Source("f.yaml", text))
    return str(caught.value)


def test_a_tab_in_the_indentation_is_explained() -> None:
    assert _report("a:\n\t- b") == (
        "f.yaml:2:1: not YAML: found character that cannot start any token\n"
        " |  - b\n"
        " | ^\n"
        "hint: YAML takes no tabs for indentation: use spaces"
    )


def test_an_expression_that_begins_with_a_bang_is_not_taken_for_a_tag() -> None:
    assert _report("expression: !('gpu' in node.labels)") == (
        "f.yaml:1:13: YAML tags are not supported\n"
        " | expression: !('gpu' in node.labels)\n"
        " | ............^\n"
        "hint: `!` begins a YAML tag: quote the text, or put it below a `|-`"
    )


def test_a_colon_inside_a_plain_expression_is_explained() -> None:
    assert _report("expression: a ? b : c") == (
        "f.yaml:1:19: not YAML: mapping values are not allowed in this context\n"
        " | expression: a ? b : c\n"
        " | ..................^\n"
        "hint: `: ` begins a value: quote the text, or put it below a `|-`"
    )


def test_text_after_a_quoted_beginning_is_explained() -> None:
    report = _report("expression: 'gpu' in node.labels")
    assert report.startswith("f.yaml:1:19: not YAML: did not find expected key\n")
    assert report.endswith("quote the text, or put it below a `|-`")


def test_an_unfinished_part_is_shown_with_the_line_it_begins_on() -> None:
    assert _report("a: [1,\n  2\n\n") == (
        "f.yaml:2:3: not YAML: did not find expected ',' or ']',"
        " while parsing a flow sequence that begins on line 1\n"
        " |   2\n"
        " | ..^"
    )


def test_keys_that_stand_twice_are_all_found() -> None:
    report = _report("a: 1\na: 2\nb: {c: 1, c: 2}\n")
    assert "f.yaml:2:1: duplicate key `a`" in report
    assert "f.yaml:3:11: duplicate key `c`" in report


def test_what_stands_before_a_syntax_error_is_reported_with_it() -> None:
    report = _report("a: 1\na: 2\nb: [")
    assert "duplicate key `a`" in report
    assert "not YAML" in report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: *nowhere", "there is no anchor `&nowhere` before it"),
        ("&a [*a]", "there is no anchor `&a` before it"),
        ("a: &x 1\n---\nb: *x", "there is no anchor `&x` before it"),
        ("[a]: 1", "a key must be a string"),
        ("{[a]: 1}", "a key must be a string"),
        ("b: {<<: 1}", "merge keys are not supported"),
        ("!!python/object:os.system x", "YAML tags are not supported"),
        ("a: \x07", "not text: control characters are not allowed"),
        ("%YAML 3.0\n---\na", "not YAML: found incompatible YAML document"),
    ],
)
def test_what_we_do_not_read_is_refused(text: str, message: str) -> None:
    assert message in _report(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_at_once(opening: str) -> None:
    assert "nested deeper than 64 levels" in _report(opening * 100_000)
