"""Objects in YAML, in the form of `kubectl get -o yaml`.

A list is read item by item, so that memory depends on the largest object, not on the file. YAML
takes about 0.5 ms for a pod of 4 KB, twenty times as long as JSON; some 40 % of it are PyYAML's.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import yaml

from engine.documents import (
    Composer,
    Document,
    LimitExceededError,
    MapNode,
    Node,
    ScalarNode,
    Source,
    fatal_problem,
    index_of,
)
from engine.errors import Diagnostic, InvalidFileError
from webhook.cluster.objects import (
    FORM_HINT,
    NO_KIND,
    NO_OBJECT,
    FieldPath,
    group_of,
    item_kind,
    path_text,
)

_T = TypeVar("_T")

_LONGEST_OBJECT = 4 * 2**20
"""Characters of an object that are read: the API server takes none above 3 MiB."""

_SHORT_TEXT = 2**18
"""Characters of a text that is read in any case, for its mistakes; one of 12 MiB takes minutes."""

_KIND = re.compile(r"kind[\"']?\s*:")


@dataclass(frozen=True, slots=True)
class YamlObject:
    """An `ApiObject` in YAML; `place` is the path to it from the top of its document."""

    document: Document
    place: FieldPath
    group: str
    kind: str
    end: int

    def decode(self, kind: type[_T]) -> _T:
        """Return the object as a wire struct."""
        return msgspec.convert(self.document.value, type=kind)

    def plain(self) -> object:
        """Return the object as dicts, lists and scalars."""
        return self.document.value

    def problem(self, path: FieldPath, message: str, hint: str) -> Diagnostic:
        """Return a mistake at one of its values."""
        place = path_text((*self.place, *path))
        located = f"{place}: {message}" if place else message
        return self.document.problem(path, located, hint=hint)


def read_yaml(text: str, file: str) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects in a YAML text, and the mistakes in those that cannot be read.

    Raises:
        InvalidFileError: it is not YAML, or holds a document that is not an object of Kubernetes.
    """
    source = Source(file, text)
    composer = Composer(source)
    if len(text) > _SHORT_TEXT and not _KIND.search(text):
        first = len(text) - len(text.lstrip())
        raise InvalidFileError([source.problem_at(first, NO_KIND, FORM_HINT)])
    try:
        for event in composer.root_events():
            if isinstance(event, yaml.MappingStartEvent):
                yield from _objects(composer, source, event)
            elif not _is_empty(event):
                raise InvalidFileError([source.problem_at(index_of(event), NO_OBJECT, FORM_HINT)])
    except (yaml.YAMLError, LimitExceededError) as error:
        raise InvalidFileError([*composer.problems, fatal_problem(source, error)]) from error


def _is_empty(event: yaml.Event) -> bool:
    """Whether it is a document without content."""
    return (
        isinstance(event, yaml.ScalarEvent)
        and not event.value
        and not event.style
        and event.tag is None
    )


def _objects(
    composer: Composer, source: Source, event: yaml.MappingStartEvent
) -> Iterator[YamlObject | Diagnostic]:
    """Yield the objects of a document that has begun: the items of a list, or a single object."""
    start = index_of(event)
    fields: list[tuple[ScalarNode, Node]] = []
    unnamed: list[YamlObject] | None = None
    composer.limit = start + _LONGEST_OBJECT
    for key, value in composer.entries(1):
        if key.text == "items" and isinstance(value, yaml.SequenceStartEvent):
            unnamed = yield from _items(composer, source)
        else:
            fields.append((key, composer.node(value, 2)))
    head = _object(MapNode(start, tuple(fields)), (), composer, source)
    has_kind = any(key.text == "kind" for key, _ in fields)
    if not has_kind or (isinstance(head, YamlObject) and not head.kind):
        raise InvalidFileError([source.problem_at(start, NO_KIND, FORM_HINT)])
    if isinstance(head, list):
        yield from head
    elif unnamed is None:
        yield head
    else:
        for item in unnamed:
            yield replace(item, group=head.group, kind=item_kind(head.kind))


def _items(
    composer: Composer, source: Source
) -> Generator[YamlObject | Diagnostic, None, list[YamlObject]]:
    """Yield the items of a list that has begun; return those that leave their kind to the list.

    The list names it at its end, so they wait.
    """
    unnamed = []
    for number, event in enumerate(composer.events):
        composer.limit = index_of(event) + _LONGEST_OBJECT
        if isinstance(event, yaml.SequenceEndEvent):
            break
        found = _object(composer.node(event, 3), ("items", number), composer, source)
        if isinstance(found, list):
            yield from found
        elif found.kind or not isinstance(found.document.value, dict):
            yield found
        else:
            unnamed.append(found)
    return unnamed


def _object(
    root: Node, place: FieldPath, composer: Composer, source: Source
) -> YamlObject | list[Diagnostic]:
    """Return an object, or the mistakes that composing it found."""
    problems, composer.problems = composer.problems, []
    if problems:
        return problems
    try:
        document = Document(source, root)
    except InvalidFileError as error:
        return list(error.problems)
    fields = document.value if isinstance(document.value, dict) else {}
    api_version, kind = fields.get("apiVersion"), fields.get("kind")
    return YamlObject(
        document=document,
        place=place,
        group=group_of(api_version) if isinstance(api_version, str) else "",
        kind=kind if isinstance(kind, str) else "",
        end=root.index,
    )
