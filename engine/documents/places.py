"""YAML documents with the place of every part, for diagnostics.

JSON is YAML. Plain values follow the JSON-like core of YAML 1.2: `yes` and `2026-01-01` are texts.
Anchors and aliases work within bounds. Tags are rejected: they are nearly always an unquoted
expression that begins with `!`.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.documents.yaml_tree import (
    DEEPEST,
    ListNode,
    MapNode,
    Node,
    ScalarNode,
    Source,
    read_trees,
)
from engine.errors import Diagnostic, InvalidFileError, Place

Path: TypeAlias = Sequence[str | int]
"""Keys and indexes from the top of a document to one value in it."""

MOST_BYTES: Final = 1 << 20
"""The largest file that is read: 1 MiB, the limit of a ConfigMap."""

_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MOST_VALUES = 100_000  # of one document, with aliases written out

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")

_PLAIN_KEY = re.compile(r"[\w-]+")
_PROPERTIES = re.compile(r"(?:(?:&[\w-]+|!\S*)\s+)*")
_BLOCK_HEADER = re.compile(r"[|>][^\r\n\x85\u2028\u2029]*")
_CHARACTER = re.compile(r".", re.DOTALL)
_TOKENS = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)|.", re.DOTALL),
}
"""The source of one character, by the style of the scalar."""
_BLANK_ESCAPES = frozenset("\n\r\x85\u2028\u2029nrt\tvfLPN_ ")  # after a backslash


@dataclass(frozen=True)
class _EmbeddedSource(Source):
    """A text that is a value of another; its places are in that other one."""

    outer: Source
    scalar: ScalarNode

    def place_at(self, index: int) -> Place:
        """Return the place of a character, counted from 0 in this text."""
        return self.outer.place_at(_index_in(self.outer.text, self.scalar, index))


class Document:
    """One YAML document: its plain value, and the place of every part of it.

    Attributes:
        file: the name of its file in diagnostics.
        value: dicts with text keys, lists, texts, ints, floats, bools and None.
        names_fields: whether its diagnostics name the field of the API at fault, besides the line.
    """

    def __init__(self, source: Source, root: Node) -> None:
        """Take a tree.

        Raises:
            InvalidFileError: it is too deep or too large once its aliases are written out.
        """
        self.file = source.file
        self.names_fields = False
        self._source = source
        self._root = root
        self._room = _MOST_VALUES
        self.value = self._plain(root, 1)

    def problem(
        self, path: Path, message: str, *, hint: str = "", offset: int | None = None
    ) -> Diagnostic:
        """Return the diagnostic of a mistake at a value.

        Args:
            path: leads to the value; the place is the nearest part that the document has.
            message: the mistake.
            hint: the remedy.
            offset: the offending character of the value, a text; None for its beginning.
        """
        return self.place(path, offset=offset).problem(message, hint)

    def place(self, path: Path, *, offset: int | None = None) -> Place:
        """Return the place of a value, or of the nearest part that the document has.

        Args:
            path: leads to the value.
            offset: a character of the value, a text; None for its beginning.
        """
        node = self._find(path)
        index = node.index
        if offset is not None and isinstance(node, ScalarNode):
            index = _index_in(self._source.text, node, offset)
        return self._place_at(index, path)

    def problem_at_key(self, path: Path, message: str, *, hint: str = "") -> Diagnostic:
        """Return the diagnostic of a mistake in a key, the last step of `path`."""
        parent = self._find(path[:-1])
        if isinstance(parent, MapNode):
            for key, _ in parent.items:
                if key.text == path[-1]:
                    return self._place_at(key.index, path).problem(message, hint)
        return self.problem(path, message, hint=hint)

    def items(self, path: Path) -> tuple[Document, ...]:
        """Return each entry of a list as a document of its own, in its place; none of another."""
        node = self._find(path)
        if not isinstance(node, ListNode):
            return ()
        return tuple(Document(self._source, item) for item in node.items)

    def embedded(self, path: Path) -> tuple[Document, ...]:
        """Return the documents in a value that is a text, such as a file in a ConfigMap.

        Their places are those in this document's file; none of any other value.

        Raises:
            InvalidFileError: as `read_documents`.
        """
        node = self._find(path)
        if not isinstance(node, ScalarNode):
            return ()
        name = f"{self.file}: {path[-1]}"
        source = _EmbeddedSource(name, node.text, outer=self._source, scalar=node)
        return tuple(Document(source, root) for root in read_trees(source))

    def _place_at(self, index: int, path: Path) -> Place:
        place = self._source.place_at(index)
        return replace(place, field=field_path(path)) if self.names_fields else place

    def _find(self, path: Path) -> Node:
        """Return the part that `path` leads to, or the last existing one on the way."""
        node = self._root
        for step in path:
            inner: Node | None = None
            if isinstance(node, MapNode):
                inner = next((value for key, value in node.items if key.text == step), None)
            elif isinstance(node, ListNode) and isinstance(step, int):
                inner = node.items[step]
            if inner is None:
                break
            node = inner
        return node

    def _plain(self, node: Node, depth: int) -> object:
        self._room -= 1
        if depth > DEEPEST or self._room < 0:
            limit = f"deeper than {DEEPEST} levels" if self._room >= 0 else "too large"
            message = f"the document is {limit} with its aliases written out"
            raise InvalidFileError([self._source.problem_at(node.index, message)])
        if isinstance(node, MapNode):
            return {key.text: self._plain(value, depth + 1) for key, value in node.items}
        if isinstance(node, ListNode):
            return [self._plain(item, depth + 1) for item in node.items]
        return resolve_plain(node.text) if node.plain else node.text


def read_documents(data: bytes, file: str) -> tuple[Document, ...]:
    """Return the documents of a YAML file, without empty ones.

    Args:
        data: its content.
        file: its name in diagnostics.

    Raises:
        InvalidFileError: it is not YAML, or uses what is not supported; carries all mistakes up to
            the point where reading had to stop.
    """
    if len(data) > MOST_BYTES:
        raise InvalidFileError([Diagnostic(file=file, message=f"larger than {MOST_BYTES} bytes")])
    try:
        source = Source(file, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = Source(file, data[: error.start].decode("utf-8", "replace"))
        hint = "it is in UTF-16: save it as UTF-8" if data.startswith(_UTF_16) else ""
        problem = before.problem_at(len(before.text), "not valid UTF-8", hint)
        raise InvalidFileError([problem]) from error
    return tuple(Document(source, root) for root in read_trees(source))


def field_path(path: Path) -> str:
    """Return a path as Kubernetes writes it, such as `spec.filters[0].expression`."""
    text = ""
    for step in path:
        is_plain = isinstance(step, str) and _PLAIN_KEY.fullmatch(step)
        text += f".{step}" if is_plain else f"[{step}]"
    return text.removeprefix(".")


def resolve_plain(text: str) -> object:
    """Return the value of a plain scalar."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return text


