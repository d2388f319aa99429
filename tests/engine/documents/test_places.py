from __future__ import annotations

import json
import math
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.documents import document_of
from engine.documents.places import MOST_BYTES, Document, Source, read_documents, read_trees
from engine.errors import Diagnostic, InvalidFileError


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


@pytest.mark.parametrize(
    ("text", "caret"),
    [
        ("expression: !has(node.usage) || node.podCount < 9", 13),
        ("- !has(node.usage) || node.podCount < 9", 3),
        ("{name: 'it''s: !', expression: !has(node.usage) || node.ready}", 32),
        ("expression: !(node.ready || node.unschedulable)", 13),
        ("expression: !has(node.usage) ? 'a' : 'b'", 13),
    ],
)
def test_a_bang_before_what_is_no_yaml_is_the_mistake(text: str, caret: int) -> None:
    assert _report(text) == (
        f"f.yaml:1:{caret}: YAML tags are not supported\n"
        f" | {text}\n"
        f" | {'.' * (caret - 1)}^\n"
        "hint: `!` begins a YAML tag: quote the text, or put it below a `|-`"
    )


@pytest.mark.parametrize("text", ["'a: !b': c: d", "a: b !c: d", "a: !b c\nd: e: f"])
def test_a_bang_elsewhere_is_not_the_mistake(text: str) -> None:
    assert "mapping values are not allowed" in _report(text)


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
        " | ..^\n"
        "hint: close the bracket; a text in it ends at `,` and at a bracket: quote the text, or put"
        " it below a `|-`"
    )


def test_an_anchor_of_another_document_is_told_apart_from_a_star() -> None:
    assert "an anchor ends with its document" in _report("a: &x 1\n---\nb: *x")
    assert "`*` begins an alias" in _report("b: *x")


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


def _document(text: str) -> Document:
    (document,) = read_documents(text.encode(), "f.yaml")
    return document


def _place(problem: Diagnostic) -> tuple[int, int]:
    return problem.line, problem.column


def _only_problem(data: bytes) -> Diagnostic:
    with pytest.raises(InvalidFileError) as caught:
        read_documents(data, "f.yaml")
    (problem,) = caught.value.problems
    return problem


def test_plain_values_mean_what_they_mean_in_json() -> None:
    text = """
    null: [null, ~, ]
    bool: [true, False]
    int: [0, -7, +3, 012]
    float: [1.5, -.5, 1e3]
    text: [yes, off, 2026-01-01T00:00:00Z, .inf, 1e999, 0x10, "1", 'true', !!str 5]
    """
    assert _document(text).value == {
        "null": [None, None],
        "bool": [True, False],
        "int": [0, -7, 3, 12],
        "float": [1.5, -0.5, 1000.0],
        "text": [
            *("yes", "off", "2026-01-01T00:00:00Z", ".inf", "1e999", "0x10", "1", "true", "5"),
        ],
    }


def test_json_is_yaml() -> None:
    document = _document('{"a": [1, {"b": null}],\n "c": "d"}')
    assert document.value == {"a": [1, {"b": None}], "c": "d"}
    assert _place(document.problem(["c"], "x")) == (2, 7)


def test_documents_without_content_are_left_out() -> None:
    documents = read_documents(b"---\n# nothing\n---\na: 1\n---\n---\nb: 2\n", "f.yaml")
    assert [document.value for document in documents] == [{"a": 1}, {"b": 2}]
    assert _place(documents[1].problem(["b"], "x")) == (7, 4)


def test_a_byte_order_mark_and_windows_line_ends_do_not_shift_places() -> None:
    (document,) = read_documents("a: 1\r\nb:\r\n  c: 2\r\n".encode("utf-8-sig"), "f.yaml")
    assert _place(document.problem(["b", "c"], "x")) == (3, 6)


def test_an_alias_stands_for_its_anchor_and_mistakes_are_shown_there() -> None:
    document = _document("a: &x {n: 1}\nb: *x\n")
    assert document.value == {"a": {"n": 1}, "b": {"n": 1}}
    assert _place(document.problem(["b", "n"], "x")) == (1, 11)


def test_a_path_that_leads_nowhere_is_shown_at_the_nearest_part_there_is() -> None:
    document = _document("a:\n  b: [1]\n")
    assert _place(document.problem(["a", "c", "d"], "x")) == (2, 3)
    assert _place(document.problem(["a", "b", 0, "c"], "x")) == (2, 7)


def test_a_mistake_in_a_key_is_shown_at_the_key() -> None:
    document = _document("a:\n  'b': [1]\n")
    assert _place(document.problem_at_key(["a", "b"], "x")) == (2, 3)


@pytest.mark.parametrize(
    ("text", "offset", "line", "column"),
    [
        ("e: a && b", 5, 1, 9),
        ("e:    a &&\n  b", 5, 2, 3),
        ("e: 'a && b'", 5, 1, 10),
        ("e: 'it''s b'", 5, 1, 11),  # `it's b`: the doubled quote is one character
        (r'e: "a\tb \"c\" d"', 4, 1, 10),  # an escaped quote is one character
        (r'e: "a\x20b"', 2, 1, 10),  # an escape may stand for a blank
        ('e: "a \\\n   b"', 2, 2, 4),
        ("e: |\n  a &&\n    b\n", 7, 3, 5),
        ("e: |2-\n   a\n   b\n", 1, 2, 4),
        ("e: >- # folded\n\n  a\n  && b\n", 3, 4, 3),
        ("e: &x !!str a b", 2, 1, 15),
        ("e: &x |\n  a b", 2, 2, 5),
        ("e: 'ü 😀 b'", 4, 1, 9),
    ],
)
def test_a_character_of_a_text_is_found_in_the_source(
    text: str, offset: int, line: int, column: int
) -> None:
    document = _document(text)
    assert _place(document.problem(["e"], "x", offset=offset)) == (line, column)


