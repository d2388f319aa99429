"""YAML texts as trees with the place of each part, composed from PyYAML's events.

PyYAML's own `compose` cannot replace this: it recurses in C and overruns the stack on deep nesting
before a limit could be checked, stops at the first unknown alias instead of collecting mistakes,
reports no duplicate keys, and holds a whole document, but a recorded cluster is read by items.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import yaml
from yaml.reader import ReaderError

from engine.documents.templates import TEMPLATE_HINT, TEMPLATE_MESSAGE, left_over
from engine.errors import Diagnostic, InvalidFileError, Place

DEEPEST: Final = 64
"""Levels of nesting that are read."""

LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks of YAML 1.1, as counted by the marks of PyYAML."""

_LONGEST_SOURCE = 200  # characters of a source line that are shown
_TEXT_TAGS = frozenset({None, "!", "tag:yaml.org,2002:str"})
_COLLECTION_TAGS = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

_QUOTE = "quote the text, or put it below a `|-`"
_TAG_HINT = f"`!` begins a YAML tag: {_QUOTE}"
_HINTS: Final = {
    "found character that cannot start any token": _QUOTE,
    "mapping values are not allowed in this context": f"`: ` begins a value: {_QUOTE}",
    "did not find expected whitespace or line break": _TAG_HINT,
    "did not find expected tag URI": _TAG_HINT,
    "did not find expected key": f"look at the indentation and the quotes: {_QUOTE}",
    "did not find expected '-' indicator": "look at the indentation",
    "did not find expected alphabetic or numeric character": f"`*` begins an alias: {_QUOTE}",
}
_LONGEST_TEMPLATE: Final = 256  # characters
_TOO_DEEP = f"nested deeper than {DEEPEST} levels"
_TOO_LONG = "too long for one object"
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
    """A list."""

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
    """Return the root of each document in a YAML text, without empty ones.

    Raises:
        InvalidFileError: it is not YAML, or uses what is not supported; carries all mistakes up to
            the point where reading had to stop.
    """
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
            hint = f"`*` begins an alias: {_QUOTE}"
            self._report(index_of(event), f"there is no anchor `&{event.anchor}` before it", hint)
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
            self._report(index_of(event), "YAML tags are not supported", _TAG_HINT)

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
    if source.text[mark.index : mark.index + 1] == "\t":
        hint = _TAB_HINT
    if begun is not None and begun.line != mark.line:
        line = source.place_at(begun.index).line
        message += f", {error.context} that begins on line {line}"
    # Where the text ends too early, show its last character rather than an empty line.
    last = max(len(source.text.rstrip()) - 1, 0)
    return source.problem_at(min(mark.index, last), f"not YAML: {message}", hint)