def _index_in(source: str, scalar: ScalarNode, offset: int) -> int:
    """Return the index in the source of the character `offset` of a scalar's text.

    Folding, indentation and escapes change blanks, but keep all other characters in their order: so
    the n-th non-blank is the n-th in both. A blank has the place of the next non-blank.
    """
    count = sum(not char.isspace() for char in scalar.text)
    ordinal = sum(not char.isspace() for char in scalar.text[:offset])
    start = _after(_PROPERTIES, source, scalar.index)
    if scalar.style in {"|", ">"}:
        start = _after(_BLOCK_HEADER, source, start)
    elif scalar.style:
        start += 1
    seen = 0
    for written in _TOKENS.get(scalar.style, _CHARACTER).finditer(source, start):
        if _is_blank(written[0]):
            continue
        if seen == ordinal:
            return written.start()
        seen += 1
        if seen == count:
            return written.end()
    return start


def _after(pattern: re.Pattern[str], source: str, index: int) -> int:
    """Return the end of the pattern's match at `index`."""
    found = pattern.match(source, index)
    return found.end() if found else index


def _is_blank(written: str) -> bool:
    """Return whether a character of a scalar's source, or an escape, is a blank."""
    if len(written) == 1 or written == "''":
        return written.isspace()
    if written[1] in "xuU":
        return chr(int(written.strip("\\xuU"), 16)).isspace()
    return written[1] in _BLANK_ESCAPES