def test_the_end_of_a_text_is_just_after_its_last_character() -> None:
    assert _place(_document("e: |-\n  a &&\nf: 1").problem(["e"], "x", offset=4)) == (2, 7)


@settings(max_examples=150)
@given(
    text=st.text(st.sampled_from("ab'\"\\ \t\n:#-é😀"), min_size=1, max_size=40),
    style=st.sampled_from(["", "'", '"', "|", ">"]),
    ascii_only=st.booleans(),
    width=st.integers(10, 40),
)
def test_every_character_that_is_not_blank_is_found_whatever_the_style(
    text: str, style: str, width: int, *, ascii_only: bool
) -> None:
    written = yaml.dump(
        {"outer": [{"e": text}]}, default_style=style, allow_unicode=not ascii_only, width=width
    )
    document = _document(written)
    assert document.value == {"outer": [{"e": text}]}
    lines = written.splitlines()
    for offset, char in enumerate(text):
        if char.isspace():
            continue
        problem = document.problem(["outer", 0, "e"], "x", offset=offset)
        found = lines[problem.line - 1][problem.column - 1 :]
        escapes = {"\\": r"\\", '"': r"\"", "é": r"\xE9", "😀": r"\U0001F600"}
        assert found.startswith((char, escapes.get(char, char)))


def test_a_line_that_is_shown_keeps_the_caret_in_place_and_has_its_limits() -> None:
    problem = _document("a:\n  b: 'x\ty'").problem(["a", "b"], "wrong", offset=1)
    assert str(problem) == "f.yaml:2:9: wrong\n |   b: 'x y'\n | ........^"
    far = _document(f"{{a: '{'x' * 500}', b: 1}}").problem(["b"], "wrong")
    assert far.column == 512  # 511 characters stand before it
    assert far.source == ""


def test_aliases_cannot_blow_a_document_up() -> None:
    # 9 levels of 9 would be 387 million values.
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    problem = _only_problem("\n".join(levels).encode())
    assert problem.message == "the document is too large with its aliases written out"


def test_aliases_cannot_nest_a_document_too_deeply() -> None:
    levels = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 80)]
    problem = _only_problem("\n".join(levels).encode())
    assert "deeper than 64 levels" in problem.message


def test_a_file_that_is_too_large_is_not_looked_into() -> None:
    assert _only_problem(b"a" * (MOST_BYTES + 1)).message == "larger than 1048576 bytes"


def test_bytes_that_are_not_utf_8_are_shown_where_they_stand() -> None:
    problem = _only_problem(b"a: 1\nb: \xff")
    assert (problem.message, *_place(problem)) == ("not valid UTF-8", 2, 4)


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode())))
def test_no_content_does_more_than_be_refused(data: bytes) -> None:
    problems: tuple[Diagnostic, ...] = ()
    documents: tuple[Document, ...] = ()
    try:
        documents = read_documents(data, "f.yaml")
    except InvalidFileError as error:
        problems = error.problems
    told = [*problems, *(document.problem([], "x", offset=0) for document in documents)]
    assert all(problem.message and problem.line >= 1 for problem in told)


_TEXTS = st.text() | st.sampled_from(
    ["", "~", "null", "yes", "On", "1e3", "0x10", "1_000", "012", "- a", "a: b", "!x", "a\n\nb\n"]
)
_LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _TEXTS
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES = st.recursive(
    _LEAVES | _FLOATS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(spec=_VALUES)
def test_an_object_is_read_back_as_it_was(spec: Any) -> None:  # noqa: ANN401 - any JSON
    value = json.loads(json.dumps({"spec": spec}))
    read = document_of(value, "object").value
    assert read == value
    assert json.dumps(read, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_it_is_laid_out_as_kubectl_prints_it() -> None:
    value = {"spec": {"b": [{"x": "one"}, {"x": "two\nlines"}], "a": math.pi}}
    document = document_of(value, "things/a")
    at_x = document.problem(("spec", "b", 1, "x"), "wrong", offset=4)
    assert str(at_x) == (
        "things/a:7:7: spec.b[1].x: wrong\n |       lines\n | ......^"  # below `x: |-`
    )


def test_a_key_that_is_no_identifier_stands_in_brackets() -> None:
    document = document_of({"spec": {"a.b/c": 1}}, "things/a")
    assert document.problem_at_key(("spec", "a.b/c"), "wrong").field == "spec[a.b/c]"


@pytest.mark.parametrize("levels", [64, 5_000])
def test_an_object_that_nests_too_deep_is_refused(levels: int) -> None:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    with pytest.raises(InvalidFileError, match="nested deeper than 64 levels"):
        document_of(value, "things/a")
