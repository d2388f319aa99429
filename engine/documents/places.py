"""YAML documents with the place of every part, so that each mistake is reported where it stands."""

from __future__ import annotations

import codecs
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

import yaml
from yaml.reader import ReaderError

from engine.errors import Diagnostic, InvalidFileError, Place

TEMPLATE_MESSAGE: Final = "a template was not rendered"
TEMPLATE_HINT: Final = "apply what renders it, such as `helm template` or `envsubst`, first"

# Each is of bounded length: a document that is written to be slow takes no more than its size.
_LEFT_OVER: Final = re.compile(
    r"\{\{[^{}\n]{0,200}\}\}|\{%[^%\n]{0,200}%\}|<%[^%\n]{0,200}%>|\$\{[^{}\n]{0,200}\}"
    r"|\$\([A-Za-z_]\w{0,99}\)|(?<![\w\\^|(])\$[A-Z_][A-Z0-9_]{1,99}\b"
    r"|(?<!\w)(__|@)[A-Z][A-Z0-9_]{1,99}\1(?!\w)"
    r"|(?<=['\"])<[A-Za-z][\w .-]{0,99}>(?=['\"])|\A<[A-Za-z][\w .-]{0,99}>\Z"
)


def left_over(text: str) -> re.Match[str] | None:
    """Return the first part of a text that a template was to replace, None if there is none."""
    return _LEFT_OVER.search(text)


def template_hint(text: str, offset: int | None = None) -> str:
    """Return the remedy for a text that a template was to make, "" for any other.

    Args:
        text: the text.
        offset: the character at fault; None for the text as a whole.
    """
    found = left_over(text)
    if found is None or not (offset is None or found.start() <= offset <= found.end()):
        return ""
    return f"{TEMPLATE_MESSAGE}: {TEMPLATE_HINT}"


# YAML texts as trees with the place of each part, composed from PyYAML's events.
#
# PyYAML's own `compose` cannot replace this: it recurses in C and overruns the stack on deep
# nesting before a limit could be checked, stops at the first unknown alias instead of collecting
# mistakes, reports no duplicate keys, and holds a whole document, but a recorded cluster is read by
# items.


DEEPEST: Final = 64
"""Levels of nesting that are read."""

LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks of YAML 1.1, as counted by the marks of PyYAML."""

_LONGEST_SOURCE = 200  # characters of a source line that are shown
_TEXT_TAGS = frozenset({None, "!", "tag:yaml.org,2002:str"})
_COLLECTION_TAGS = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

_QUOTE = "quote the text, or put it below a `|-`"
_TAG_HINT = f"`!` begins a YAML tag: {_QUOTE}"
_IN_BRACES: Final = f"close the bracket; a text in it ends at `,` and at a bracket: {_QUOTE}"
_HINTS: Final = {
    "found character that cannot start any token": _QUOTE,
    "mapping values are not allowed in this context": f"`: ` begins a value: {_QUOTE}",
    "did not find expected whitespace or line break": _TAG_HINT,
    "did not find expected tag URI": _TAG_HINT,
    "did not find expected ',' or '}'": _IN_BRACES,
    "did not find expected ',' or ']'": _IN_BRACES,
    "did not find expected key": f"look at the indentation and the quotes: {_QUOTE}",
    "did not find expected '-' indicator": "look at the indentation",
    "did not find expected alphabetic or numeric character": f"`*` begins an alias: {_QUOTE}",
}
_TAGGED: Final = re.compile(
    r"""(?:^\s*(?:-\ +)+|(?:^[\s-]*|[{,]\s*)(?:[\w./-]+|'[^']*'|"[^"]*"):\ +)  # before a value
    (?:&\S+\ +)?(!)""",
    re.VERBOSE,
)
_LONGEST_TEMPLATE: Final = 256  # characters
_NO_TAGS = "YAML tags are not supported"
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_TOO_LONG = "too long for one object"
_QUOTED_TWICE: Final = re.compile(r"""(?::\ +|\[|-\ +)"[^"]*"[^\s"',:}\]][^"]*\"""", re.VERBOSE)
_INNER_QUOTES = "the text ends at the second `\"`: use `'` for texts inside, or put it below a `|-`"
_TAB_HINT = "YAML takes no tabs for indentation: use spaces"


@dataclass(frozen=True)
class Source:
    """The text of a file, for diagnostics.

    Attributes:
        file: its name in diagnostics.
    """

    file: str
    text: str

    def problem_at(self, index: int, message: str, hint: str = "") -> Diagnostic:
        """Return the diagnostic of a mistake at a character, counted from 0."""
        return self.place_at(index).problem(message, hint)

    def place_at(self, index: int) -> Place:
        """Return the place of a character, counted from 0."""
        line = bisect_right(self._line_starts, index) - 1
        start, column = self._line_starts[line], index - self._line_starts[line]
        shown = LINE_BREAK.split(self.text[start : start + _LONGEST_SOURCE], maxsplit=1)[0]
        return Place(
            file=self.file,
            line=line + 1,
            column=column + 1,
            # A blank for each unprintable character, such as a tab, keeps the caret in place.
            source="".join(char if char.isprintable() else " " for char in shown).rstrip()
            if column <= _LONGEST_SOURCE
            else "",
        )

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(found.end() for found in LINE_BREAK.finditer(self.text))]


# Nodes are not frozen, for a recorded cluster has millions: that takes longer than to make them.


@dataclass(slots=True, eq=False)
class ScalarNode:
    """A text, number, bool or null.

    Attributes:
        index: the character at which it begins, with its anchor and tag.
        text: the text with quotes, escapes and line folding resolved.
        style: `'`, `"`, `|`, `>`, or empty where it stands plain.
        plain: whether it may mean something other than a text.
    """

    index: int
    text: str
    style: str
    plain: bool


@dataclass(slots=True, eq=False)
class ListNode:
    index: int
    items: tuple[Node, ...]


@dataclass(slots=True, eq=False)
class MapNode:
    """Keys with values, in their order, without duplicates."""

    index: int
    items: tuple[tuple[ScalarNode, Node], ...]


Node: TypeAlias = ScalarNode | ListNode | MapNode
"""A part of a document. The target of aliases is in the tree several times."""


def read_trees(source: Source) -> list[Node]:
    """Return the root of each document in a YAML text, without empty ones."""
    composer = Composer(source)
    try:
        roots = list(composer.roots())
    except (yaml.YAMLError, LimitExceededError) as error:
        composer.problems.append(fatal_problem(source, error))
    if composer.problems:
        raise InvalidFileError(list(dict.fromkeys(composer.problems)))
    return [
        root
        for root in roots
        if not (isinstance(root, ScalarNode) and root.plain and not root.text)
    ]


class LimitExceededError(Exception):
    """A text goes beyond what is read of it.

    Args:
        index: the character where it does.
        message: the limit.
    """

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class Composer:
    """Composes nodes from the events of a text.

    Reading further raises `yaml.YAMLError` where the text is not YAML, or `LimitExceededError`
    where it is nested below DEEPEST, or a mapping goes on beyond `limit`.

    Attributes:
        events: the rest of the events; after taking the first of a node, call `node`.
        problems: the mistakes so far that did not stop reading.
        limit: the character that no mapping may reach.
    """

    def __init__(self, source: Source) -> None:
        self.problems: list[Diagnostic] = []
        self.limit = len(source.text)
        self.events: Iterator[yaml.Event] = iter(yaml.CSafeLoader(source.text).get_event, None)
        self._source = source
        self._anchors: dict[str, Node] = {}

    def roots(self) -> Iterator[Node]:
        """Yield the root of each document."""
        for event in self.root_events():
            yield self.node(event, 1)

    def root_events(self) -> Iterator[yaml.NodeEvent]:
        """Yield the first event of each root; the caller takes the others before the next."""
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
            elif isinstance(event, yaml.NodeEvent):
                yield event

    def node(self, event: yaml.Event, depth: int) -> Node:
        """Return the node that begins with `event`; takes its events up to its end."""
        if isinstance(event, yaml.AliasEvent):
            return self._anchored(event)
        if depth > DEEPEST:
            raise LimitExceededError(index_of(event), _TOO_DEEP)
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            assert isinstance(event, yaml.SequenceStartEvent)  # noqa: S101 - the only kind left
            node = self._sequence(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _anchored(self, event: yaml.AliasEvent) -> Node:
        found = self._anchors.get(event.anchor or "")
        if found is None:
            index = index_of(event)
            hint = f"`*` begins an alias: {_QUOTE}"
            _, _, after = self._source.text[:index].partition(f"&{event.anchor}")
            if "\n---" in after:
                hint = "an anchor ends with its document at `---`: write out what it stands for"
            self._report(index, f"there is no anchor `&{event.anchor}` before it", hint)
            return ScalarNode(index_of(event), "", "", plain=True)
        return found

    def _scalar(self, event: yaml.ScalarEvent) -> ScalarNode:
        tag, style = event.tag, event.style or ""
        if tag is not None:
            self._check_tag(event, tag, _TEXT_TAGS)
        return ScalarNode(index_of(event), event.value, style, plain=not style and tag is None)

    def _sequence(self, event: yaml.SequenceStartEvent, depth: int) -> ListNode:
        self._check_tag(event, event.tag, _COLLECTION_TAGS)
        items: list[Node] = []
        for item in self.events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            items.append(self.node(item, depth + 1))
        return ListNode(index_of(event), tuple(items))

    def _mapping(self, event: yaml.MappingStartEvent, depth: int) -> MapNode:
        self._check_tag(event, event.tag, _COLLECTION_TAGS)
        items = [(key, self.node(value, depth + 1)) for key, value in self.entries(depth)]
        return MapNode(index_of(event), tuple(items))

    def entries(self, depth: int) -> Iterator[tuple[ScalarNode, yaml.Event]]:
        """Yield each key of a mapping that has begun, with the first event of its value.

        The caller takes the value by `node` before it goes on. Keys that cannot be used are
        reported and left out.
        """
        seen: dict[str, int] = {}
        for start in self.events:
            if isinstance(start, yaml.MappingEndEvent):
                return
            if index_of(start) >= self.limit:
                raise LimitExceededError(index_of(start), _TOO_LONG)
            key = self.node(start, depth + 1)
            value = next(self.events)
            if not isinstance(key, ScalarNode):
                self._report_key(key.index)
            elif key.text == "<<" and key.plain:
                self._report(key.index, "merge keys are not supported", "write the keys out")
            elif key.text in seen:
                line = self._source.place_at(seen[key.text]).line
                message = f"duplicate key `{key.text}`: the first one is on line {line}"
                self._report(index_of(start), message)
            else:
                seen[key.text] = index_of(start)
                yield key, value
                continue
            self.node(value, depth + 1)

    def _report_key(self, index: int) -> None:
        """Report a key that is a mapping or a list, as `{{` begins one."""
        start = max(index - 1, 0)
        template = left_over(self._source.text[start : start + _LONGEST_TEMPLATE])
        if template is not None and template.start() == 0:
            self._report(index - 1, TEMPLATE_MESSAGE, TEMPLATE_HINT)
        else:
            self._report(index, "a key must be a string", _QUOTE)

    def _check_tag(self, event: yaml.Event, tag: str | None, known: frozenset[str | None]) -> None:
        if tag not in known:
            self._report(index_of(event), _NO_TAGS, _TAG_HINT)

    def _report(self, index: int, message: str, hint: str = "") -> None:
        self.problems.append(self._source.problem_at(index, message, hint))


def index_of(event: yaml.Event) -> int:
    """Return the character at which an event begins."""
    return event.start_mark.index if event.start_mark is not None else 0


def fatal_problem(source: Source, error: yaml.YAMLError | LimitExceededError) -> Diagnostic:
    """Return the diagnostic of the mistake that stopped reading."""
    if isinstance(error, LimitExceededError):
        return source.problem_at(error.index, str(error))
    if isinstance(error, ReaderError):
        return source.problem_at(error.position, f"not text: {error.reason}")
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Diagnostic(file=source.file, message=f"not YAML: {error}")
    message = error.problem or "cannot be read"
    hint = _HINTS.get(message, "")
    mark, begun = error.problem_mark, error.context_mark
    end = source.text.find("\n", mark.index)
    if template := left_over(source.text[: end if end >= 0 else None]):
        return source.problem_at(template.start(), TEMPLATE_MESSAGE, TEMPLATE_HINT)
    line_start = mark.index - mark.column
    if tagged := _TAGGED.search(source.text[line_start : mark.index + 1]):
        return source.problem_at(line_start + tagged.start(1), _NO_TAGS, _TAG_HINT)
    if source.text[mark.index : mark.index + 1] == "\t":
        hint = _TAB_HINT
    elif _QUOTED_TWICE.search(source.text[line_start : end if end >= 0 else None]):
        hint = _INNER_QUOTES
    if begun is not None and begun.line != mark.line:
        line = source.place_at(begun.index).line
        message += f", {error.context} that begins on line {line}"
    # Where the text ends too early, show its last character rather than an empty line.
    last = max(len(source.text.rstrip()) - 1, 0)
    return source.problem_at(min(mark.index, last), f"not YAML: {message}", hint)


# YAML documents with the place of every part, for diagnostics.
#
# JSON is YAML. Plain values follow the JSON-like core of YAML 1.2: `yes` and `2026-01-01` are
# texts. Anchors and aliases work within bounds. Tags are rejected: they are nearly always an
# unquoted expression that begins with `!`.


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

_COMMENT = re.compile(r"[ \t]+#")
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
        return self.key_place(path).problem(message, hint)

    def key_place(self, path: Path) -> Place:
        """Return the place of a key, the last step of `path`."""
        parent = self._find(path[:-1])
        if isinstance(parent, MapNode):
            for key, _ in parent.items:
                if key.text == path[-1]:
                    return self._place_at(key.index, path)
        return self.place(path)

    def written(self, path: Path) -> str:
        """Return a number, bool or null as it is written, "" for anything else."""
        node = self._find(path)
        return node.text if isinstance(node, ScalarNode) and node.plain else ""

    def is_folded(self, path: Path) -> bool:
        """Return whether the lines of a text are joined to one, as below `>`."""
        node = self._find(path)
        if not isinstance(node, ScalarNode) or "\n" in node.text.rstrip("\n"):
            return False
        written = self._source.text[node.index : node.index + len(node.text)]
        return node.style == ">" or (not node.style and written != node.text)

    def is_cut_by_comment(self, path: Path) -> bool:
        """Return whether a text without quotes ends where a comment begins."""
        node, text = self._find(path), self._source.text
        if not isinstance(node, ScalarNode) or node.style:
            return False
        end = _index_in(text, node, len(node.text))
        return _COMMENT.match(text, end) is not None

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


# Objects of the API as YAML documents, so that mistakes in them have a place like those in files.
#
# They are laid out as `kubectl get -o yaml` does: keys in alphabetical order, lists not indented,
# texts of several lines below a `|`.


_WIDTH: Final = 1 << 20  # no text is folded: the column of a character is where it stands


class _Dumper(yaml.CSafeDumper):
    """Writes what `read_documents` reads as the same values."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        """Return that equal parts are written out each."""
        return True


def _write_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    if "\n" in text:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")
    means_other = not isinstance(resolve_plain(text), str)
    style = "'" if means_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def document_of(value: dict[str, Any], file: str) -> Document:
    """Return an object of the API as a document; its diagnostics name fields besides lines.

    Args:
        value: the object, as decoded from JSON.
        file: its name in diagnostics.

    Raises:
        InvalidFileError: it is too deep or too large to be read.
    """
    if _is_too_deep(value):
        raise InvalidFileError(
            [Diagnostic(file=file, message=f"nested deeper than {DEEPEST} levels")]
        )
    text = yaml.dump(value, Dumper=_Dumper, width=_WIDTH, allow_unicode=True)
    (document,) = read_documents(text.encode(errors="surrogatepass"), file)
    document.names_fields = True
    return document


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return False
    return True


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
