from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.documents.places import MOST_BYTES, Document, read_documents
from engine.errors import Diagnostic, InvalidFileError


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
